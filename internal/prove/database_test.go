//prove:database

package prove

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// Postgres crashes under load. Outcomes are kept and written, and everything is sent once.
func TestADatabaseCrashLosesNothing(t *testing.T) {
	t.Parallel()
	server, w := pgtest.NewServer(t, privatepg.Config{}), newWitness(t)
	dsn := pgtest.Database(t, server)
	w.Script("/slow", Answer{Hang: true})
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	h := herd{start: nextSecond(2 * time.Second), oneShots: 400, within: 10 * time.Second, cronJobs: 20, seconds: 12}
	create(t, fleet[0].API, h.jobs(w.URL)...)
	create(t, fleet[0].API, job("slow", w.URL+"/slow", process.JobSpec{
		"concurrency_policy": "forbid", "timeout": "5m",
		"schedule": oneShot(h.start.Add(3 * time.Second)),
	}))

	await(t, "the load, and a slow request in flight", func() bool {
		return w.Len() > h.runs()/3 && len(w.At("/slow")) == 1
	})
	must(t, server.Crash())
	w.Release("/slow")
	await(t, "the slow request to be answered while the database is away", func() bool {
		return w.At("/slow")[0].Status == 200
	})
	for _, r := range fleet {
		if status, _ := r.API.Do(t.Context(), "GET", "/readyz", nil, nil); status != 503 {
			t.Errorf("/readyz answers %d while the database is away", status)
		}
	}
	must(t, server.Restart(t.Context()))
	h.outlast(t)
	// Runs that were sent while the database was away keep their outcomes. A claim whose commit was in doubt was not sent.
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stop(t, fleet...)
}
