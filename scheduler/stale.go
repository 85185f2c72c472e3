package scheduler

import "time"

// Watch is what tells whether a job is stale: whether it has had no success for as long as it says.
type Watch struct {
	Expect      time.Duration // expect_success_within; 0: the job expects none
	Kind        Kind
	Paused      bool
	Completed   bool      // no slot is left
	Begun       time.Time // when the job was created, resumed or started again, whichever came last
	StartsAt    time.Time // zero: at once
	DueAt       time.Time // of a one-shot: when its slot is due, or when it was claimed
	LastSuccess time.Time // zero: none yet
	Now         time.Time
}

// Judge says whether the job is stale, and since when it has had no success; else when to look again, zero meaning
// never. A one-shot counts from its slot, and once it has succeeded nothing more is expected of it. What happens to a
// recurring job without a slot left is what was asked for.
func (w Watch) Judge() (stale bool, since, look time.Time) {
	switch {
	case w.Expect <= 0, w.Completed && w.Kind.Recurring(), w.Kind.OneShot() && !w.LastSuccess.IsZero():
		return false, time.Time{}, time.Time{}
	case w.Paused:
		return false, time.Time{}, w.Now.Add(w.Expect)
	}
	since = w.LastSuccess
	for _, t := range []time.Time{w.Begun, w.StartsAt} {
		if t.After(since) {
			since = t
		}
	}
	if w.Kind.OneShot() && w.DueAt.After(since) {
		since = w.DueAt
	}
	if end := since.Add(w.Expect); end.After(w.Now) {
		return false, time.Time{}, end
	}
	return true, since, time.Time{}
}
