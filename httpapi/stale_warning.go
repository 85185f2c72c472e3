package httpapi

import (
	"fmt"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
	"punctual/store/cache"
)

// expectation is a recurring schedule, how long its job may go without success, and the day from which on the schedule
// is looked at.
type expectation struct {
	schedule jobspec.Schedule
	within   time.Duration
	from     time.Time
}

// staleWarnings keeps what staleByItself has found: to look for a gap takes a millisecond, and each read of a job asks.
var staleWarnings = cache.New[expectation, string](1000, 1<<20)

// staleByItself warns that a job becomes stale although each of its slots succeeds, because its schedule has a gap that
// is longer than its expect_success_within. It is empty if there is none.
func staleByItself(d jobspec.Definition) string {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	asked := expectation{d.Schedule, d.ExpectSuccessWithin.Value(), jobspec.Later(today, d.Schedule.StartsAt.Value())}
	if asked.within == 0 || !d.Schedule.Kind().Recurring() {
		return ""
	}
	warning, known := staleWarnings.Get(asked)
	if !known {
		warning = asked.warning()
		staleWarnings.Add(asked, warning, len(warning)+len(d.Schedule.Cron))
	}
	return warning
}

func (a expectation) warning() string {
	if period := a.schedule.Every.Value(); period > a.within {
		return fmt.Sprintf("the job becomes stale although its runs succeed: expect_success_within is %s, and the period %s",
			jobspec.Short(a.within), jobspec.Short(period))
	}
	if a.schedule.Kind() != jobspec.KindCron {
		return ""
	}
	expression, err := cron.Parse(a.schedule.Cron)
	if err != nil {
		return "" // cannot happen: it was checked when the job was written
	}
	zone, err := cron.LoadZone(a.schedule.Timezone)
	if a.schedule.Timezone == "" || err != nil {
		zone = time.UTC
	}
	last, gap, is := expression.GapOver(a.within, a.from, zone)
	if end := a.schedule.EndsAt.Value(); !is || !end.IsZero() && last.Add(gap).After(end) {
		return ""
	}
	pass := jobspec.Short(gap)
	if days := int(gap.Hours() / 24); days > 7 {
		pass = fmt.Sprint(days, " days")
	}
	return fmt.Sprintf("the job becomes stale although its runs succeed: expect_success_within is %s, and %s pass "+
		"between the slot on %s and the next one", jobspec.Short(a.within), pass,
		last.In(zone).Format("Monday, 2006-01-02 15:04"))
}
