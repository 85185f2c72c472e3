package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/notices"
)

// retried is the state of a run whose first attempt has failed, and which waits for its next.
const retried = "retrying http_5xx 503 attempt 1 next in 60 ready in 60 attempts: 1 failed http_5xx"

// The request in flight may end in any way, and it is the last request of its run.
func TestADeletedJobMakesNoFurtherAttempt(t *testing.T) {
	held := func(a domain.Assignment) domain.Outcome { return hold(a, down, a.Lease.ClaimedAt, time.Minute) }
	for _, c := range []struct {
		name string
		end  ending
		want string
	}{
		{
			"a failure that would be tried again", failed,
			"cancelled job_deleted 503 attempt 1 finished attempts: 1 failed http_5xx",
		},
		{"an interruption", interrupted, "cancelled job_deleted attempt 0 finished attempts: 1 interrupted"},
		{"given back", givenBack, "cancelled job_deleted attempt 0 finished"},
		{"held back", held, "cancelled job_deleted attempt 0 finished"},
		{"a success", succeeded, "succeeded 200 attempt 1 finished"},
		{
			"the last failure", buried,
			"dead http_5xx 503 attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			a, other := r.manual("job", forbid), r.manual("other")
			r.deleteJob("job")
			if n := r.finish(c.end(a), failed(other)); n != 0 {
				t.Errorf("%d superseded", n)
			}
			r.wantState(a.RunID, c.want)
			if r.ready(a.Job.ID) != 0 {
				t.Error("it waits for another attempt")
			}
			if r.hasGate(a.Job.ID, a.RunID) {
				t.Error("it still holds its gate")
			}
			r.wantState(other.RunID, retried)
		})
	}
	t.Run("its replica is lost", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("job")
		c.deleteJob("job")
		c.exec(`DELETE FROM punctual.replicas`)
		if n := c.recover(); n != 1 {
			t.Fatal(n)
		}
		c.wantState(a.RunID, "cancelled job_deleted attempt 1 finished attempts: 1 lost lost")
	})
}

// The outcome of an attempt is written just before its job is deleted and committed just after. It leaves a run in
// ready that the delete did not see.
func TestARetryThatCrossesTheDeleteOfItsJobIsNotSent(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job")
	tx := c.transaction()
	var b pgx.Batch
	claim.QueueFinish(&b, []domain.Outcome{failed(a)}, []uuid.UUID{a.Lease.ID}, claim.Earlier{}, claim.AnyDay,
		&notices.Following{})
	must(t, tx.SendBatch(t.Context(), &b).Close())
	c.deleteJob("job")
	must(t, tx.Commit(t.Context()))
	c.wantState(a.RunID, retried)
	c.exec(`UPDATE punctual.ready SET due_at = now()`)
	batch := c.claimReady(10)
	if len(batch.Runs) != 0 || batch.Settled != 1 {
		t.Errorf("%d attempts are made of a job that was deleted; %d runs settled", len(batch.Runs), batch.Settled)
	}
	c.wantState(a.RunID, "cancelled job_deleted 503 attempt 1 finished attempts: 1 failed http_5xx")
	c.nothingLeft()
}

// A failure that the target of an asynchronous run reports ends the run in the same way.
func TestADeletedJobsLongWorkIsNotBegunAgain(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("job")
	c.deleteJob("job")
	c.wantState(a.RunID, "running 202 attempt 1 ready in 60") // it may still complete
	if _, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "early", true); err != nil {
		t.Fatal(err)
	}
	c.wantState(a.RunID, "cancelled job_deleted attempt 1 finished attempts: 1 failed failed")
	c.nothingLeft()

	silent := c.accepted("another")
	c.deleteJob("another")
	if !c.overdue(silent.RunID) {
		t.Error("its attempt goes on")
	}
	c.wantState(silent.RunID, "cancelled job_deleted attempt 1 finished attempts: 1 lost silent")
	c.nothingLeft()
}

func (c crud) deleteJob(ref string) {
	c.t.Helper()
	must(c.t, c.Jobs.DeleteJob(c.t.Context(), c.tenant, ref, nil, false))
}
