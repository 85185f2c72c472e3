package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/claim"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// newReplica opens a database as a replica does that has as few connections as it may have.
func newReplica(t *testing.T) Replica {
	t.Helper()
	t.Parallel()
	return AsReplica(OpenFixture(t,
		store.Options{
			DatabaseURL: pgtest.DSN(t), Master: pgtest.Master(t), MaxConns: pg.LeastConns, Replica: true,
			ArchiveCommand: "cat > /dev/null",
		}))
}

// occupy takes all connections of a pool for the rest of the test.
func occupy(c Replica, pool *pg.Pool) {
	c.T.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(c.T.Context())
		Must(c.T, err)
		c.T.Cleanup(conn.Release)
	}
}

// uses returns the names of the pools that work takes connections of.
func uses(c Replica, what string, work func() error) (names string) {
	c.T.Helper()
	before := map[string]int64{}
	c.DB.Stats(func(pool string, stat *pgxpool.Stat) { before[pool] = stat.AcquireCount() })
	if err := work(); err != nil {
		c.T.Errorf("%s: %v", what, err)
	}
	c.DB.Stats(func(pool string, stat *pgxpool.Stat) {
		if stat.AcquireCount() > before[pool] {
			names += " " + pool
		}
	})
	return strings.TrimSpace(names)
}

func TestEachKindOfWorkHasItsPool(t *testing.T) {
	c := newReplica(t)
	ctx := t.Context()
	want := func(pool, what string, work func() error) {
		t.Helper()
		if used := uses(c, what, work); used != pool {
			t.Errorf("%s uses %q, want %q", what, used, pool)
		}
	}
	want("api", "a write of a caller", func() error { c.Create("job", Every(time.Hour)); return nil })
	want("api", "a read of a caller", func() error { _, err := c.Jobs.GetJob(ctx, c.Tenant, "job"); return err })
	want("api", "a read of the past", func() error {
		_, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{})
		return err
	})
	want("api", "a caller's view of the queues", func() error { _, _, err := c.Fleet.QueueDepths(ctx, c.Tenant); return err })
	c.SlotAgo(c.Get("job").ID, 0)
	c.Manual("signed") // claims it
	want("runs", "a replica's start", func() error {
		_, err := c.Replicas.Register(ctx, scheduler.Replica{ID: c.ReplicaID, Host: "here", Queues: map[string]int{"default": 1}})
		return err
	})
	want("heartbeats", "a heartbeat", func() error {
		_, err := c.Replicas.Renew(ctx, c.ReplicaID, scheduler.Condition{})
		return err
	})
	want("runs", "the next due time", func() error {
		_, err := c.Claims.NextDue(ctx, scheduler.LookInto{{c.Queue}, {c.Queue}, {c.Queue}, {c.Queue}}, false)
		return err
	})
	var batch domain.Batch
	want("runs", "a claim of slots", func() (err error) {
		batch, err = c.Claims.ClaimDue(ctx, c.Asks(10, false))
		return err
	})
	want("runs", "a claim of runs", func() error { _, err := c.Claims.ClaimReady(ctx, c.Asks(10, false)); return err })
	want("runs", "the secrets of an attempt", func() error { _, err := c.Secrets.SigningKeys(ctx, c.Tenant); return err })
	want("runs", "a finish", func() error {
		_, err := c.Claims.Finish(ctx, []domain.Outcome{Succeeded(batch.Runs[0])}, nil)
		return err
	})
	want("runs", "a recovery", func() error { _, err := c.Claims.Lose(ctx, nil, nil); return err })
	want("runs", "the readiness check", func() error { return errors.Join(c.CheckSchema(ctx), c.CheckTenants(ctx)) })
	c.Exec(`DELETE FROM punctual.claims`) // the other run is nobody's
	want("chores", "the sweep", func() error {
		n, _, err := c.Claims.Sweep(ctx)
		if n != 1 {
			t.Errorf("the sweep took %d runs back", n)
		}
		return err
	})
	for _, chore := range c.Chores() {
		pool := "chores"
		switch chore.Name { // what ends attempts waits for no chore
		case claim.ChoreSilent, claim.ChoreWorkflows, "reports":
			pool = "runs"
		}
		want(pool, "the chore "+chore.Name, func() error { _, _, err := chore.Batch(ctx); return err })
	}
	want("chores runs", "a scrape", func() error { // it reads freezes as the readiness check does
		collect(store.Collector{c.Store, func() map[int32]scheduler.Punctual { return nil }})
		return nil
	})
}

