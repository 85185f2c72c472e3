//prove:database

package prove

import (
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// PgBouncer pools transactions. Everything works, and is sent once.
func TestEverythingWorksThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct, w := pgtest.EmptyDSN(t), newWitness(t)
	dsn := pgtest.PgBouncer(t, pgtest.Server(t), direct, "default_pool_size = 6")
	punctual(t, dsn, "migrate")
	first, second := serve(t, dsn), serve(t, dsn)
	everything(t, w, first, second)
	f := atRest(t, direct, w)
	verify(t, f, Conditions{SentOnce: true})
	stop(t, first)
	stop(t, second)
}

// everything has two replicas do a bit of everything, and sees that it is done.
func everything(t *testing.T, w *Witness, first, second *process.Replica) {
	t.Helper()
	w.Script("/retried", Answer{Status: 500}, Answer{})
	end := nextSecond(8 * time.Second)
	create(t, first.API,
		job("once", w.URL+"/once", process.JobSpec{"schedule": delayed("300ms")}),
		job("every", w.URL+"/every", process.JobSpec{
			"schedule":           map[string]any{"every": "1s", "ends_at": client.Instant(end)},
			"concurrency_policy": "forbid",
		}),
		job("retried", w.URL+"/retried", process.JobSpec{
			"schedule": delayed("10ms"),
			"retry":    map[string]any{"initial_backoff": "50ms"},
		}),
		job("by-hand", w.URL+"/by-hand", nil),
	)
	create(t, second.API,
		job("paused", w.URL+"/paused", process.JobSpec{"schedule": map[string]any{"cron": "* * * * * *"}}))
	do[any](t, second.API, "POST", "/v1/jobs/by-hand/trigger", map[string]any{"body": map[string]any{"by": "hand"}})
	do[any](t, second.API, "POST", "/v1/jobs/paused/pause", map[string]any{"note": "a test"})
	paused := len(w.At("/paused"))
	await(t, "the others to fire", func() bool {
		return len(w.At("/once")) == 1 && len(w.At("/every")) >= 2 && len(w.At("/retried")) == 2 && len(w.At("/by-hand")) == 1
	})
	if n := len(w.At("/paused")); n > paused+1 { // one may have been in flight
		t.Errorf("a paused job fired %d times", n-paused)
	}
	if q := w.At("/by-hand")[0]; q.Body != HashBody([]byte(`{"by":"hand"}`)) || q.Trigger != "manual" {
		t.Errorf("triggered with a body of its own, it was sent as %+v", q)
	}
	do[any](t, first.API, "POST", "/v1/jobs/paused/resume", nil)
	seen := len(w.At("/paused"))
	await(t, "the resumed job", func() bool { return len(w.At("/paused")) > seen })
	do[any](t, second.API, "POST", "/v1/jobs/paused/pause", map[string]any{"note": "the end of the test"})
	await(t, "the last slots", func() bool { return time.Now().After(end.Add(time.Second)) })
}
