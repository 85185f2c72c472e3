package domain

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// IdempotencyKey returns the Idempotency-Key of a run's requests. For a slot's run it is the job's id and the slot in
// unix seconds, else the run's id. A backfill may repeat a slot that has a run. The new run is not the slot's run and
// must not carry its key, or the receiver would drop it. A replay carries the key of the run that died first.
func IdempotencyKey(trigger Trigger, run, job uuid.UUID, scheduledFor time.Time) string {
	ofSlot := trigger == TriggerSchedule || trigger == TriggerCatchup ||
		trigger == TriggerBackfill && run == SlotRunID(job, scheduledFor)
	if !ofSlot {
		return run.String()
	}
	return job.String() + ":" + strconv.FormatInt(scheduledFor.Unix(), 10)
}

// Expired reports whether no attempt of a may start at the given time. expires_after is for slots that are useless when
// late. It does not apply to a replay: somebody asked for it knowing its age, and its run has left the dead-letter
// list, so nothing would be left of a replay that expires. It does not apply to a backfill either, for the same reason.
func (a Assignment) Expired(at time.Time) bool {
	return a.Expires() && a.Job.expired(a.DueAt, at)
}

// Expires reports whether the run is useless after a time.
func (a Assignment) Expires() bool {
	return a.Trigger != TriggerReplay && a.Trigger != TriggerBackfill && !a.Job.ExpiresAfter.IsZero()
}

// TurnsLate reports whether a run whose first request goes out now is late, whatever it waited for. Replays and
// backfills never are: somebody asked for them long after the slot was due. Notices never are either: they are about
// another run.
func (a Assignment) TurnsLate(now time.Time) bool {
	switch a.Trigger {
	case TriggerReplay, TriggerBackfill, TriggerNotify:
		return false
	case TriggerSchedule, TriggerCatchup, TriggerManual:
	}
	return !a.Late && a.Attempt == 1 && now.Sub(a.DueAt) > a.Job.Missed.Tolerance.Value()
}