// Claims and outcomes occupy all their connections. Heartbeats do not wait.
//
//prove:database
func TestAHeartbeatWaitsForNoConnectionOfClaims(t *testing.T) {
	c := newReplica(t)
	_, err := c.Replicas.Register(t.Context(), scheduler.Replica{ID: c.ReplicaID, Host: "here"})
	Must(t, err)
	occupy(c, c.DB.Runs)
	if _, err := c.Replicas.Renew(Bounded(t), c.ReplicaID, scheduler.Condition{}); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// Callers and chores occupy their connections. Heartbeats, claims and finishes do not wait.
//
//prove:database
func TestNothingThatKeepsAReplicaAliveWaitsForConnectionsOfOthers(t *testing.T) {
	c := newReplica(t)
	c.Create("job", Every(time.Hour))
	c.SlotAgo(c.Get("job").ID, 0)
	signal := c.Manual("signed")
	occupy(c, c.DB.Callers)
	occupy(c, c.DB.Chores)
	ctx := Bounded(t)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.Replicas.Register(ctx, scheduler.Replica{ID: c.ReplicaID, Host: "here", Queues: map[string]int{"default": 1}})
	must("register", err)
	_, err = c.Replicas.Renew(ctx, c.ReplicaID, scheduler.Condition{})
	must("renew", err)
	_, err = c.Claims.NextDue(ctx, scheduler.LookInto{{c.Queue}, {c.Queue}, {c.Queue}, {c.Queue}}, false)
	must("next due", err)
	batch, err := c.Claims.ClaimDue(ctx, c.Asks(10, false))
	must("claim of slots", err)
	if len(batch.Runs) != 1 {
		t.Fatalf("%d runs claimed", len(batch.Runs))
	}
	_, err = c.Claims.ClaimReady(ctx, c.Asks(10, false))
	must("claim of runs", err)
	_, err = c.Claims.Contenders(ctx, domain.WorkLate, []int16{c.Queue})
	must("due tenants", err)
	_, err = c.Secrets.SigningKeys(ctx, c.Tenant)
	must("signing keys", err)
	_, err = c.Claims.Finish(ctx, []domain.Outcome{Succeeded(batch.Runs[0]), Failed(signal)}, nil)
	must("finish", err)
	_, err = c.Claims.Draw(ctx, c.ReplicaID, []admit.Wish{{Tenant: c.Tenant, Slots: 1}})
	must("draw", err)
	_, err = c.Replicas.Recover(ctx, nil)
	must("recover", err)
	must("the schema's version", c.CheckSchema(ctx))
	_, err = c.Freezes.Freezes(ctx)
	must("freezes", err)
	must("deregister", c.Replicas.Deregister(ctx, c.ReplicaID))
}

func TestAChoreWaitsForNoCaller(t *testing.T) {
	c := newReplica(t)
	occupy(c, c.DB.Callers)
	ctx := Bounded(t)
	_, _, resume := c.Jobs.ResumeDue(ctx)
	_, tidy := c.Chore(ctx, "tidying")
	_, _, operate := c.Letters.Operate(ctx)
	_, notify := c.Notices.Collect(ctx)
	_, release := c.Replicas.ReportHolds(ctx, uuid.New(), nil)
	_, maintain := c.Chore(ctx, "maintenance")
	if err := errors.Join(resume, tidy, operate, notify, release, maintain); err != nil {
		t.Error(err)
	}
}

// A caller waits for a lock for a bounded time, which is set in its transaction alone, and the error names the lock.
func TestACallerIsToldWhatItWaitedFor(t *testing.T) {
	c := newReplica(t)
	job := c.Create("job", Every(time.Hour))
	free := c.Stranger(`schedules WHERE job_id = $1`, job.ID)
	_, err := c.Jobs.PauseJob(Bounded(t), c.Tenant, "job", "", nil)
	var locked *pg.LockedError
	if !errors.As(pg.OutOfTime(err), &locked) || locked.Table != "schedules" ||
		!strings.Contains(locked.Error(), "waited 3s for the job's schedule that another transaction has locked") {
		t.Errorf("error %v", err)
	}
	free()
	free = c.Stranger(`tenants`)
	_, err = c.For(c.Tenant).CreateJob(Bounded(t), jobs.NewJob{Definition: Definition("another")}) // a single round trip
	if !errors.As(pg.OutOfTime(err), &locked) {
		t.Errorf("error %v", err)
	}
	free()
	if _, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "job", "", nil); err != nil {
		t.Error(err)
	}
	for _, conn := range c.DB.Callers.AcquireAllIdle(t.Context()) {
		var lock, statement string
		if err := conn.QueryRow(t.Context(),
			`SELECT current_setting('lock_timeout'), current_setting('statement_timeout')`).
			Scan(&lock, &statement); err != nil || lock != "0" || statement != "0" {
			t.Errorf("a connection came back with limits of %s and %s, %v", lock, statement, err)
		}
		conn.Release()
	}
}

