package jobs_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/notices"
)

// retried is the state of a run whose first attempt has failed, and which waits for its next.
const retried = "retrying http_5xx 503 attempt 1 next in 60 ready in 60 attempts: 1 failed http_5xx"

// A job is deleted while its request is in flight. The outcome is written, and nothing more is sent.
//
// The request may end in any way: its replica may die, or its target work on.
//
//prove:claims
func TestADeletedJobMakesNoFurtherAttempt(t *testing.T) {
	t.Parallel()
	held := func(a domain.Assignment) domain.Outcome { return Hold(a, Down, a.Lease.ClaimedAt, time.Minute) }
	for _, c := range []struct {
		name string
		end  Ending
		want string
	}{
		{
			"a failure that would be tried again", Failed,
			"cancelled job_deleted 503 attempt 1 finished attempts: 1 failed http_5xx",
		},
		{"an interruption", Interrupted, "cancelled job_deleted attempt 0 finished attempts: 1 interrupted"},
		{"given back", GivenBack, "cancelled job_deleted attempt 0 finished"},
		{"held back", held, "cancelled job_deleted attempt 0 finished"},
		{"a success", Succeeded, "succeeded 200 attempt 1 finished"},
		{
			"the last failure", Buried,
			"dead http_5xx 503 attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(t)
			a, other := r.Manual("job", Forbid), r.Manual("other")
			r.DeleteJob("job")
			if n := r.Finish(c.end(a), Failed(other)); n != 0 {
				t.Errorf("%d superseded", n)
			}
			r.WantState(a.RunID, c.want)
			if r.Ready(a.Job.ID) != 0 {
				t.Error("it waits for another attempt")
			}
			if r.HasGate(a.Job.ID, a.RunID) {
				t.Error("it still holds its gate")
			}
			r.WantState(other.RunID, retried)
		})
	}
	t.Run("its replica is lost", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("job")
		c.DeleteJob("job")
		c.Exec(`DELETE FROM punctual.replicas`)
		if n := c.Recover(); n != 1 {
			t.Fatal(n)
		}
		c.WantState(a.RunID, "cancelled job_deleted attempt 1 finished attempts: 1 lost lost")
	})
}

// A retry is committed just after its job is deleted. It is not sent.
//
// The outcome of the attempt was written just before. It leaves a run in ready that the delete did not see.
//
//prove:claims
func TestARetryThatCrossesTheDeleteOfItsJobIsNotSent(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job")
	tx := c.Transaction()
	var b pgx.Batch
	claim.QueueFinish(&b, []domain.Outcome{Failed(a)}, []uuid.UUID{a.Lease.ID}, claim.Earlier{}, days.AnyDay,
		&notices.Following{})
	Must(t, tx.SendBatch(t.Context(), &b).Close())
	c.DeleteJob("job")
	Must(t, tx.Commit(t.Context()))
	c.WantState(a.RunID, retried)
	c.Exec(`UPDATE punctual.ready SET due_at = now()`)
	batch := c.ClaimReady(10)
	if len(batch.Runs) != 0 || batch.Settled != 1 {
		t.Errorf("%d attempts are made of a job that was deleted; %d runs settled", len(batch.Runs), batch.Settled)
	}
	c.WantState(a.RunID, "cancelled job_deleted 503 attempt 1 finished attempts: 1 failed http_5xx")
	c.NothingLeft()
}
