package letters_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/letters"
)

// unranWeek makes a job that allows overlap and has no run of its first three slots, and asks for a backfill of these.
func unranWeek(c Replica, options ...Option) (job uuid.UUID, slots []time.Time, o letters.Operation) {
	c.T.Helper()
	job, slots = c.Lived("a", options...)
	c.Exec(`DELETE FROM punctual.runs WHERE job_id = $1 AND scheduled_for < $2`, job, slots[3])
	return job, slots, c.Backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: slots[3], OneAtATime: true})
}

func TestABackfillOneAtATimeWaitsForTheEndOfItsPreviousRun(t *testing.T) {
	c := NewReplica(t)
	job, slots, o := unranWeek(c)
	waits := func(want uuid.UUID, when string) {
		t.Helper()
		c.NextBatch()
		c.NextBatch()
		got, err := c.Letters.GetOperation(t.Context(), c.Tenant, o.ID)
		Must(t, err)
		if got.WaitingForRun == nil || *got.WaitingForRun != want {
			t.Errorf("%s, it waits for %v, want %s", when, got.WaitingForRun, want)
		}
	}
	for i := range 3 {
		id := domain.SlotRunID(job, slots[i])
		if i < 2 {
			waits(id, "while the run waits in ready")
		} else {
			c.NextBatch()
		}
		if n := c.Backfilled(job); n != i+1 {
			t.Fatalf("%d runs were made, want %d", n, i+1)
		}
		active := c.One(c.ClaimReady(100))
		if active.RunID != id {
			t.Fatalf("claimed %s, want %s of %s", active.RunID, id, slots[i])
		}
		if i > 0 {
			c.FinishAll([]domain.Assignment{active})
			continue
		}
		waits(id, "while the run is sent")
		c.Finish(Failed(active))
		waits(id, "while the run is to be retried")
		c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, id)
		active = c.One(c.ClaimReady(100))
		waits(id, "while its retry is sent")
		c.Finish(Buried(active)) // dead is an end
	}
	c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
}

// Two people ask for slots of the same job: still one run at a time. Replicas that work side by side make one run, too.
func TestTwoBackfillsOfAJobGoOneAtATimeTogether(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a")
	again := letters.BackfillRequest{Job: "a", From: slots[0], To: slots[4], OneAtATime: true, Rerun: true}
	first := c.Backfill(again)
	c.Backfill(again)
	for n := range 8 {
		c.Exec(`UPDATE punctual.operations SET next_at = now() WHERE state = 'running'`)
		ended := make(chan error)
		for range 4 {
			go func() {
				_, _, err := c.Letters.Operate(t.Context())
				ended <- err
			}()
		}
		for range 4 {
			Must(t, <-ended)
		}
		c.NextBatch() // the others may have passed over the job
		c.NextBatch()
		if made, ready := c.Backfilled(job), c.Ready(job); made != n+1 || ready != 1 {
			t.Fatalf("%d runs were made and %d wait, want %d and 1", made, ready, n+1)
		}
		if n < 7 {
			c.FinishAll(c.ClaimReady(100).Runs)
		}
	}
	c.WantProgress(first.ID, letters.OperationDone, 4, 4, 0)
	c.Backfill(again) // the last run of one that is done has not ended
	c.NextBatch()
	if n := c.Ready(job); n != 1 {
		t.Errorf("%d runs are under way beside the last one of a backfill that is done", n)
	}
}

func TestExplainSaysThatASlotWaitsForItsBackfill(t *testing.T) {
	c := NewReplica(t)
	job, slots, o := unranWeek(c)
	c.SkippedAt(job, slots[0], slots[2], 3)
	c.NextBatch()
	ex := c.Explained(job.String(), slots[2])
	for _, want := range []string{
		"missed", fmt.Sprintf("Backfill %s makes its run", o.ID),
		fmt.Sprintf("when run %s of the slot", domain.SlotRunID(job, slots[0])),
	} {
		if !strings.Contains(ex.Text, want) {
			t.Errorf("%q does not say %q", ex.Text, want)
		}
	}
	if ex := c.Explained(job.String(), slots[3]); strings.Contains(ex.Text, "ackfill") {
		t.Errorf("a slot outside it: %q", ex.Text)
	}
}
