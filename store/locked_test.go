package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
)

// connect opens a connection beside those of the store.
func (c crud) connect() *pgx.Conn {
	c.t.Helper()
	conn, err := pgtest.Connect(c.t.Context(), c.Options.DatabaseURL)
	must(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(c.t.Context())) })
	return conn
}

// transaction begins a transaction beside those of the store.
func (c crud) transaction() pgx.Tx {
	c.t.Helper()
	tx, err := c.connect().Begin(c.t.Context())
	must(c.t, err)
	return tx
}

// locks runs a statement, which must find something to lock, in a transaction that ends when free is called.
func (c crud) locks(sql string, args ...any) (free func()) {
	c.t.Helper()
	tx := c.transaction()
	locked, err := tx.Exec(c.t.Context(), sql, args...)
	if err != nil || locked.Select() && locked.RowsAffected() == 0 {
		c.t.Fatalf("%s: %s, %v", sql, locked, err)
	}
	return func() {
		must(c.t, tx.Rollback(c.t.Context()))
	}
}

// stranger locks rows until free is called, like a person who locks them in psql and then goes for lunch.
func (c crud) stranger(rows string, args ...any) (free func()) {
	c.t.Helper()
	return c.locks(`SELECT FROM punctual.`+rows+` FOR UPDATE`, args...)
}

// bounded returns a context that ends a wait for a lock after 30 s.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// finishWhatItCan writes outcomes and ends their leases. It returns the runs and the leases that were left because of
// locked rows.
func (c claimer) finishWhatItCan(outcomes ...domain.Outcome) (runs []uuid.UUID, leases []uuid.UUID) {
	c.t.Helper()
	var released []uuid.UUID
	for _, o := range outcomes {
		released = append(released, o.Lease.ID)
	}
	superseded, err := c.Claims.Finish(bounded(c.t), outcomes, released)
	if left, is := errors.AsType[*scheduler.LockedOutcomesError](err); is {
		runs, leases, err = slices.Collect(maps.Keys(left.Runs)), left.Leases, nil
	}
	if err != nil || superseded != 0 {
		c.t.Fatalf("%d superseded, %v", superseded, err)
	}
	return runs, leases
}

// A stranger has locked a row of one run: its outcome is left, all other outcomes are written.
func TestALockedRowHoldsUpTheOutcomeOfItsOwnRunOnly(t *testing.T) {
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
			c := newClaimer(t)
			policy := domain.PolicyForbid
			if test.wait {
				policy = domain.PolicyWait
			}
			victim := c.manual("victim", notify(hook, domain.EventFailing), overlapping(policy))
			if test.twice {
				c.finishWhatItCan(failed(victim))
				victim = c.again()
			}
			if test.wait {
				c.trigger("victim")
			}
			other, gated := c.manual("other"), c.manual("gated", forbid)
			c.create("with-slots", every(time.Hour))
			outcome := succeeded(victim)
			outcome.Result = []byte(`{"done": true}`)
			if test.failed {
				outcome = failed(victim)
			}
			free := c.stranger(test.rows, victim.Job.ID)
			runs, leases := c.finishWhatItCan(outcome, succeeded(other), failed(gated))
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
				if is := c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running'`, run) == 1; is != want {
					t.Errorf("run %s of %v still running: %v, want %v", run, victim.RunID, is, want)
				}
			}
			free()
			if len(runs) > 0 {
				runs, leases = c.finishWhatItCan(outcome)
			} else if len(leases) > 0 {
				_, err := c.Claims.Finish(bounded(t), nil, leases)
				if err != nil {
					t.Error(err)
				}
				leases = nil
			}
			if len(runs)+len(leases) > 0 {
				t.Errorf("nothing is locked any more, and left are the runs %v and the leases %v", runs, leases)
			}
			c.wantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
		})
	}
}

