package claim_test

import (
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A job whose gate was lost, in a restore or by hand, gets a new gate and does not stay due for ever.
func TestALostGateIsMended(t *testing.T) {
	c := NewReplica(t)
	c.DueNow("slots", Forbid)
	c.Create("by-hand", Forbid, Never)
	c.Trigger("by-hand")
	c.Exec(`DELETE FROM punctual.exclusive`)
	if b := c.Claim(10, false); len(b.Runs) != 0 {
		t.Error("a slot was claimed without a gate")
	}
	if a := c.One(c.Claim(10, false)); a.Job.Name != "slots" {
		t.Errorf("claimed %s", a.Job.Name)
	}
	c.ClaimReady(10)
	if a := c.Again(); a.Job.Name != "by-hand" {
		t.Errorf("claimed %s", a.Job.Name)
	}
}

// A run may wait behind runs that started before their job had a gate. It starts when the last of them has ended. Those
// earlier runs free no gate themselves, because they started without one.
func TestWhatWaitsBehindRunsOfBeforeStartsWhenTheyHaveEnded(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", patient)
	first, second := c.One(slot(c, job.ID, 9)), c.One(slot(c, job.ID, 8))
	c.Edit("job", Overlapping(jobspec.PolicyWait))
	if !c.Wants("gates") {
		t.Error("no replica is told that runs of before hold a gate")
	}
	slot(c, job.ID, 7)
	look := func(want int) {
		t.Helper()
		if _, err := c.Claims.FreeGates(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := c.ClaimReady(10); len(b.Runs) != want {
			t.Errorf("%d runs start, want %d", len(b.Runs), want)
		}
	}
	look(0)
	c.Finish(Succeeded(second))
	look(0)
	c.WantCount(1, "the gate does not name the one that is left",
		`SELECT count(*) FROM punctual.exclusive WHERE active_run = $1 AND earlier_runs = ARRAY[$1]`, first.RunID)
	c.Finish(Succeeded(first))
	look(1)
	if c.Wants("gates") || c.Count(`SELECT count(earlier_runs) FROM punctual.exclusive`) != 0 {
		t.Error("the gate still names runs of before")
	}
}

// Of a workflow that is in flight when its job gets a gate, the steps hold nothing. (Each was a run of before, and the
// next run replaced it beside its workflow.)
func TestStepsInFlightHoldNoGate(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("w", Never, Steps("a", "b"))
	w := c.StartWorkflow("w", "")
	if n := len(c.ClaimSteps()); n != 2 {
		t.Fatalf("%d steps start", n)
	}
	c.Edit("w", Overlapping(jobspec.PolicyReplace))
	c.WantCount(1, "the gate is not the workflow's alone", `
		SELECT count(*) FROM punctual.exclusive
		WHERE job_id = $1 AND active_run = $2 AND earlier_runs = ARRAY[$2::uuid]`, job.ID, w.RunID)
}

// Freeing a gate makes the run that waits at it due. If that did not happen, CheckGates finds the run.
func TestWhatWaitsAtAFreeGateIsFound(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"free", "taken"} {
		c.Create(name, Never, Overlapping(jobspec.PolicyWait))
		c.Trigger(name)
		c.ClaimReady(10)
		c.Trigger(name)
	}
	c.ClaimReady(10)
	c.Exec(`UPDATE punctual.runs r SET status = 'dead', finished_at = now()
		FROM punctual.jobs j
		WHERE j.id = r.job_id AND j.name = 'free' AND r.status = 'running'`)
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Fatal("it did not wait")
	}
	Must(t, c.Claims.CheckGates(t.Context()))
	if a := c.One(c.ClaimReady(10)); a.Job.Name != "free" {
		t.Errorf("a run of %s starts", a.Job.Name)
	}
}

// A run that a replica is starting while its job gets a gate holds that gate.
func TestARunThatStartsWhileItsJobGetsAGateHasIt(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never)
	run := c.Trigger("job")
	claim := c.Transaction()
	edited := make(chan struct{})
	do := func(sql string, args ...any) {
		t.Helper()
		if _, err := claim.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	do(`SELECT FROM punctual.ready WHERE run_id = $1 FOR UPDATE`, run.ID)
	go func() {
		defer close(edited)
		c.Edit("job", Forbid)
	}()
	c.Waiting(1)
	do(`DELETE FROM punctual.ready WHERE run_id = $1`, run.ID)
	do(`UPDATE punctual.runs
		SET status = 'running', attempt = 1, fence = 1, claimed_at = now(), started_at = now()
		WHERE id = $1`, run.ID)
	do(`INSERT INTO punctual.claims (id, replica, run_ids) VALUES (gen_random_uuid(), $1, ARRAY[$2::uuid])`,
		c.ReplicaID, run.ID)
	Must(t, claim.Commit(t.Context()))
	<-edited
	if !c.HasGate(job.ID, run.ID) {
		t.Error("the run does not have the gate")
	}
}

// To enter a run takes no gate, so it waits for nobody who has locked the gate.
func TestATriggerWaitsForNoGate(t *testing.T) {
	c := NewReplica(t)
	for _, policy := range []jobspec.ConcurrencyPolicy{jobspec.PolicyForbid, jobspec.PolicyWait, jobspec.PolicyReplace} {
		job := c.Create(string(policy), Never, Overlapping(policy))
		free := c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
		run, err := c.For(c.Tenant).TriggerJob(Bounded(t), string(policy), jobs.TriggerRequest{})
		Must(t, err)
		c.WantCount(0, "the run has the gate", `SELECT count(*) FROM punctual.exclusive WHERE active_run = $1`, run.ID)
		free()
		if a := c.One(c.ClaimReady(10)); a.RunID != run.ID || !c.HasGate(job.ID, run.ID) {
			t.Errorf("%s: the claim of the run does not take the gate", policy)
		}
	}
}
