package freeze_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/freeze"
	"punctual/store/history"
	"punctual/store/pg"
)

func TestNothingIsClaimedWhileTheDeploymentIsFrozen(t *testing.T) {
	c := NewReplica(t)
	job, slot := c.DueNow("slot")
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 h' WHERE job_id = $1`, job.ID)
	c.Many(3, "older", time.Minute)
	c.Create("manual", Never)
	c.Trigger("manual")
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Command, Name: "alice"})
	first, err := c.Freezes.Freeze(ctx, freeze.Deployment, "the warehouse burns")
	Must(t, err)
	if f := first.Deployment; f == nil || f.By != "command alice" || f.Note != "the warehouse burns" ||
		f.Reason != scheduler.FrozenAsked || first.InFlight != 0 {
		t.Errorf("%+v %+v", first, first.Deployment)
	}
	if again := c.Freeze(freeze.Deployment, "other"); *again.Deployment != *first.Deployment {
		t.Errorf("a second freeze made %+v of %+v", again.Deployment, first.Deployment)
	}
	if pulse := c.Renewed(); pulse.Frozen == nil || *pulse.Frozen != *first.Deployment {
		t.Errorf("the heartbeat tells %+v", pulse.Frozen)
	}
	for what, b := range map[string]domain.Batch{
		"slots": c.Claim(100, false), "backlog": c.Claim(100, true), "ready": c.ClaimReady(100),
	} {
		if len(b.Runs) != 0 || b.Settled != 0 || len(b.Full) != 0 || !b.Halted {
			t.Errorf("%s: %+v", what, b)
		}
	}
	if e := c.Explained("slot", slot); e.Outcome != history.OutcomeWaiting ||
		!strings.Contains(e.Text, "the deployment has been frozen since") || !strings.Contains(e.Text, "the warehouse burns") {
		t.Errorf("%s: %s", e.Outcome, e.Text)
	}
	c.WantCount(5, "jobs are frozen by frozen_since",
		`SELECT count(*) FROM punctual.schedules WHERE punctual.frozen_since(tenant) IS NOT NULL`)

	if s := c.Unfreeze(freeze.Deployment); s.Deployment != nil {
		t.Errorf("%+v", s.Deployment)
	}
	if pulse := c.Renewed(); pulse.Frozen != nil {
		t.Errorf("the heartbeat tells %+v", pulse.Frozen)
	}
	if run := c.One(c.Claim(100, false)); run.Job.ID != job.ID {
		t.Errorf("claimed job %s", run.Job.ID)
	}
	if n := len(c.Claim(100, true).Runs); n != 3 {
		t.Errorf("%d of the backlog, want 3", n)
	}
	c.One(c.ClaimReady(100))
	const actions = `SELECT string_agg(action || ' ' || coalesce(actor, '-') || ' ' || coalesce(after ->> 'note', '-'),
			', ' ORDER BY id)
		FROM punctual.audit_log
		WHERE tenant = -1`
	if got := c.Text(actions); got != "deployment.freeze alice the warehouse burns, deployment.unfreeze - -" {
		t.Errorf("the audit log has %s", got)
	}
}

