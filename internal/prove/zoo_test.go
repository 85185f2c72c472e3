//prove:database

package prove

import (
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// The role and the database have unusual defaults (internal/pgtest/zoo.go). Everything works, and is sent once.
//
// Isolation, encoding, dates, time zone, timeouts, search_path, revoked privileges of PUBLIC, … All commands, jobs,
// calls and pages work. All other tests and the soak run with such a role, too.
func TestEverythingWorksWhateverTheDatabasesDefaults(t *testing.T) {
	t.Parallel()
	dsn, super := pgtest.Zoo(t)
	w := newWitness(t)
	punctual(t, dsn, "migrate")
	first, second := serve(t, dsn), serve(t, dsn)
	everything(t, w, first, second)
	w.Script("/dead", Answer{Status: 500})
	once := map[string]any{"max_attempts": 1}
	create(t, first.API,
		job("dead", w.URL+"/dead", process.JobSpec{"retry": once}),
		job("async", w.URL+"/async", process.JobSpec{"completion": "async", "heartbeat_timeout": "1s", "retry": once}),
		job("gated", w.URL+"/gated", process.JobSpec{"concurrency_policy": "wait"}))
	w.Script("/async", Answer{Status: 202})
	trigger(t, second.API, "dead")
	trigger(t, second.API, "async")
	for range 2 {
		trigger(t, second.API, "gated")
	}
	type list struct{ Data []struct{ ID, Run string } }
	await(t, "two dead letters", func() bool { return len(do[list](t, first.API, "GET", "/v1/dead-letters", nil).Data) == 2 })
	await(t, "the runs that wait for each other", func() bool { return len(w.At("/gated")) == 2 })
	do[any](t, first.API, "POST", "/v1/dead-letters/resolve", map[string]any{"filter": map[string]any{}})
	now := time.Now().UTC()
	do[any](t, first.API, "POST", "/v1/jobs/every/backfill",
		map[string]any{"from": client.Instant(now.Add(-time.Minute)), "to": client.Instant(now.Add(-50 * time.Second))})
	for _, path := range []string{
		"/v1/jobs?recent=3", "/v1/jobs/every", "/v1/jobs/every/runs", "/v1/jobs/every/upcoming", "/v1/jobs/every/stats",
		"/v1/jobs/every/explain?at=" + client.Instant(now), "/v1/runs", "/v1/runs?status=dead", "/v1/dead-letters",
		"/v1/dead-letters/groups", "/v1/overview", "/v1/queues", "/v1/replicas", "/v1/audit-log", "/v1/tenants", "/v1/tenant",
		"/v1/operations", "/v1/breakers", "/v1/forecast", "/v1/secrets", "/v1/signing-secrets", "/v1/api-keys", "/v1/freeze",
	} {
		do[any](t, second.API, "GET", path, nil)
	}
	f := atRest(t, super, w)
	verify(t, f, Conditions{})
	proven(t, dsn)
	for _, r := range []*process.Replica{first, second} {
		neverSaid(t, `"level":"ERROR"`, r)
		neverSaid(t, `SQLSTATE`, r)
	}
	ready(t, first, second)
	stop(t, first, second)
}
