//prove:targets

package prove

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// nginx, Apache, gunicorn and HAProxy restart under load. Their access logs agree with the attempts on record.
//
// HAProxy stands before Node.js. All are as Debian packages them: reloaded four times, restarted, and gone for 6 s,
// under jobs of which some call through a network that takes 60 ms a round trip. Each answer is in the log once with
// the same status, and nothing else was answered. No run that is due when the server is there dies without a request,
// and at_most_once is seen too.
func TestTheLogsOfRealServersAgreeWithTheAttemptsOnRecord(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	t.Run("of", func(t *testing.T) {
		for i, s := range webServers() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				disturbed(t, dsn, fleet[i%2].API, s)
			})
		}
	})
	proven(t, dsn)
	stop(t, fleet...)
}

// disturbed has jobs call a server that is disturbed meanwhile, and compares its log with the attempts on record.
func disturbed(t *testing.T, dsn string, api *client.Client, s webServer) {
	h := host(t, s, ownLoopback(t), 8080)
	slow, far := pgtest.NewProxy(t, "http://"+h.address)
	slow.Slow(60*time.Millisecond, 0)
	jobs := callers(s.name, "http://"+h.address, far)
	create(t, api, jobs...)
	h.goesOn()
	for range 4 {
		h.reloads()
	}
	h.restart(0)
	if h.behind != nil {
		h.behind.restart(0)
	}
	h.restart(6 * time.Second) // the breaker's pauses are then longer than the patience of some jobs
	for _, j := range jobs {
		do[any](t, api, "POST", fmt.Sprint("/v1/jobs/", j["name"], "/pause"), nil)
	}
	conn := connect(t, dsn)
	await(t, "the runs to end", func() bool {
		return query[int](t, conn, `
			SELECT count(*)
			FROM punctual.run_history
			WHERE job LIKE $1 || '-%' AND finished_at IS NULL`, s.name) == 0
	})
	h.end()
	made, log := attemptsAt(t, conn, s.name), h.log()
	t.Logf("%d attempts on record, %d in the log of %s", len(made), len(log), s.name)
	for _, d := range disagreements(made, log) {
		t.Error(d)
	}
	if h.behind != nil {
		h.behind.end()
		for _, d := range disagreements(forwarded(log), h.behind.log()) {
			t.Errorf("behind the proxy: %s", d)
		}
	}
	t.Run("no run is dead without a request that was due while the server was there", func(t *testing.T) {
		unseen(t, conn, h, log, `due_at >= $2 AND finished_at < $3 AND job NOT LIKE '%once-%'`)
	})
	t.Run("runs of at_most_once are seen if they were sent while the server was there", func(t *testing.T) {
		unseen(t, conn, h, log, `started_at >= $2 AND finished_at < $3 AND job LIKE '%once-%'`)
	})
}

// callers returns the jobs that call a server: near by, and through a network of which a round trip takes 60 ms. The
// jobs that call it every two seconds find connections of which gunicorn is just tired.
func callers(name, near, far string) (jobs []process.JobSpec) {
	start := nextSecond(time.Second)
	add := func(n int, kind, url, period string, more process.JobSpec) {
		more["schedule"] = map[string]any{"every": period, "starts_at": client.Instant(start)}
		jobs = append(jobs, many(n, name+"-"+kind, url, more)...)
	}
	retry := func(attempts int, initial string) process.JobSpec {
		return process.JobSpec{"retry": map[string]any{
			"max_attempts": attempts, "initial_backoff": initial, "max_backoff": "3s",
		}}
	}
	atMostOnce := func() process.JobSpec { return process.JobSpec{"delivery": "at_most_once"} }
	add(3, "stubborn", near, "1s", retry(20, "1s"))
	add(3, "patient", near, "1s", retry(4, "1s"))
	add(1, "impatient", near, "1s", retry(2, "500ms"))
	add(1, "fault", near+"/fault", "1s", retry(2, "100ms"))
	add(2, "once", near, "1s", atMostOnce())
	add(2, "far", far, "1s", retry(4, "1s"))
	add(4, "far-once", far, "2s", atMostOnce())
	return jobs
}

// unseen checks that no run is dead that the server did not see, among those that a condition selects: $2 is when the
// server began to answer, $3 is when it was stopped.
func unseen(t *testing.T, conn *pgx.Conn, h *hosted, log []answer, condition string) {
	t.Helper()
	seen := map[uuid.UUID]bool{}
	for _, a := range log {
		seen[a.run] = true
	}
	for _, up := range h.up {
		rows, err := conn.Query(t.Context(), `
			SELECT id, format('run %s of %s, due at %s, claimed at %s: %s', id, job, due_at, claimed_at, error)
			FROM punctual.run_history
			WHERE job LIKE $1 || '-%' AND status = 'dead' AND `+condition, h.name, up.From, up.To)
		must(t, err)
		var run uuid.UUID
		var what string
		_, err = pgx.ForEachRow(rows, []any{&run, &what}, func() error {
			if !seen[run] {
				t.Error(what)
			}
			return nil
		})
		must(t, err)
	}
}