func TestAFrozenTenantLeavesOthersAlone(t *testing.T) {
	c := NewReplica(t)
	c.DueNow("mine", Rarely)
	c.Create("manual", Never)
	c.Trigger("manual")
	other := c.Theirs("other")
	state := c.Freeze(c.Tenant, "")
	if state.Deployment != nil || state.Tenant == nil || state.Tenant.By != "system" {
		t.Errorf("%+v", state)
	}
	// This replica has not heard of the freeze yet: its claims notice it by themselves.
	b := c.Claim(100, false)
	if run := c.One(b); run.Job.Tenant != other || b.Halted || !slices.Equal(b.Frozen, []int32{c.Tenant}) {
		t.Errorf("claimed of tenant %d; %+v", run.Job.Tenant, b)
	}
	if b := c.ClaimReady(100); len(b.Runs) != 0 || !slices.Equal(b.Frozen, []int32{c.Tenant}) {
		t.Errorf("%+v", b)
	}
	pulse := c.Renewed()
	if len(pulse.Limits) != 1 ||
		pulse.Limits[0] != (admit.TenantLimits{Tenant: c.Tenant, Name: "default", Frozen: true}) || pulse.Frozen != nil {
		t.Errorf("the heartbeat tells %+v", pulse.Limits)
	}
	if state := c.Unfreeze(c.Tenant); state.Tenant != nil {
		t.Errorf("%+v", state)
	}
	c.One(c.Claim(100, false))
	c.One(c.ClaimReady(100))
	if got := c.Text(`SELECT string_agg(action || ' ' || name, ', ' ORDER BY id)
		FROM punctual.audit_log
		WHERE tenant = $1 AND action LIKE '%freeze'`, c.Tenant); got != "tenant.freeze default, tenant.unfreeze default" {
		t.Errorf("the audit log has %s", got)
	}
	if _, err := c.Freezes.Freeze(t.Context(), 4711, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown tenant: %v", err)
	}
}

