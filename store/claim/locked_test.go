package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/admit"
	"punctual/scheduler/jobspec"
)

// A row of one run is locked. All other outcomes are written.
//
//prove:database
func TestALockedRowHoldsUpTheOutcomeOfItsOwnRunOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rows   string // the rows to lock; $1 is the job
		wait   bool   // another run waits at the gate
		failed bool   // the attempt failed
		twice  bool   // so did the attempt before
		all    bool   // the outcome is written all the same
	}{
		{rows: `exclusive WHERE job_id = $1`},
		{rows: `runs WHERE job_id = $1 AND status = 'running'`},
		{rows: `run_data WHERE run_id IN (SELECT id FROM punctual.runs WHERE job_id = $1)`},
		{
			rows: `claims WHERE run_ids && ARRAY(SELECT id FROM punctual.runs WHERE job_id = $1 AND status = 'running')`,
			all:  true,
		},
		{rows: `ready WHERE job_id = $1`, wait: true},
		{rows: `jobs WHERE id = $1`, failed: true},
		{rows: `notified WHERE job_id = $1`, failed: true, twice: true},
		{rows: `schedules WHERE job_id <> $1`, all: true},
		{rows: `tenants WHERE $1::uuid IS NOT NULL`, all: true},
		{rows: `queues WHERE $1::uuid IS NOT NULL`, all: true},
		{rows: `deployment WHERE $1::uuid IS NOT NULL`, all: true},
		{rows: `replicas WHERE $1::uuid IS NOT NULL`, all: true},
	} {
		t.Run(test.rows, func(t *testing.T) {
			c := NewReplica(t)
			policy := jobspec.PolicyForbid
			if test.wait {
				policy = jobspec.PolicyWait
			}
			victim := c.Manual("victim", Notify(Hook, jobspec.EventFailing), Overlapping(policy))
			if test.twice {
				c.FinishWhatItCan(Failed(victim))
				victim = c.Again()
			}
			if test.wait {
				c.Trigger("victim")
			}
			other, gated := c.Manual("other"), c.Manual("gated", Forbid)
			c.Create("with-slots", Every(time.Hour))
			outcome := Succeeded(victim)
			outcome.Result = []byte(`{"done": true}`)
			if test.failed {
				outcome = Failed(victim)
			}
			free := c.Stranger(test.rows, victim.Job.ID)
			runs, leases := c.FinishWhatItCan(outcome, Succeeded(other), Failed(gated))
			wantRuns, wantLeases := []uuid.UUID{victim.RunID}, []uuid.UUID{victim.Lease.ID}
			switch {
			case test.all && len(leases) == 1:
				wantRuns = nil
			case test.all:
				wantRuns, wantLeases = nil, nil
			}
			if !slices.Equal(runs, wantRuns) || !slices.Equal(leases, wantLeases) {
				t.Errorf("left are the runs %v and the leases %v, want %v and %v", runs, leases, wantRuns, wantLeases)
			}
			for run, want := range map[uuid.UUID]bool{victim.RunID: len(wantRuns) > 0, other.RunID: false, gated.RunID: false} {
				if is := c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running'`, run) == 1; is != want {
					t.Errorf("run %s of %v still running: %v, want %v", run, victim.RunID, is, want)
				}
			}
			free()
			if len(runs) > 0 {
				runs, leases = c.FinishWhatItCan(outcome)
			} else if len(leases) > 0 {
				_, err := c.Claims.Finish(Bounded(t), nil, leases)
				if err != nil {
					t.Error(err)
				}
				leases = nil
			}
			if len(runs)+len(leases) > 0 {
				t.Errorf("nothing is locked any more, and left are the runs %v and the leases %v", runs, leases)
			}
			c.WantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
		})
	}
}

func TestALockedRowHoldsUpTheTakeoverOfItsOwnRunOnly(t *testing.T) {
	c := NewReplica(t)
	victim, other := c.Manual("victim", Forbid), c.Manual("other")
	c.Exec(`DELETE FROM punctual.replicas`)
	free := c.Stranger(`exclusive WHERE job_id = $1`, victim.Job.ID)
	for _, want := range []int{1, 0} {
		if n, err := c.Replicas.Recover(Bounded(t), nil); n != want || err != nil {
			t.Fatalf("%d runs are taken over, want %d: %v", n, want, err)
		}
	}
	if n := c.Ready(other.Job.ID); n != 1 {
		t.Errorf("%d runs of the other job are ready", n)
	}
	free()
	if n := c.Recover(); n != 1 {
		t.Errorf("%d runs are taken over once nothing is locked", n)
	}
	c.WantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
}

