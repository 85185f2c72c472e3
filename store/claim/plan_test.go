package claim_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestASkipRowSaysWhatItStandsFor(t *testing.T) {
	c := NewReplica(t)
	first, blocker := time.Now().UTC().Truncate(time.Hour).AddDate(0, 0, -30), uuid.New() // its day has no partition
	last := first.Add(48 * time.Hour)
	for _, k := range []struct {
		name string
		skip domain.Skip
		want *int
	}{
		{"counted", domain.Skip{Reason: domain.ReasonMissed, First: first, Last: last, Count: 49}, new(49)},
		{"too many to count", domain.Skip{Reason: domain.ReasonPaused, First: first, Last: last}, nil},
		{"an overlap", domain.Skip{
			Reason: domain.ReasonOverlap, First: first, Last: first, Count: 1, BlockedBy: blocker,
		}, new(1)},
	} {
		job := c.Create("job-"+string(k.skip.Reason), Never)
		settles(c, job, domain.Plan{Skips: []domain.Skip{k.skip}})
		runs, _, err := c.Runs.ListRuns(t.Context(), c.Tenant, runs.Filter{JobID: &job.ID})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%s: %d rows, %v", k.name, len(runs), err)
		}
		r := runs[0]
		if r.Status != domain.StatusSkipped || OrEmpty(r.Reason) != k.skip.Reason || r.Attempt != 0 ||
			r.FinishedAt == nil || !r.ScheduledFor.Equal(k.skip.Last) || r.JobVersion != 1 {
			t.Errorf("%s: %+v", k.name, r)
		}
		if r.Skipped == nil || !r.Skipped.First.Equal(k.skip.First) || !r.Skipped.Last.Equal(k.skip.Last) ||
			(r.Skipped.Count == nil) != (k.want == nil) || k.want != nil && *r.Skipped.Count != *k.want {
			t.Errorf("%s: it stands for %+v", k.name, r.Skipped)
		}
		if blocked := k.skip.BlockedBy != uuid.Nil; blocked != (r.BlockedBy != nil) || blocked && *r.BlockedBy != blocker {
			t.Errorf("%s: blocked by %v", k.name, r.BlockedBy)
		}
		// A skipped slot can be backfilled, because the skip does not take the slot's run id.
		if r.ID.Version() != 7 || r.ID == domain.SlotRunID(job.ID, k.skip.Last) {
			t.Errorf("%s: id %s", k.name, r.ID)
		}
	}
}

// settles writes a plan without a claim.
func settles(c Replica, job jobs.Record, plan domain.Plan) {
	c.T.Helper()
	compiled, err := domain.Compile(job.ID, c.Tenant, job.Version, job.Definition, 0)
	Must(c.T, err)
	err = c.DB.Callers.InTx(c.T.Context(), pg.Everybody, func(tx *pg.Tx) error {
		return c.Claims.Settle(c.T.Context(), tx, compiled, c.Queue*4+1, plan, time.Now())
	})
	Must(c.T, err)
}

func TestSettledSlotsWaitInReadyOnce(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never)
	slot := time.Now().UTC().Truncate(time.Second)
	plan := domain.Plan{Runs: []domain.PlannedRun{{
		ScheduledFor: slot, DueAt: slot, Trigger: domain.TriggerCatchup, Late: true,
	}}}
	settles(c, job, plan)
	settles(c, job, plan) // the slot already has its run
	if n := c.Ready(job.ID); n != 1 {
		t.Errorf("%d wait", n)
	}
	a := c.One(c.ClaimReady(10))
	if a.RunID != domain.SlotRunID(job.ID, slot) || a.Trigger != domain.TriggerCatchup || !a.Late ||
		a.Attempt != 1 || !a.ScheduledFor.Equal(slot) {
		t.Errorf("%+v", a)
	}
}

// When a job whose runs must not overlap is edited, its missed slots wait in ready. None is skipped or recorded as
// missed because another run is active or waiting.
func TestAnEditKeepsWhatIsToBeCaughtUp(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Every(time.Hour), Missed(jobspec.MissedFireAll), Overlapping(jobspec.PolicyWait),
		Tolerating(time.Second))
	active, waiting := domain.NewRunID(time.Now()), domain.NewRunID(time.Now())
	for _, id := range []uuid.UUID{active, waiting} {
		c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
			VALUES ($1, $2, now(), now(), $3, 1, $4, 'pending', 'manual')`, id, job.ID, c.Tenant, c.Queue*4+1)
	}
	c.Exec(`UPDATE punctual.exclusive SET active_run = $2, waiting_run = $3 WHERE job_id = $1`, job.ID, active, waiting)
	slot := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	c.SetNext(job.ID, slot)
	c.Edit("job", Every(2*time.Hour))
	if n := c.Count(`SELECT count(*)
		FROM punctual.ready y
		JOIN punctual.runs r ON r.id = y.run_id
		WHERE y.job_id = $1 AND r.trigger = 'catchup'`, job.ID); n < 5 {
		t.Errorf("%d of the missed slots wait to be caught up, want at least 5", n)
	}
	c.WantCount(0, "are recorded as missed",
		`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND status = 'skipped' AND reason = 'missed'`, job.ID)
}

// The clock may be set back between the decision that a slot is due and the writing of its run.
func TestWhatIsMadeOfASlotIsNotMadeBeforeItWasDue(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Rarely)
	compiled, err := c.Definitions.Compile(definitions.Version{Job: job.ID, Version: 1}, c.Tenant, job.Definition)
	Must(t, err)
	due := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	if err := c.DB.Callers.InTx(t.Context(), c.Tenant, func(tx *pg.Tx) error {
		return c.Claims.Settle(t.Context(), tx, compiled, 1, domain.Plan{
			Runs: []domain.PlannedRun{{ScheduledFor: due, DueAt: due, Trigger: domain.TriggerSchedule}},
			Skips: []domain.Skip{{
				Reason: domain.ReasonOverlap, First: due.Add(-time.Second), Last: due.Add(-time.Second), Count: 1,
			}},
		}, due)
	}); err != nil {
		t.Fatal(err)
	}
	c.WantCount(2, "a run and a skip are made when they were due, or after", `SELECT count(*)
		FROM punctual.runs
		WHERE created_at >= due_at AND coalesce(finished_at >= due_at, true)`)
}
