package claim

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// Day is a day of runs, as in the names of their tables.
type Day string

// AnyDay stands for all days. It is also the day of runs of several days.
const AnyDay Day = ""

const dayForm = "20060102"

// DayOf returns the day of the runs that succeeded and of further ones, if they all have the same one.
func DayOf(outcomes []domain.Outcome, further ...uuid.UUID) (common Day) {
	for _, o := range outcomes {
		if o.Verdict == domain.Succeed && !common.take(o.RunID) {
			return AnyDay
		}
	}
	for _, run := range further {
		if !common.take(run) {
			return AnyDay
		}
	}
	return common
}

// take makes d the day of a run, unless it is another day already.
func (d *Day) take(run uuid.UUID) bool {
	at := Day(domain.IDTime(run).Format(dayForm))
	if *d == AnyDay {
		*d = at
	}
	return *d == at
}

// Has reports whether instants are on the day.
func (d Day) Has(instants ...time.Time) bool {
	return !slices.ContainsFunc(instants, func(at time.Time) bool { return at.UTC().Format(dayForm) != string(d) })
}

// table returns a statement with the table of the day in place of the first mention of runs.
func (d Day) table(sql string) string {
	return strings.Replace(sql, "punctual.runs r", "punctual.runs_"+string(d)+" r", 1)
}
