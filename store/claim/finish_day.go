package claim

import (
	"punctual/scheduler/domain"
)

// Day is a day of runs, as in the names of their tables.
type Day string

// AnyDay stands for all days. It is also the day of runs of several days.
const AnyDay Day = ""

// DayOf returns the day of the runs that succeeded, if they all have the same one.
func DayOf(outcomes []domain.Outcome) (common Day) {
	for _, o := range outcomes {
		if o.Verdict != domain.Succeed {
			continue
		}
		at := Day(domain.IDTime(o.RunID).Format("20060102"))
		if common != AnyDay && at != common {
			return AnyDay
		}
		common = at
	}
	return common
}