func TestALockedRowHoldsUpTheTakeoverOfItsOwnRunOnly(t *testing.T) {
	c := newClaimer(t)
	victim, other := c.manual("victim", forbid), c.manual("other")
	c.exec(`DELETE FROM punctual.replicas`)
	free := c.stranger(`exclusive WHERE job_id = $1`, victim.Job.ID)
	for _, want := range []int{1, 0} {
		if n, err := c.Claims.Recover(bounded(t), nil); n != want || err != nil {
			t.Fatalf("%d runs are taken over, want %d: %v", n, want, err)
		}
	}
	if n := c.ready(other.Job.ID); n != 1 {
		t.Errorf("%d runs of the other job are ready", n)
	}
	free()
	if n := c.recover(); n != 1 {
		t.Errorf("%d runs are taken over once nothing is locked", n)
	}
	c.wantCount(0, "claims are left", `SELECT count(*) FROM punctual.claims`)
}

func TestALockedRunHoldsUpNoClaimOfOthers(t *testing.T) {
	c := newClaimer(t)
	c.create("victim", never)
	run := c.trigger("victim")
	free := c.stranger(`runs WHERE id = $1`, run.ID)
	c.create("other", never)
	other := c.trigger("other")
	batch, err := c.Claims.ClaimReady(bounded(t), c.asks(10, false))
	if err != nil || len(batch.Runs) != 1 || batch.Runs[0].RunID != other.ID {
		t.Fatalf("claimed %+v, %v; want the run %s alone", batch.Runs, err, other.ID)
	}
	c.wantCount(1, "the run whose row is locked is not put off",
		`SELECT count(*) FROM punctual.ready WHERE run_id = $1 AND due_at > now() - interval '500 ms'`, run.ID)
	free()
	if got := c.again(); got.RunID != run.ID {
		t.Errorf("claimed %s", got.RunID)
	}
}

