//prove:replicas

package prove

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A replica runs out of file descriptors. Every run succeeds at its first attempt.
//
// It has 256 from its start, or they are used up while it sends.
func TestAReplicaWithFewDescriptorsBlamesNoTarget(t *testing.T) {
	t.Parallel()
	const runs = 400
	for name, c := range map[string]struct {
		ulimit string
		later  uint64 // the limit once it has started
		says   string
	}{
		"from its start":      {"ulimit -n 256", 0, "too few file descriptors"},
		"while it is sending": {"true", 100, "this replica lacks what requests need"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, w := pgtest.DSN(t), newWitness(t)
			w.Script("/slow", Answer{Hang: true})
			r := launch(t, "/bin/sh", []string{"DATABASE_URL=" + dsn, process.CallLoopback}, "-c", c.ulimit+`; exec "$0" "$@"`,
				binary(t), "serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none")
			create(t, r.API, many(runs, "slow", w.URL+"/slow", process.JobSpec{
				"schedule": oneShot(nextSecond(time.Second)),
				"timeout":  "5m",
				"retry":    map[string]any{"max_attempts": 1},
			})...)
			if c.later > 0 {
				limitDescriptors(t, r.PID(), c.later)
			}
			await(t, "as many requests as there are descriptors for", func() bool {
				return w.Len() > 20 && strings.Contains(r.Output(), c.says)
			})
			conn := connect(t, dsn)
			if c.later > 0 {
				tellsOfTheShortage(t, r, conn)
			}
			w.Release("/slow")
			f := atRest(t, dsn, w)
			verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
			if n := query[int](t, conn, `SELECT count(*) FROM punctual.holds`); n != 0 {
				t.Errorf("runs are held back for %d hosts", n)
			}
			if n := strings.Count(r.Output(), c.says); n != 1 {
				t.Errorf("the log tells %d times of %q", n, c.says)
			}
			stop(t, r)
		})
	}
}

// tellsOfTheShortage waits until whoever asks learns what a replica lacks.
func tellsOfTheShortage(t *testing.T, r *process.Replica, conn *pgx.Conn) {
	t.Helper()
	type told struct {
		Lacks       string
		Explanation string
		Data        []struct{ Lacks string }
	}
	// A request may itself find no descriptor for a connection to the database, and is answered 503 then.
	get := func(path string) (answer told) {
		_, _ = r.API.Do(t.Context(), "GET", path, nil, &answer)
		return answer
	}
	await(t, "the shortage in the list of replicas, /readyz, explain and replica_status", func() bool {
		lacks := query[string](t, conn, `SELECT coalesce(min(lacks), '') FROM punctual.replica_status`)
		waits := query[string](t, conn, `
			SELECT coalesce(min(job || '/explain?at=' || replace((scheduled_for AT TIME ZONE 'UTC')::text, ' ', 'T') || 'Z'), '')
			FROM punctual.overdue`)
		replicas := get("/v1/replicas").Data
		return waits != "" && strings.HasPrefix(lacks, "file descriptors") && len(replicas) == 1 &&
			replicas[0].Lacks == lacks && get("/readyz").Lacks == lacks &&
			strings.Contains(get("/v1/jobs/"+waits).Explanation, "lacks "+lacks)
	})
}