func TestALockedRunHoldsUpNoClaimOfOthers(t *testing.T) {
	c := NewReplica(t)
	c.Create("victim", Never)
	run := c.Trigger("victim")
	free := c.Stranger(`runs WHERE id = $1`, run.ID)
	c.Create("other", Never)
	other := c.Trigger("other")
	batch, err := c.Claims.ClaimReady(Bounded(t), c.Asks(10, false))
	if err != nil || len(batch.Runs) != 1 || batch.Runs[0].RunID != other.ID {
		t.Fatalf("claimed %+v, %v; want the run %s alone", batch.Runs, err, other.ID)
	}
	c.WantCount(1, "the run whose row is locked is not put off",
		`SELECT count(*) FROM punctual.ready WHERE run_id = $1 AND due_at > now() - interval '500 ms'`, run.ID)
	free()
	if got := c.Again(); got.RunID != run.ID {
		t.Errorf("claimed %s", got.RunID)
	}
}

func TestALockedRunThatASlotWouldReplaceHoldsUpThatSlotOnly(t *testing.T) {
	c := NewReplica(t)
	victim, _ := c.DueNow("victim", Replacing)
	active := c.One(c.Claim(10, false))
	c.SlotAgo(victim.ID, 0)
	other, _ := c.DueNow("other", Replacing)
	free := c.Stranger(`runs WHERE id = $1`, active.RunID)
	batch, err := c.Claims.ClaimDue(Bounded(t), c.Asks(10, false))
	if err != nil || len(batch.Runs) != 1 || batch.Runs[0].Job.ID != other.ID {
		t.Fatalf("claimed %+v, %v; want the slot of job %s alone", batch.Runs, err, other.ID)
	}
	free()
	c.Claim(10, false)
	c.WantCount(1, "the active run is not replaced",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND reason = 'replaced'`, active.RunID)
}

func TestALockedTenantDrawsNothingAndOthersDo(t *testing.T) {
	t.Parallel()
	for _, rows := range []string{
		`tenant_usage WHERE tenant = $1`, `allowances WHERE tenant = $1`, `tenants WHERE id = $1`,
	} {
		t.Run(rows, func(t *testing.T) {
			c := NewReplica(t)
			other := c.NewTenant("other")
			c.Exec(`UPDATE punctual.tenants SET max_concurrent_runs = 7`)
			wishes := []admit.Wish{{Tenant: c.Tenant, Slots: 3}, {Tenant: other.ID, Slots: 5}}
			if rows != `tenants WHERE id = $1` { // only a first draw locks the tenant's row, because its new row refers to it
				if got, err := c.Claims.Draw(t.Context(), c.ReplicaID, wishes); err != nil || len(got) != 2 {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			wishes[0].Slots++
			free := c.Stranger(rows, c.Tenant)
			got, err := c.Claims.Draw(Bounded(t), c.ReplicaID, wishes)
			if err != nil || len(got) != 1 || got[0].Tenant != other.ID || got[0].Slots != 5 {
				t.Errorf("drawn %+v, %v; want 5 slots of tenant %d alone", got, err, other.ID)
			}
			free()
			if got, err := c.Claims.Draw(t.Context(), c.ReplicaID, wishes); err != nil || len(got) != 2 || got[0].Slots != 4 {
				t.Errorf("drawn %+v, %v once nothing is locked", got, err)
			}
		})
	}
}

// An outcome that is left out, because a row is locked, is reported although its write was made twice.
func TestAnOutcomeLeftOutIsReportedThoughTheWriteIsMadeAgain(t *testing.T) {
	c := NewReplica(t)
	locked, free := c.Manual("locked"), c.Manual("free")
	c.Exec(`CREATE SEQUENCE punctual.tries`)
	c.Before("UPDATE", "runs", `IF NEW.status = 'succeeded' AND nextval('punctual.tries') = 1 THEN
		RAISE EXCEPTION 'idle for too long' USING ERRCODE = '25P03'; END IF;`)
	c.Stranger(`runs WHERE id = $1`, locked.RunID)
	left, _ := c.FinishWhatItCan(Succeeded(locked), Succeeded(free))
	if len(left) != 1 || left[0] != locked.RunID {
		t.Errorf("left out are %v, want %s", left, locked.RunID)
	}
	c.WantCount(1, "the other outcome is not written",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'succeeded'`, free.RunID)
	if c.Count(`SELECT last_value FROM punctual.tries`) < 2 {
		t.Error("the write was made once")
	}
}
