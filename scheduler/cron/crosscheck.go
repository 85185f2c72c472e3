package cron

import (
	"fmt"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	lru "github.com/hashicorp/golang-lru/v2"
)

// checkedTimes is how many times CrossCheck asks for. They run into other days if a day has fewer.
const checkedTimes = 3

// tickAfter is what CrossCheck asks. Tests replace it.
var tickAfter = gronx.NextTickAfter

// agreed has the times of day about which both agreed of late. Many expressions have the same, and gronx takes up to
// 100 µs to answer.
var agreed, _ = lru.New[string, struct{}](4096) // fails only for a size that is not positive

// CrossCheck asks gronx, which shares no code with this package, for the times of day of the expression. Its error is a
// [*MismatchError]: one of the two is wrong, and nothing here can tell which. It is for expressions that somebody has
// just written. Times of day are the same on every day, so the answer does not depend on when it is asked for.
func (e *Expression) CrossCheck() error {
	clock := clockText(e.text)
	if agreed.Contains(clock) {
		return nil
	}
	daily := *e
	daily.calendar = everyDay
	after := int64(-1) // just before the first midnight of Unix time
	for range checkedTimes {
		ours, _ := daily.nextWall(after, latest)
		theirs, err := tickAfter(clock, instant(after), false)
		if err != nil || theirs.Unix() != ours {
			return &MismatchError{Clock: clock, After: instant(after), Ours: instant(ours), Theirs: theirs, Err: err}
		}
		after = ours
	}
	agreed.Add(clock, struct{}{})
	return nil
}

var everyDay = MustParse("@daily").calendar

// MismatchError says that this package and gronx calculate different times from an expression.
type MismatchError struct {
	Clock        string // the part of the expression that gronx was asked about, in its canonical form
	After        time.Time
	Ours, Theirs time.Time // the first time after After; all of them by a clock on the wall, labelled as UTC
	Err          error     // gronx has no answer; nil: it has one
}

func (e *MismatchError) Error() string {
	theirs := e.Theirs.Format(time.DateTime)
	if e.Err != nil {
		theirs = e.Err.Error()
	}
	return fmt.Sprintf("of %q, the first time after %s is %s, but by gronx: %s",
		e.Clock, e.After.Format(time.DateTime), e.Ours.Format(time.DateTime), theirs)
}

// clockText writes the second, the minute and the hour for gronx, which sees nothing else: every day matches.
//
// gronx never sees what people write. gronx v1.20.4 accepts "MON * * * *", "1-2-3 * * * *" and "70/5 * * * *" as
// valid. It refuses "0 0 * * fri-sun". It reads "0 0 5 * *,1" as every day, where the star means that both fields
// must match. It lacks LW and L-2. And it needs seconds for a list of 8 kB.
//
// Nor does it see a zone: in a zone with daylight saving it loses slots, doubles them and can err by days. When it
// gives up it may return its start, and not always with an error.
func clockText(canonical string) string {
	return strings.Join(strings.Fields(canonical)[:dayOfMonth], " ") + " * * *"
}
