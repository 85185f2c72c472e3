package store

import (
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// hasGate reports whether a run holds the gate of its job.
func (c crud) hasGate(job, run uuid.UUID) bool {
	c.t.Helper()
	return c.count(`SELECT count(*) FROM punctual.exclusive WHERE job_id = $1 AND active_run = $2`, job, run) == 1
}

// A job whose gate was lost, in a restore or by hand, gets a new gate and does not stay due for ever.
func TestALostGateIsMended(t *testing.T) {
	c := newClaimer(t)
	c.dueNow("slots", forbid)
	c.create("by-hand", forbid, never)
	c.trigger("by-hand")
	c.exec(`DELETE FROM punctual.exclusive`)
	if b := c.claim(10, false); len(b.Runs) != 0 {
		t.Error("a slot was claimed without a gate")
	}
	if a := c.one(c.claim(10, false)); a.Job.Name != "slots" {
		t.Errorf("claimed %s", a.Job.Name)
	}
	c.claimReady(10)
	if a := c.again(); a.Job.Name != "by-hand" {
		t.Errorf("claimed %s", a.Job.Name)
	}
}

// A run may wait behind runs that started before their job had a gate. It starts when the last of them has ended. Those
// earlier runs free no gate themselves, because they started without one.
func TestWhatWaitsBehindRunsOfBeforeStartsWhenTheyHaveEnded(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", patient)
	first, second := c.one(c.slot(job.ID, 9)), c.one(c.slot(job.ID, 8))
	c.edit("job", overlapping(domain.PolicyWait))
	if !c.wants("gates") {
		t.Error("no replica is told that runs of before hold a gate")
	}
	c.slot(job.ID, 7)
	look := func(want int) {
		t.Helper()
		if _, err := c.Claims.FreeGates(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := c.claimReady(10); len(b.Runs) != want {
			t.Errorf("%d runs start, want %d", len(b.Runs), want)
		}
	}
	look(0)
	c.finish(succeeded(second))
	look(0)
	c.wantCount(1, "the gate does not name the one that is left",
		`SELECT count(*) FROM punctual.exclusive WHERE active_run = $1 AND earlier_runs = ARRAY[$1]`, first.RunID)
	c.finish(succeeded(first))
	look(1)
	if c.wants("gates") || c.count(`SELECT count(earlier_runs) FROM punctual.exclusive`) != 0 {
		t.Error("the gate still names runs of before")
	}
}

// Freeing a gate makes the run that waits at it due. If that did not happen, CheckGates finds the run.
func TestWhatWaitsAtAFreeGateIsFound(t *testing.T) {
	c := newClaimer(t)
	for _, name := range []string{"free", "taken"} {
		c.create(name, never, overlapping(domain.PolicyWait))
		c.trigger(name)
		c.claimReady(10)
		c.trigger(name)
	}
	c.claimReady(10)
	c.exec(`UPDATE punctual.runs r SET status = 'dead', finished_at = now()
		FROM punctual.jobs j
		WHERE j.id = r.job_id AND j.name = 'free' AND r.status = 'running'`)
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Fatal("it did not wait")
	}
	must(t, c.Claims.CheckGates(t.Context()))
	if a := c.one(c.claimReady(10)); a.Job.Name != "free" {
		t.Errorf("a run of %s starts", a.Job.Name)
	}
}

// A run that a replica is starting while its job gets a gate holds that gate.
func TestARunThatStartsWhileItsJobGetsAGateHasIt(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never)
	run := c.trigger("job")
	claim := c.transaction()
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
		c.edit("job", forbid)
	}()
	c.waiting(1)
	do(`DELETE FROM punctual.ready WHERE run_id = $1`, run.ID)
	do(`UPDATE punctual.runs
		SET status = 'running', attempt = 1, fence = 1, claimed_at = now(), started_at = now()
		WHERE id = $1`, run.ID)
	do(`INSERT INTO punctual.claims (id, replica, run_ids) VALUES (gen_random_uuid(), $1, ARRAY[$2::uuid])`,
		c.replica, run.ID)
	must(t, claim.Commit(t.Context()))
	<-edited
	if !c.hasGate(job.ID, run.ID) {
		t.Error("the run does not have the gate")
	}
}

// To enter a run takes no gate, so it waits for nobody who has locked the gate.
func TestATriggerWaitsForNoGate(t *testing.T) {
	c := newClaimer(t)
	for _, policy := range []domain.ConcurrencyPolicy{domain.PolicyForbid, domain.PolicyWait, domain.PolicyReplace} {
		job := c.create(string(policy), never, overlapping(policy))
		free := c.stranger(`exclusive WHERE job_id = $1`, job.ID)
		run, err := c.For(c.tenant).TriggerJob(bounded(t), string(policy), jobs.TriggerRequest{})
		must(t, err)
		c.wantCount(0, "the run has the gate", `SELECT count(*) FROM punctual.exclusive WHERE active_run = $1`, run.ID)
		free()
		if a := c.one(c.claimReady(10)); a.RunID != run.ID || !c.hasGate(job.ID, run.ID) {
			t.Errorf("%s: the claim of the run does not take the gate", policy)
		}
	}
}
