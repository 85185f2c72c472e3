package claim_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
)

// lanesOf are the lanes of the default queue, for each kind of work.
func lanesOf(c Replica) scheduler.LookInto {
	queue := []int16{c.Queue}
	return scheduler.LookInto{queue, queue, nil, queue}
}

// spent makes runs that were due in the last ten minutes and leaves of them what their claims do: dead rows, half of
// them of dated runs.
func spent(c Replica, n int) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), id, now() - i * interval '600 s' / $1, tenant,
		       $2::smallint * 4 + CASE WHEN i % 3 = 0 THEN 3 ELSE 1 END
		FROM punctual.jobs, generate_series(1, $1::int) i`, n/2, c.Queue)
	c.Exec(`INSERT INTO punctual.dated (run_id, job_id, due_at, tenant, lane, key)
		SELECT gen_random_uuid(), id, now() - i * interval '600 s' / $1, tenant, $2::smallint * 4 + 1, i
		FROM punctual.jobs, generate_series(1, $1::int) i`, n/2, c.Queue)
	c.Exec(`DELETE FROM punctual.ready`)
	c.Exec(`DELETE FROM punctual.dated`)
}

// An application's transaction that is open for long, or pg_dump, keeps Postgres from removing the entries that runs
// leave in the indexes of what waits. No look and no claim reads them all.
func TestAHeldSnapshotDoesNotSlowTheClaimOfWhatWaits(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Create("job", Never)
	old, err := pgtest.Connect(t.Context(), dsn)
	Must(t, err)
	defer old.Close(t.Context())
	_, err = old.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()`,
		pgx.QueryExecModeSimpleProtocol)
	Must(t, err)
	spent(c, 20_000)
	look := func() {
		_, err := c.Claims.NextDue(t.Context(), lanesOf(c), false)
		Must(t, err)
	}
	look() // the first one begins at the first entry
	for what, work := range map[string]func(){
		"a look": look,
		"a claim of a run": func() {
			c.Trigger("job")
			c.FinishAll(c.ClaimWaiting(domain.WorkReady, 10).Runs)
		},
		"a claim of a dated run": func() {
			c.Pend("job", 1, -time.Second, time.Second)
			c.FinishAll(c.ClaimWaiting(domain.WorkReady, 10).Runs)
		},
		"a claim of ordered runs": func() { c.ClaimWaiting(domain.WorkOrdered, 10) },
		"a claim for a tenant": func() {
			_, err := c.Claims.ClaimReady(t.Context(), scheduler.Claim{
				Replica: c.ReplicaID, Work: domain.WorkReady,
				Quotas: []admit.Quota{{Queue: c.Queue, Slots: 10, Tenant: c.Tenant}},
			})
			Must(t, err)
		},
		"a look at the tenants that wait": func() {
			for _, of := range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
				_, err := c.Claims.Contenders(t.Context(), of, []int16{c.Queue})
				Must(t, err)
			}
		},
	} {
		least := 1 << 30
		for range 5 { // now and then a look begins at the first entry
			least = min(least, c.PagesRead(`^(ready|dated)$`, work))
		}
		most := 100
		if what == "a look at the tenants that wait" { // it passes over the dead entries of the index, not over their rows
			most = 300
		}
		if t.Logf("%s: %d pages", what, least); least > most {
			t.Errorf("%s reads %d pages", what, least)
		}
	}
}

// What is committed long after it was due lies before what looks begin with. They find it all the same.
func TestWhatIsCommittedLongAfterItWasDueIsFound(t *testing.T) {
	t.Parallel()
	c := OpenReplica(t, pgtest.Clone(t))
	c.Create("job", Never)
	for _, of := range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
		for range 3 {
			_, err := c.Claims.NextDue(t.Context(), lanesOf(c), false)
			Must(t, err)
			_, err = c.Claims.Contenders(t.Context(), of, []int16{c.Queue})
			Must(t, err)
		}
		c.Trigger("job")
		c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 hour', lane = CASE WHEN $1 THEN lane | 3 ELSE lane END`,
			of == domain.WorkOrdered)
		for until := time.Now().Add(2 * time.Minute); ; {
			u, err := c.Claims.NextDue(t.Context(), lanesOf(c), false)
			Must(t, err)
			if !u.Ready.IsZero() || !u.Ordered.IsZero() {
				break
			}
			if time.Now().After(until) {
				t.Fatal("waited in vain for a look that finds the run")
			}
			<-time.After(10 * time.Millisecond)
		}
		c.FinishAll([]domain.Assignment{c.One(c.ClaimWaiting(of, 10))})
	}
}
