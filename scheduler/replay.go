package scheduler

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// IdempotencyKey returns the Idempotency-Key of a run's requests: of a slot's run the job's id and the
// slot in unix seconds, else the run's id. A replay carries that of the run that died first.
func IdempotencyKey(trigger Trigger, run, job uuid.UUID, scheduledFor time.Time) string {
	switch trigger {
	case TriggerSchedule, TriggerCatchup:
		return job.String() + ":" + strconv.FormatInt(scheduledFor.Unix(), 10)
	}
	return run.String()
}

// expired reports whether no attempt of a may start at the given time. expires_after is about slots that
// nobody needs any more when they are late; a replay was asked for by somebody who knows that, and has
// left the dead-letter list: were it to expire, nothing would be left of it.
func (a Assignment) expired(at time.Time) bool {
	return a.Trigger != TriggerReplay && a.Job.expired(a.DueAt, at)
}
