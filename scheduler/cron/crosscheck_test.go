package cron

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"pgregory.net/rapid"
)

// For any times of day, from any instant, the masks find what gronx finds, forwards and backwards.
func TestTimesOfDayAreThoseOfGronx(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := make([]string, 0, dayOfMonth)
		for i := range dayOfMonth {
			spec := &specs[i]
			texts = append(texts, drawField(t, spec.name, spec.min, spec.max, nil, time.Time.Second).text)
		}
		e := MustParse(strings.Join(texts, " ") + " * * *")
		clock := clockText(e.text)
		at := rapid.Int64Range(-5_000_000_000, 6_000_000_000).Draw(t, "at")
		for range 3 {
			want, err := gronx.NextTickAfter(clock, instant(at), false)
			if err != nil {
				t.Fatalf("gronx after %q, %s: %v", clock, instant(at), err)
			}
			got, _ := e.nextWall(at, latest)
			if !instant(got).Equal(want) {
				t.Fatalf("%q after %s: %s; gronx: %s", clock, instant(at), instant(got), want)
			}
			want, err = gronx.PrevTickBefore(clock, instant(got), false)
			if err != nil {
				t.Fatalf("gronx before %q, %s: %v", clock, instant(got), err)
			}
			if back, _ := e.prevWall(got-1, earliest); !instant(back).Equal(want) {
				t.Fatalf("%q before %s: %s; gronx: %s", clock, instant(got), instant(back), want)
			}
			at = got
		}
	})
}

// Whatever Parse accepts passes the cross-check.
func TestEveryExpressionPassesTheCrossCheck(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := parseDrawn(t, drawExpression(t))
		if err := e.CrossCheck(); err != nil {
			t.Fatalf("%q (%q): %v", e, e.Canonical(), err)
		}
	})
}

func TestACrossCheckThatFailsGivesBothAnswers(t *testing.T) {
	for _, test := range []struct {
		about  string
		answer func(clock string, after time.Time, inclusive bool) (time.Time, error)
		want   string
	}{
		{"another time", func(clock string, after time.Time, _ bool) (time.Time, error) {
			next, err := gronx.NextTickAfter(clock, after, false)
			return next.Add(time.Minute), err
		}, `of "0 30 2 * * *", the first time after 1969-12-31 23:59:59 is 1970-01-01 02:30:00, ` +
			`but by gronx: 1970-01-01 02:31:00`},
		{"another time on the third day", func(clock string, after time.Time, _ bool) (time.Time, error) {
			next, err := gronx.NextTickAfter(clock, after, false)
			if next.Day() == checkedTimes {
				next = next.Add(-time.Hour)
			}
			return next, err
		}, `of "0 30 2 * * *", the first time after 1970-01-02 02:30:00 is 1970-01-03 02:30:00, ` +
			`but by gronx: 1970-01-03 01:30:00`},
		{"no time", func(_ string, after time.Time, _ bool) (time.Time, error) {
			return after, errors.New("no tick found")
		}, `of "0 30 2 * * *", the first time after 1969-12-31 23:59:59 is 1970-01-01 02:30:00, ` +
			`but by gronx: no tick found`},
	} {
		t.Run(test.about, func(t *testing.T) {
			agreed.Purge()
			tickAfter = test.answer
			defer func() { tickAfter = gronx.NextTickAfter }()
			for range 2 { // a difference is not forgotten
				err := MustParse("30 2 * * mon").CrossCheck()
				if _, is := errors.AsType[*MismatchError](err); !is || err.Error() != test.want {
					t.Fatalf("got  %v\nwant %s", err, test.want)
				}
			}
		})
	}
}
