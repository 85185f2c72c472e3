//prove:database

package prove

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// oneClaim is a claim of two runs whose requests are in flight: one of a job that must not overlap, which recurs, and
// one of a one-shot.
type oneClaim struct {
	replica *process.Replica
	witness *Witness
	dsn     string // of the server that has the claim now
	first   string // id of the recurring job's run
}

// claimTwo starts a replica and lets it claim two runs together.
func claimTwo(t *testing.T, fleetDSN, dsn string) *oneClaim {
	t.Helper()
	c := &oneClaim{witness: newWitness(t), dsn: dsn, replica: serve(t, fleetDSN)}
	c.witness.Script("/recurring", Answer{Hang: true}, Answer{})
	c.witness.Script("/once", Answer{Hang: true})
	at := nextSecond(2 * time.Second)
	create(t, c.replica.API,
		job("recurring", c.witness.URL+"/recurring", process.JobSpec{
			"schedule": everyUntil("1s", at, at.Add(time.Hour)), "concurrency_policy": "forbid", "timeout": "5m",
		}),
		job("once", c.witness.URL+"/once", process.JobSpec{"schedule": oneShot(at), "timeout": "5m"}))
	await(t, "both requests", func() bool {
		return len(c.witness.At("/recurring")) == 1 && len(c.witness.At("/once")) == 1
	})
	c.first = c.witness.At("/recurring")[0].Run.String()
	if n := query[int](t, connect(t, dsn), `SELECT max(cardinality(run_ids)) FROM punctual.claims`); n != 2 {
		t.Fatalf("the largest claim is of %d runs, want 2", n)
	}
	return c
}

// acknowledged lets the first request be answered, and waits until its outcome is committed.
func (c *oneClaim) acknowledged(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	c.witness.Release("/recurring")
	await(t, "the first outcome", func() bool { return c.status(t, conn) == "succeeded" })
}

func (c *oneClaim) status(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return query[string](t, conn, `SELECT status::text FROM punctual.runs WHERE id = $1`, c.first)
}

// crash makes the server crash right after the first outcome, which it has acknowledged and then loses. It returns when
// it crashed, and a fencing token from before.
func (c *oneClaim) crash(t *testing.T, server *privatepg.Server) (token int64, crashed time.Time) {
	t.Helper()
	configure(t, server, `synchronous_commit = off`)
	conn := connect(t, c.dsn)
	admin := connect(t, server.DSN("postgres"))
	execute(t, admin, `CHECKPOINT`)
	// From here on nothing is flushed before its transaction asks for it, and none does.
	must(t, syscall.Kill(query[int](t, admin, `
		SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`), syscall.SIGSTOP))
	c.acknowledged(t, conn)
	token = query[int64](t, conn, `SELECT max(nextval('punctual.fences')) FROM generate_series(1, 1000)`)
	must(t, server.Crash())
	crashed = time.Now() // a slow machine may have sent another slot by now
	must(t, server.Restart(t.Context()))
	return token, crashed
}

// lostAndFound checks that the database has lost the first outcome, and that nothing stays behind because of that.
func (c *oneClaim) lostAndFound(t *testing.T, conn *pgx.Conn, then func()) {
	t.Helper()
	if s := c.status(t, conn); s != "running" {
		t.Fatalf("the run whose outcome was to be lost is %s", s)
	}
	ready(t, c.replica)
	then()
	await(t, "the run to be tried again and to end", func() bool { return c.status(t, conn) == "succeeded" })
	if outcomes := queryAll[string](t, conn, fmt.Sprintf(
		`SELECT outcome FROM punctual.attempts WHERE run_id = '%s'`, c.first)); len(outcomes) != 1 || outcomes[0] != "lost" {
		t.Errorf("the attempts on record besides the last are %q, want one that is lost", outcomes)
	}
	ended := len(c.witness.At("/recurring"))
	await(t, "the job to go on", func() bool { return len(c.witness.At("/recurring")) > ended })
	c.witness.Release("/once")
	await(t, "the other run", func() bool {
		return query[string](t, conn, `
			SELECT status::text FROM punctual.runs WHERE trigger = 'schedule' AND job_id = (
			    SELECT id FROM punctual.jobs WHERE name = 'once')`) == "succeeded"
	})
	if n := len(c.witness.At("/once")); n != 1 {
		t.Errorf("the other run was sent %d times", n)
	}
	do[any](t, c.replica.API, "POST", "/v1/jobs/recurring/pause", nil)
	await(t, "nothing to be in flight", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.claims)
			    AND NOT EXISTS (SELECT FROM punctual.runs WHERE finished_at IS NULL)`)
	})
	proven(t, c.dsn)
	stop(t, c.replica)
}

// lag ends the replication to a standby once it has all that the primary has.
func lag(t *testing.T, primary, standby *privatepg.Server) {
	t.Helper()
	replicated(t, primary)
	configure(t, standby, `primary_conninfo = ''`)
	conn := connect(t, standby.DSN("postgres"))
	await(t, "the standby to stop following", func() bool {
		return query[bool](t, conn, `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
	})
}

// A failover loses the outcome of one run of a claim. The attempt counts as lost and is repeated.
//
// The standby lags, and has the outcome of the other run. The job continues, and nothing stays running. The lease of
// both runs must not go with the outcome of the second.
func TestAnOutcomeThatAFailoverLosesIsFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		then func(*oneClaim)
	}{
		{"once the other run of its claim has ended", func(c *oneClaim) { c.witness.Release("/once") }},
		{"while the other run of its claim goes on", func(*oneClaim) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.NewServer(t, privatepg.Config{})
			dsn := pgtest.Doomed(t, primary)
			standby := pgtest.NewStandby(t, primary, "")
			c := claimTwo(t, pgtest.Either(t, dsn, primary, standby), pgtest.TCP(t, primary, dsn))
			lag(t, primary, standby)
			proven(t, pgtest.TCP(t, standby, dsn)) // a standby can be verified as well
			c.acknowledged(t, connect(t, c.dsn))
			failOver(t, primary, standby)
			c.dsn = pgtest.TCP(t, standby, dsn)
			c.lostAndFound(t, connect(t, c.dsn), func() { tt.then(c) })
		})
	}
}

// A crash with `synchronous_commit` off loses one outcome. The attempt is repeated.
//
// The timeline stays the same.
func TestAnOutcomeThatACrashLosesIsFound(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.TCP(t, server, pgtest.Database(t, server))
	c := claimTwo(t, dsn, dsn)
	token, crashed := c.crash(t, server)
	c.lostAndFound(t, connect(t, dsn), func() { c.witness.Release("/once") })
	after := slices.DeleteFunc(c.witness.At("/recurring"), func(q Request) bool { return q.At.Before(crashed) })
	for _, q := range after {
		if q.Fence <= token {
			t.Errorf("token %d was given after %d", q.Fence, token)
		}
	}
	if len(after) == 0 {
		t.Error("nothing was sent after the crash")
	}
}
