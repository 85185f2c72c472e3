package scheduler

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// IdempotencyKey returns the Idempotency-Key of a run's requests: of a slot's run the job's id and the
// slot in unix seconds, else the run's id. A backfill may repeat a slot that has a run: what it makes then is
// not the slot's run, and must not pass for it, or the receiver would drop it. A replay carries that of the
// run that died first.
func IdempotencyKey(trigger Trigger, run, job uuid.UUID, scheduledFor time.Time) string {
	ofSlot := trigger == TriggerSchedule || trigger == TriggerCatchup || trigger == TriggerBackfill && run == SlotRunID(job, scheduledFor)
	if !ofSlot {
		return run.String()
	}
	return job.String() + ":" + strconv.FormatInt(scheduledFor.Unix(), 10)
}

// Expired reports whether no attempt of a may start at the given time. expires_after is about slots that
// nobody needs any more when they are late. A replay was asked for by somebody who knows that, and has
// left the dead-letter list: were it to expire, nothing would be left of it. So was a backfill.
func (a Assignment) Expired(at time.Time) bool {
	return a.expires() && a.Job.expired(a.DueAt, at)
}

func (a Assignment) expires() bool {
	return a.Trigger != TriggerReplay && a.Trigger != TriggerBackfill && !a.Job.ExpiresAfter.IsZero()
}
