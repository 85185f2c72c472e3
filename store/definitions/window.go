package definitions

import (
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// CheckWindow blames a missed.window by which a slot that is older than the retention might still run.
func (d *Definitions) CheckWindow(def jobspec.Definition) error {
	if def.Missed.Window.Value() > d.retention {
		return jobspec.Blame("missed.window", "%.80q reaches further back than runs are kept: at most %s",
			def.Missed.Window.String(), d.retention)
	}
	return nil
}

// CheckAge blames the instant of a one-shot that is older than the retention. Its run would need the partition of a day
// that is gone, and a client could make the database create a partition for any day in the past.
func (d *Definitions) CheckAge(job *domain.Job, now time.Time) error {
	if job.Schedule.Kind() == jobspec.KindAt && now.Sub(job.Schedule.Instant()) > d.retention {
		return jobspec.Blame("schedule.at", `%.80q is further back than runs are kept (%s); to run now, write "delay": "0s"`,
			job.Schedule.At.String(), d.retention)
	}
	return nil
}