func TestALockedRunThatASlotWouldReplaceHoldsUpThatSlotOnly(t *testing.T) {
	c := newClaimer(t)
	victim, _ := c.dueNow("victim", replacing)
	active := c.one(c.claim(10, false))
	c.slotAgo(victim.ID, 0)
	other, _ := c.dueNow("other", replacing)
	free := c.stranger(`runs WHERE id = $1`, active.RunID)
	batch, err := c.Claims.ClaimDue(bounded(t), c.asks(10, false))
	if err != nil || len(batch.Runs) != 1 || batch.Runs[0].Job.ID != other.ID {
		t.Fatalf("claimed %+v, %v; want the slot of job %s alone", batch.Runs, err, other.ID)
	}
	free()
	c.claim(10, false)
	c.wantCount(1, "the active run is not replaced",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND reason = 'replaced'`, active.RunID)
}

func TestALockedTenantDrawsNothingAndOthersDo(t *testing.T) {
	for _, rows := range []string{
		`tenant_usage WHERE tenant = $1`, `allowances WHERE tenant = $1`, `tenants WHERE id = $1`,
	} {
		t.Run(rows, func(t *testing.T) {
			c := newClaimer(t)
			other := c.newTenant("other")
			c.exec(`UPDATE punctual.tenants SET max_concurrent_runs = 7`)
			wishes := []admit.Wish{{Tenant: c.tenant, Slots: 3}, {Tenant: other.ID, Slots: 5}}
			if rows != `tenants WHERE id = $1` { // only a first draw locks the tenant's row, because its new row refers to it
				if got, err := c.Claims.Draw(t.Context(), c.replica, wishes); err != nil || len(got) != 2 {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			wishes[0].Slots++
			free := c.stranger(rows, c.tenant)
			got, err := c.Claims.Draw(bounded(t), c.replica, wishes)
			if err != nil || len(got) != 1 || got[0].Tenant != other.ID || got[0].Slots != 5 {
				t.Errorf("drawn %+v, %v; want 5 slots of tenant %d alone", got, err, other.ID)
			}
			free()
			if got, err := c.Claims.Draw(t.Context(), c.replica, wishes); err != nil || len(got) != 2 || got[0].Slots != 4 {
				t.Errorf("drawn %+v, %v once nothing is locked", got, err)
			}
		})
	}
}

// No replica has renewed its heartbeat for a while, and the row that records this absence is locked. A replica renews
// all the same, and the absence is recorded later.
func TestALockedDeploymentHoldsUpNoHeartbeat(t *testing.T) {
	c := newClaimer(t)
	c.exec(`UPDATE punctual.replicas SET renewed_at = now() - interval '1 min'`)
	c.exec(`UPDATE punctual.deployment SET timeline = 'AAAAAAAA', back_at = '-infinity'`)
	fence := c.count(`SELECT last_value FROM punctual.fences`)
	free := c.stranger(`deployment`)
	pulse, err := c.Claims.Renew(bounded(t), c.replica, scheduler.Condition{})
	if err != nil || !pulse.Known {
		t.Fatalf("%+v, %v", pulse, err)
	}
	if _, err := c.Claims.Register(bounded(t), scheduler.Replica{ID: uuid.New(), Host: "there"}); err != nil {
		t.Fatal(err)
	}
	if n := c.count(`SELECT last_value FROM punctual.fences`); n < fence+1_000_000_000 {
		t.Errorf("fencing tokens go on from %d, after %d on another timeline", n, fence)
	}
	const absent = `SELECT count(*) FROM punctual.deployment
		WHERE NOT EXISTS (SELECT FROM punctual.replicas WHERE renewed_at > now() - interval '6 s')`
	if c.count(absent) != 1 {
		t.Error("the absence is forgotten and was not noted")
	}
	free()
	c.renewed()
	if c.count(absent) != 0 || c.count(`SELECT count(*)
		FROM punctual.deployment
		WHERE back_at > now() - interval '1 min' AND timeline <> 'AAAAAAAA'`) != 1 {
		t.Error("the absence is not noted once nothing is locked")
	}
}

func TestALockedReplicaIsNotRemovedAndOthersAre(t *testing.T) {
	c := newClaimer(t)
	other := asClaimer(c.crud)
	free := c.stranger(`replicas WHERE id = $1`, c.replica)
	lost := []scheduler.Heartbeat{{Replica: c.replica}, {Replica: other.replica}}
	if _, err := c.Claims.Recover(bounded(t), lost); err != nil {
		t.Fatal(err)
	}
	if n := c.count(`SELECT count(*) FROM punctual.replicas WHERE id = $1`, c.replica); n != 1 ||
		c.count(`SELECT count(*) FROM punctual.replicas`) != 1 {
		t.Error("not the other one alone was removed")
	}
	free()
	if _, err := c.Claims.Recover(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	c.wantCount(0, "replicas are left", `SELECT count(*) FROM punctual.replicas`)
}

// An outcome that is left out, because a row is locked, is reported although its write was made twice.
func TestAnOutcomeLeftOutIsReportedThoughTheWriteIsMadeAgain(t *testing.T) {
	c := newClaimer(t)
	locked, free := c.manual("locked"), c.manual("free")
	c.exec(`CREATE SEQUENCE punctual.tries`)
	c.before("UPDATE", "runs", `IF NEW.status = 'succeeded' AND nextval('punctual.tries') = 1 THEN
		RAISE EXCEPTION 'idle for too long' USING ERRCODE = '25P03'; END IF;`)
	c.stranger(`runs WHERE id = $1`, locked.RunID)
	left, _ := c.finishWhatItCan(succeeded(locked), succeeded(free))
	if len(left) != 1 || left[0] != locked.RunID {
		t.Errorf("left out are %v, want %s", left, locked.RunID)
	}
	c.wantCount(1, "the other outcome is not written",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'succeeded'`, free.RunID)
	if c.count(`SELECT last_value FROM punctual.tries`) < 2 {
		t.Error("the write was made once")
	}
}