// Callers wait for each other's connections too, and that wait is bounded. It is no limit for what goes on after it.
func TestACallerWaitsForAConnectionForABoundedTime(t *testing.T) {
	c := newReplica(t)
	c.Create("job", Every(time.Hour))
	var busy *pg.BusyError
	t.Run("all in use", func(t *testing.T) {
		c := c
		c.T = t
		occupy(c, c.DB.Callers)
		if _, err := c.Jobs.GetJob(Bounded(t), c.Tenant, "job"); !errors.As(err, &busy) {
			t.Errorf("a read: %v", err)
		}
		if _, err := c.Jobs.PauseJob(Bounded(t), c.Tenant, "job", "", nil); !errors.As(err, &busy) {
			t.Errorf("a change: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Jobs.GetJob(gone, c.Tenant, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("a read of a caller who has left: %v", err)
		}
	})
	if _, err := c.Jobs.PauseJob(Bounded(t), c.Tenant, "job", "", nil); err != nil {
		t.Errorf("a change when they are free again: %v", err)
	}
}

func TestAStatementOfACallerThatTakesTooLongIsEnded(t *testing.T) {
	c := newReplica(t)
	job := c.Create("job", Every(time.Hour))
	c.Before("UPDATE", "jobs", `PERFORM pg_sleep(60);`)
	_, err := c.Jobs.PauseJob(Bounded(t), c.Tenant, job.ID.String(), "", nil)
	var slow *pg.SlowError
	if !errors.As(pg.OutOfTime(err), &slow) {
		t.Errorf("error %v", err)
	}
}

// A commit may wait for a standby. A commit that is cut off looks like a success, so commits have no time limit.
func TestTheLimitsOfACallerEndBeforeItsCommit(t *testing.T) {
	c := newReplica(t)
	c.Exec(`CREATE TABLE punctual.limits_seen (at text, lock text, statement text);
		CREATE FUNCTION punctual.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO punctual.limits_seen
			VALUES (TG_NAME, current_setting('lock_timeout'), current_setting('statement_timeout'));
			RETURN NULL;
		END $$;
		GRANT INSERT ON punctual.limits_seen TO PUBLIC;
		CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON punctual.jobs DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION punctual.see();
		CREATE TRIGGER at_once AFTER INSERT ON punctual.jobs FOR EACH ROW EXECUTE FUNCTION punctual.see()`)
	two := func(s *store.Store, name string) {
		t.Helper()
		if _, err := s.For(c.Tenant).CreateJobs(t.Context(),
			Batch(Definition(name+"-1"), Definition(name+"-2")), jobs.ConflictError); err != nil {
			t.Fatal(err)
		}
	}
	two(c.Store, "job")
	for at, want := range map[string]string{"at_once": "8s", "at_commit": "0"} {
		if n := c.Count(`SELECT count(*) FROM punctual.limits_seen WHERE at = $1 AND lock = '3s' AND statement = $2`,
			at, want); n != 2 {
			t.Errorf("%s: not a statement limit of %s: %s",
				at, want, c.Text(`SELECT string_agg(l::text, ' ') FROM punctual.limits_seen l`))
		}
	}
	// A command has no such limits.
	c.Exec(`TRUNCATE punctual.limits_seen`)
	two(OpenStore(t, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 2, Master: c.Options.Master}), "another")
	c.WantCount(4, "a command has limits",
		`SELECT count(*) FROM punctual.limits_seen WHERE lock = '0' AND statement = '0'`)
}

func TestAReadOnlyDatabaseIsNoticedByWritesAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	if err := OpenStore(t, store.Options{DatabaseURL: dsn}).CheckWrites(); err != nil {
		t.Errorf("before any write: %v", err)
	}
	readOnly := OpenStore(t, store.Options{DatabaseURL: dsn + "&default_transaction_read_only=on"})
	if _, err := readOnly.Replicas.Renew(t.Context(), uuid.New(), scheduler.Condition{}); err == nil {
		t.Fatal("a read-only database took a heartbeat")
	}
	var refused *pg.WriteError
	if err := readOnly.CheckWrites(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v", err)
	}
}
