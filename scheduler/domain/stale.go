package domain

import (
	"time"

	"punctual/scheduler/jobspec"
)

// Watch is what decides whether a job is stale: whether it has had no success within expect_success_within.
type Watch struct {
	Expect      time.Duration // expect_success_within; 0: the job sets none
	Kind        jobspec.Kind
	Paused      bool
	Completed   bool      // the job has no further slot
	Begun       time.Time // when the job was created, resumed or started again, whichever came last
	StartsAt    time.Time // zero: at once
	DueAt       time.Time // of a one-shot: when its slot is due, or when it was claimed
	LastSuccess time.Time // zero: none yet
	Now         time.Time
}

// Judge says whether the job is stale, and since when it has had no success; if it is not stale, when to look again,
// or zero for never. A one-shot counts from its slot, and after a success nothing more is expected of it. A recurring
// job that has completed is never stale: its schedule asked for its end.
func (w Watch) Judge() (stale bool, since, look time.Time) {
	switch {
	case w.Expect <= 0, w.Completed && w.Kind.Recurring(), w.Kind.OneShot() && !w.LastSuccess.IsZero():
		return false, time.Time{}, time.Time{}
	case w.Paused:
		return false, time.Time{}, w.Now.Add(w.Expect)
	}
	since = jobspec.Later(jobspec.Later(w.LastSuccess, w.Begun), w.StartsAt)
	if w.Kind.OneShot() {
		since = jobspec.Later(since, w.DueAt)
	}
	if end := since.Add(w.Expect); end.After(w.Now) {
		return false, time.Time{}, end
	}
	return true, since, time.Time{}
}
