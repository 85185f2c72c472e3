package claim

import (
	"punctual/scheduler"
)

// Day is a day of runs, as in the names of their tables.
type Day string

// AnyDay stands for all days. It is also the day of runs of several days.
const AnyDay Day = ""

// DayOf returns the day of the runs that succeeded, if they all have the same one.
func DayOf(outcomes []scheduler.Outcome) (common Day) {
	for _, o := range outcomes {
		if o.Verdict != scheduler.Succeed {
			continue
		}
		at := Day(scheduler.IDTime(o.RunID).Format("20060102"))
		if common != AnyDay && at != common {
			return AnyDay
		}
		common = at
	}
	return common
}
