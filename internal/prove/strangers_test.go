//prove:database

package prove

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// stranger begins a transaction, like a user in psql who then goes for lunch.
func stranger(t testing.TB, dsn string) pgx.Tx {
	t.Helper()
	tx, err := connect(t, dsn).Begin(t.Context())
	must(t, err)
	return tx
}

// locks locks rows, and fails if there are none.
func locks(t testing.TB, tx pgx.Tx, from string, args ...any) {
	t.Helper()
	tag, err := tx.Exec(t.Context(), `SELECT FROM punctual.`+from+` FOR UPDATE`, args...)
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("locking rows of %s: %d, %v", from, tag.RowsAffected(), err)
	}
}

// neighbours creates two jobs with a slot each second, whose rows are not locked.
func neighbours(t testing.TB, api *client.Client, w *Witness) {
	t.Helper()
	w.Script("/neighbours", Answer{})
	jobs := many(2, "neighbour", w.URL+"/neighbours", process.JobSpec{"schedule": every("1s")})
	create(t, api, inTurn(jobs, "allow", "forbid")...)
}

// unhindered waits until new slots of both neighbours are sent and end, and until each replica's heartbeat has gone on.
func unhindered(t testing.TB, conn *pgx.Conn, replicas int) {
	t.Helper()
	now := query[time.Time](t, conn, `SELECT clock_timestamp()`)
	awaitFor(t, 40*time.Second, "slots of other jobs to be sent and to end", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM (SELECT FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
			WHERE j.name LIKE 'neighbour-%' AND r.scheduled_for > $1 AND r.status = 'succeeded'
			GROUP BY j.id
			HAVING count(*) >= 3) n`, now) == 2
	})
	awaitFor(t, 40*time.Second, "the heartbeats", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.replicas WHERE renewed_at > $1`, now) == replicas
	})
}

// Forty callers of each replica wait for a locked row. No slot or heartbeat waits.
//
// They ask again, and are answered 503: locked after 3 s or, if they waited 3 s for a connection, busy. Claims,
// finishes and heartbeats have connections of their own.
func TestSlowRequestsHoldUpNoSlotAndNoHeartbeat(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	neighbours(t, fleet[0].API, w)
	create(t, fleet[0].API, job("locked", w.URL+"/locked", process.JobSpec{"schedule": every("1h")}))
	tx, conn := stranger(t, dsn), connect(t, dsn)
	locks(t, tx, `schedules WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'locked')`)
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	var refused atomic.Int64
	odd := make(chan string, 1)
	for i := range 80 {
		calling.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				status, err := fleet[i%2].API.Do(ctx, "PATCH", "/v1/jobs/locked",
					map[string]any{"description": fmt.Sprint(i, " ", n)}, nil)
				switch {
				case ctx.Err() != nil:
				case status == 503 && err != nil && strings.Contains(err.Error(), "connection to the database was free"):
				case status == 503 && err != nil && strings.Contains(err.Error(), "that another transaction has locked"):
					refused.Add(1)
				default:
					select {
					case odd <- fmt.Sprint(status, " ", err):
					default:
					}
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); calling.Wait() })
	await(t, "requests to wait for the row", func() bool {
		return query[int](t, conn, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= 8
	})
	unhindered(t, conn, 2)
	await(t, "requests that are told what they waited for", func() bool { return refused.Load() >= 3 || len(odd) > 0 })
	cancel()
	calling.Wait()
	if len(odd) > 0 {
		t.Errorf("a request was answered %s", <-odd)
	}
	must(t, tx.Rollback(t.Context()))
	do[any](t, fleet[0].API, "PATCH", "/v1/jobs/locked", map[string]any{"description": "at last"})
	stopCalm(t, 2000, fleet...)
}

// A user locks rows of runs, jobs, tenants or queues. Only runs that these belong to wait.
//
// Also claims, gates and the deployment.
func TestAStrangersLocksHoldUpTheirOwnRunsOnly(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	neighbours(t, r.API, w)
	w.Script("/stuck", Answer{Hang: true})
	conn := connect(t, dsn)
	for _, table := range []string{"exclusive", "runs", "claims", "ready"} {
		create(t, r.API, job(table, w.URL+"/stuck", process.JobSpec{"concurrency_policy": "wait"}))
		for range 2 {
			trigger(t, r.API, table)
		}
	}
	w.Script("/fails-once", Answer{Status: 500}, Answer{})
	create(t, r.API,
		job("retried", w.URL+"/fails-once", process.JobSpec{"retry": map[string]any{"initial_backoff": "1h"}}))
	trigger(t, r.API, "retried")
	await(t, "runs in flight, and a retry", func() bool {
		return len(w.At("/stuck")) == 4 && query[int](t, conn, `
			SELECT count(*)
			FROM punctual.runs
			WHERE status = 'retrying'`) == 1
	})
	running := func(name string) (run uuid.UUID) {
		return query[uuid.UUID](t, conn, `
			SELECT r.id
			FROM punctual.runs r
			JOIN punctual.jobs j ON j.id = r.job_id
			WHERE j.name = $1 AND r.status IN ('running', 'retrying')`, name)
	}
	tx := stranger(t, dsn)
	locks(t, tx, `exclusive WHERE active_run = $1`, running("exclusive"))
	locks(t, tx, `runs WHERE id = $1`, running("runs"))
	locks(t, tx, `claims WHERE $1 = ANY (run_ids)`, running("claims"))
	locks(t, tx, `ready WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'ready')`)
	locks(t, tx, `runs WHERE id = $1`, running("retried"))
	locks(t, tx, `jobs WHERE name NOT LIKE 'neighbour-%'`)
	locks(t, tx, `schedules WHERE job_id NOT IN (SELECT id FROM punctual.jobs WHERE name LIKE 'neighbour-%')`)
	locks(t, tx, `tenants`)
	locks(t, tx, `queues`)
	locks(t, tx, `deployment`)
	w.Release("/stuck")
	unhindered(t, conn, 1)
	execute(t, conn, `
		UPDATE punctual.ready SET due_at = now()
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'retried')`)
	unhindered(t, conn, 1)
	if n := query[int](t, conn, `
		SELECT count(*)
		FROM punctual.runs r
		JOIN punctual.jobs j ON j.id = r.job_id
		WHERE j.name IN ('exclusive', 'runs') AND r.status = 'running'`); n != 2 {
		t.Errorf("%d runs wait for their rows, want 2", n)
	}
	must(t, tx.Rollback(t.Context()))
	await(t, "the runs whose rows were locked, and those behind them", func() bool {
		return query[int](t, conn, `
			SELECT count(*)
			FROM punctual.runs r
			JOIN punctual.jobs j ON j.id = r.job_id
			WHERE j.name NOT LIKE 'neighbour-%' AND r.status = 'succeeded'`) == 9
	})
	for _, name := range []string{"neighbour-0", "neighbour-1"} {
		do[any](t, r.API, "POST", "/v1/jobs/"+name+"/pause", nil)
	}
	verify(t, atRest(t, dsn, w), Conditions{Settle: time.Minute})
	stopCalm(t, 1000, r)
}