// A claim that took its locks before the freeze may complete, and the freeze waits for it. So the runs in flight when
// the freeze answers are all there will be.
func TestAFreezeWaitsForTheClaimsUnderWay(t *testing.T) {
	c := NewReplica(t)
	c.DueNow("slot")
	c.Before("INSERT", "claims", `WHILE NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.001); END LOOP;`)
	letGo := c.Locks(`SELECT pg_advisory_xact_lock(1)`)
	claimed := make(chan domain.Batch, 1)
	go func() {
		b, err := c.Claims.ClaimDue(context.WithoutCancel(t.Context()), c.Asks(100, false))
		if err != nil {
			t.Error(err)
		}
		claimed <- b
	}()
	c.Until("a claim that has found its tenants not frozen", `
		SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	answered := make(chan freeze.State, 1)
	go func() {
		state, err := c.Freezes.Freeze(context.WithoutCancel(t.Context()), freeze.Deployment, "")
		if err != nil {
			t.Error(err)
		}
		answered <- state
	}()
	c.Until("the freeze to be committed", `SELECT frozen_at IS NOT NULL FROM punctual.deployment`)
	if b := c.Claim(100, false); !b.Halted {
		t.Error("a claim that began after the freeze was let through")
	}
	// While the claim is under way, only the end of the waiter's context ends the wait.
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Freezes.Freeze(impatient, freeze.Deployment, ""); impatient.Err() == nil {
		t.Errorf("a claim under way was not waited for: %v", err)
	}
	letGo()
	if b := <-claimed; len(b.Runs) != 1 {
		t.Errorf("the claim under way has claimed %d runs", len(b.Runs))
	}
	if state := <-answered; state.InFlight != 1 {
		t.Errorf("%d in flight, want the one of that claim", state.InFlight)
	}
	if _, err := c.Freezes.Freeze(t.Context(), freeze.Deployment, ""); err != nil {
		t.Error(err)
	}
}

// While frozen, no replica checks the deadlines of asynchronous runs. The API still takes their calls.
func TestDeadlinesWaitWhileFrozen(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		t.Run(map[bool]string{true: "the deployment", false: "the tenant"}[whole], func(t *testing.T) {
			c := NewReplica(t)
			run := c.Accepted("works")
			scope := c.Tenant
			if whole {
				scope = freeze.Deployment
			}
			c.Freeze(scope, "")
			if c.Overdue(run.RunID) {
				t.Error("frozen, it is lost")
			}
			if status := c.Text(`SELECT status FROM punctual.runs WHERE id = $1`, run.RunID); status != "running" {
				t.Errorf("frozen, the run is %s", status)
			}
			c.MustBeat(run, "") // the target's heartbeat counts, and renews its deadline
			c.Unfreeze(scope)
			c.Listen()
			if status := c.Text(`SELECT status FROM punctual.runs WHERE id = $1`, run.RunID); status != "running" {
				t.Errorf("heard of while it was frozen, the run is %s", status)
			}
			if !c.Overdue(run.RunID) {
				t.Error("unfrozen, it is not lost")
			}
		})
	}
}

// What the tick loop asks each second tells of freezes, so that no replica waits for a heartbeat.
func TestALookTellsWhatIsFrozen(t *testing.T) {
	c := NewReplica(t)
	want := func(halted bool, frozen ...int32) {
		t.Helper()
		u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{{c.Queue}, {c.Queue}, {c.Queue}, {c.Queue}}, false)
		if err != nil || u.Halted != halted || !slices.Equal(u.Frozen, frozen) {
			t.Errorf("halted: %t, frozen: %d (%v), want %t and %d", u.Halted, u.Frozen, err, halted, frozen)
		}
	}
	want(false)
	c.Freeze(c.Tenant, "")
	want(false, c.Tenant)
	c.Freeze(freeze.Deployment, "")
	want(true, c.Tenant)
	c.Unfreeze(c.Tenant)
	c.Exec(`UPDATE punctual.deployment SET frozen_at = NULL, frozen_by = NULL, frozen_note = NULL, frozen_reason = NULL`)
	want(false)
	c.Exec(`UPDATE punctual.deployment SET database_name = 'another'`)
	want(true)
}

// The query for freezes scans no table.
func TestTheLookAtFreezesIsByIndex(t *testing.T) {
	c := ReplicaOnClone(t)
	c.Exec(`INSERT INTO punctual.tenants (name, max_concurrent_runs) SELECT 't' || i, 10 FROM generate_series(1, 20000) i`)
	c.Exec(`ANALYZE punctual.tenants`)
	err := pgx.BeginFunc(t.Context(), c.DB.Callers, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), pg.ByIndex); err != nil {
			return err
		}
		lines, err := pg.All(t.Context(), tx, pgx.RowTo[string], `EXPLAIN `+freeze.SelectFrozen)
		if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "tenants_frozen") {
			t.Errorf("the plan:\n%s", plan)
		}
		return err
	})
	Must(t, err)
}

func TestVerifyKnowsWhatIsFrozen(t *testing.T) {
	c := NewReplica(t)
	c.PartitionsBack(2)
	job := c.Create("job", Every(time.Second))
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 h' WHERE job_id = $1`, job.ID)
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = date_trunc('second', now()) - interval '10 min',
			next_run_at = date_trunc('second', now()) - interval '10 min'
		WHERE job_id = $1`, job.ID)
	overdue := func() bool {
		found, _ := c.Verified()
		return slices.ContainsFunc(found, func(v string) bool {
			return strings.Contains(v, string(history.ViolationOverdue))
		})
	}
	if !overdue() {
		t.Fatal("nothing is overdue")
	}
	c.Freeze(c.Tenant, "")
	if _, summary := c.Verified(); overdue() || summary.Frozen < 500 || len(summary.Notes) != 1 ||
		!strings.Contains(summary.Notes[0], "default is frozen") {
		t.Errorf("%+v", summary)
	}
	c.Freeze(freeze.Deployment, "moving")
	if _, summary := c.Verified(); overdue() || len(summary.Notes) != 2 || !strings.Contains(summary.Notes[0], "moving") {
		t.Errorf("%+v", summary)
	}
	c.Unfreeze(c.Tenant)
	c.Unfreeze(freeze.Deployment)
	if !overdue() {
		t.Error("unfrozen, nothing is overdue")
	}
}

func TestTheMetricTellsWhatIsFrozen(t *testing.T) {
	c := NewReplica(t)
	c.NewTenant("other")
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, `"" 0`},
		{func() { c.Freeze(c.Tenant, "") }, `"" 0, "default" 1`},
		{func() { c.Freeze(freeze.Deployment, "") }, `"" 1, "default" 1`},
		{func() { c.Unfreeze(freeze.Deployment); c.Unfreeze(c.Tenant) }, `"" 0`},
	} {
		step.do()
		if got := c.Metric("punctual_frozen"); got != step.want {
			t.Errorf("punctual_frozen is %s, want %s", got, step.want)
		}
	}
}
