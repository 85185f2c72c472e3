package history_test

import (
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
	"punctual/store/pg"
)

// A one-shot whose instant is in the past keeps its nominal time. It fires at once, by the job's policies for late
// slots, and explain and the other answers about that instant say so.
func TestAnInstantOfThePastKeepsItsNominalTime(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		ago     time.Duration
		policy  Option
		trigger domain.Trigger
		late    bool
		says    string // the text of explain after the claim
		outcome history.Outcome
	}{
		{
			name: "within the tolerance it is not late", ago: 20 * time.Second, trigger: domain.TriggerSchedule,
			says: "has a run under version 1", outcome: history.OutcomeInProgress,
		},
		{
			name: "beyond it it is", ago: 2 * time.Hour, trigger: domain.TriggerCatchup, late: true,
			says: "has a run under version 1", outcome: history.OutcomeInProgress,
		},
		{
			name: "a day of which there is no partition is made", ago: 20 * 24 * time.Hour, trigger: domain.TriggerCatchup,
			late: true, says: "has a run under version 1", outcome: history.OutcomeInProgress,
		},
		{
			name: "a policy that skips what is missed skips it", ago: 2 * time.Hour, says: "was missed", outcome: history.OutcomeSkipped,
			policy: Missed(jobspec.MissedSkip),
		},
		{
			name: "so does a window that it lies beyond", ago: 2 * time.Hour, says: "was missed", outcome: history.OutcomeSkipped,
			policy: Window(time.Hour),
		},
		{
			name: "it expires by its nominal time", ago: 2 * time.Hour, says: "expires_after", outcome: history.OutcomeSkipped,
			policy: Expiring(time.Hour),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			c.PartitionsBack(1)
			nominal := time.Now().Add(-test.ago).UTC().Truncate(time.Millisecond)
			policy := func(*jobspec.Definition) {}
			if test.policy != nil {
				policy = test.policy
			}
			job := c.Create("j", At(nominal), policy)
			if !job.NextScheduledFor.Equal(nominal) || !job.NextRunAt.Equal(nominal) || !c.Woken() {
				t.Fatalf("next slot %v, due %v, want %s, and the loop woken", job.NextScheduledFor, job.NextRunAt, nominal)
			}
			if e := c.Explained("j", nominal); e.Outcome != history.OutcomeWaiting || e.Slot == nil || *e.Version != 1 {
				t.Errorf("before it is claimed: %s: %s", e.Outcome, e.Text)
			}
			batch := c.Claim(10, true)
			if test.trigger == "" {
				if len(batch.Runs) != 0 {
					t.Errorf("%d runs", len(batch.Runs))
				}
			} else if run := c.One(batch); run.RunID != domain.SlotRunID(job.ID, nominal) ||
				!run.ScheduledFor.Equal(nominal) || run.Late != test.late || run.Trigger != test.trigger {
				t.Errorf("%+v", run)
			}
			if e := c.Explained("j", nominal); e.Outcome != test.outcome || !strings.Contains(e.Text, test.says) ||
				e.Slot == nil || !e.Slot.Equal(nominal) || *e.Version != 1 {
				t.Errorf("%s: %s (%+v)", e.Outcome, e.Text, e)
			}
			if e := c.Explained("j", nominal.Add(time.Hour*24*365)); e.PreviousSlot == nil || !e.PreviousSlot.Equal(nominal) {
				t.Errorf("the slot before is %v", e.PreviousSlot)
			}
			if found, _ := c.Verified(func(o *history.VerifyOptions) { o.From = nominal.Add(-time.Hour) }); len(found) != 0 {
				t.Errorf("verify: %q", found)
			}
			if c.Get("j").State != domain.JobCompleted {
				t.Error("it has not completed")
			}
		})
	}
}

func TestExplainSaysThatAnInstantPassedBeforeItsJobWasWritten(t *testing.T) {
	c := NewReplica(t)
	c.PartitionsBack(1)
	nominal := time.Now().Add(-2 * time.Hour).UTC().Truncate(time.Second)
	job := c.Create("j", At(nominal))
	run := c.One(c.Claim(1, true))
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, run.RunID)
	if e := c.Explained("j", nominal); e.Outcome != history.OutcomeSucceeded ||
		!strings.Contains(e.Text, "ran late, as the job was written only at "+pg.Stamp(job.CreatedAt)) {
		t.Errorf("%s", e.Text)
	}
}

// The slot has had its one run: writing the same instant again, in any way, makes no other run.
func TestAnInstantThatComesBackDoesNotFireTwice(t *testing.T) {
	c := NewReplica(t)
	c.PartitionsBack(1)
	nominal := time.Now().Add(-2 * time.Hour).UTC().Truncate(time.Second)
	c.Create("j", At(nominal))
	c.One(c.Claim(1, true))
	c.Put(Definition("j", At(nominal.Add(time.Minute))))
	c.One(c.Claim(1, true))
	if again, _ := c.Put(Definition("j", At(nominal))); again.State != domain.JobActive {
		t.Fatalf("it is %s", again.State)
	}
	if batch := c.Claim(1, true); len(batch.Runs) != 0 || batch.Settled != 1 {
		t.Errorf("%d runs, %d settled", len(batch.Runs), batch.Settled)
	}
	if found, _ := c.Verified(); len(found) != 0 {
		t.Errorf("verify: %q", found)
	}
}
