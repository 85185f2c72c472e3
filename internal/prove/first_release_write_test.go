package prove

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// restricted are commands of psql that older versions do not know.
var restricted = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

// writeFirst lets a replica work on everything there is, kills it, and writes the dump.
func writeFirst(t *testing.T) {
	t.Helper()
	w := newWitness(t)
	scriptMix(w)
	w.Script("/dead", Answer{Status: http.StatusGone})
	w.Script("/hangs", Answer{Delay: 10 * time.Minute})
	w.Script("/accepts", Answer{Status: http.StatusAccepted})
	w.Script("/unavailable", Answer{Status: http.StatusServiceUnavailable})
	w.Script("/deaf", Answer{Status: http.StatusInternalServerError})
	dsn := pgtest.DSN(t)
	r := serve(t, dsn)
	work(t, w, func() []*process.Replica { return []*process.Replica{r} })
	settingsOfFirst(t, r.API, dsn)
	m := mixed(8)
	create(t, r.API, slices.Concat(m.jobs(w.URL), m.limited(w.URL), m.approved(w.URL), jobsOfFirst(w.URL))...)
	callsOfFirst(t, r.API)

	conn := connect(t, dsn)
	await(t, "dead letters", func() bool {
		return query[int64](t, conn, `SELECT count(*) FROM punctual.dead_letters WHERE job_name = 'dead'`) == 3
	})
	dead := query[string](t, conn, `SELECT max(run_id::text) FROM punctual.dead_letters`)
	do[any](t, r.API, "POST", "/v1/dead-letters/"+dead+"/replay", nil)
	do[any](t, r.API, "POST", "/v1/runs/"+trigger(t, r.API, "queued")+"/cancel", nil)
	await(t, "the load", func() bool { return time.Now().After(m.end()) })
	trigger(t, r.API, "named-secret") // the events before this are in the batch that a recipient does not take
	do[any](t, r.API, "POST", "/v1/jobs/pause", map[string]any{
		"filter": map[string]any{"labels": map[string]any{"kind": "many"}}, "max_per_second": 1,
	})
	var lacks []string
	await(t, "rows of each kind", func() bool {
		if now := lacksOfFirst(t, conn); !slices.Equal(now, lacks) {
			lacks = now
			t.Logf("lacks %q", lacks)
		}
		return len(lacks) == 0
	})
	r.Kill()
	super := pgtest.Server(t).DSN(conn.Config().Database) // pg_dump has none of the odd defaults of the role of tests
	out, err := exec.CommandContext(t.Context(), "pg_dump", "--schema=punctual", "--no-owner", "--dbname="+super).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		t.Fatalf("pg_dump: %s", failed.Stderr)
	}
	must(t, err)
	packed := new(bytes.Buffer)
	to, err := gzip.NewWriterLevel(packed, gzip.BestCompression)
	must(t, err)
	_, err = to.Write([]byte(restricted.ReplaceAllString(strings.ReplaceAll(string(out), w.URL, firstURL), "")))
	must(t, err)
	must(t, to.Close())
	must(t, os.WriteFile(firstData, packed.Bytes(), 0o600))
}

// settingsOfFirst makes what jobs stand beside: tenants, limits, secrets, keys.
func settingsOfFirst(t *testing.T, api *client.Client, dsn string) {
	t.Helper()
	for _, name := range []string{"acme", "frozen"} {
		do[any](t, api, "POST", "/v1/tenants", map[string]any{"name": name})
	}
	do[any](t, api, "PATCH", "/v1/tenants/default", map[string]any{
		"changes_kept": "24h", "max_jobs": 1000, "max_concurrent_runs": 500, "max_runs_per_second": 500,
	})
	do[any](t, api, "PUT", "/v1/limits/"+sharedLimit, map[string]any{"max_running": 1})
	do[any](t, api, "PUT", "/v1/secrets/token", map[string]any{"value": "of the first release"})
	punctual(t, dsn, "keys", "create", "--role=operator", "--name=first")
	punctual(t, dsn, "freeze", "--tenant=frozen", "--note=of the first release")
}

// jobsOfFirst are jobs besides a mix.
func jobsOfFirst(url string) (jobs []process.JobSpec) {
	add := func(name, path string, more process.JobSpec) { jobs = append(jobs, job(name, url+path, more)) }
	hour := process.JobSpec{"schedule": map[string]any{"every": "1h"}}
	for _, name := range []string{"hourly", "deleted", "edited", "paused"} {
		add(name, promptPath, hour)
	}
	for i := range 60 {
		add("many-"+string(rune('0'+i/10))+string(rune('0'+i%10)), promptPath, process.JobSpec{
			"schedule": hour["schedule"], "labels": map[string]any{"kind": "many"},
		})
	}
	on := []string{"dead", "started", "succeeded"}
	tells := []any{map[string]any{"on": on, "url": url + "/told"}, map[string]any{"on": on, "url": url + "/deaf"}}
	add("dead", "/dead", process.JobSpec{"schedule": hour["schedule"], "notify": tells})
	add("chained", promptPath, process.JobSpec{"then": []any{map[string]any{"job": "hourly", "when": "ended"}}})
	add("at-events", promptPath, process.JobSpec{"schedule": map[string]any{"event": "order"}})
	add("queued", "/hangs", process.JobSpec{"concurrency_policy": "queue", "timeout": "10m"})
	add("limited", "/hangs", process.JobSpec{"limits": []string{sharedLimit}, "timeout": "10m"})
	add("accepted", "/accepts", process.JobSpec{"completion": "async", "heartbeat_timeout": "60s"})
	add("unavailable", "/unavailable", process.JobSpec{"retry": map[string]any{"initial_backoff": "60s"}})
	add("dated", promptPath, nil)
	for name, auth := range map[string]any{
		"named-secret": map[string]any{"type": "bearer", "secret": "token"},
		"own-secret":   map[string]any{"type": "bearer", "value": "of this job"},
	} {
		jobs = append(jobs, process.JobSpec{
			"name": name, "target": map[string]any{"url": url + promptPath, "auth": auth}, "notify": tells,
		})
	}
	decided := diamond("decided", url, nil)
	step := decided["steps"].([]any)[0].(map[string]any)
	delete(step, "target")
	step["approval"] = map[string]any{"expires_after": "168h"}
	return append(jobs, decided)
}

// callsOfFirst changes and triggers them.
func callsOfFirst(t *testing.T, api *client.Client) {
	t.Helper()
	call := func(method, path string, in map[string]any) { do[any](t, api, method, path, in) }
	do[any](t, api.WithHeader("Punctual-Tenant", "acme"), "POST", "/v1/jobs", job("hourly", firstURL, nil))
	call("PATCH", "/v1/jobs/edited", map[string]any{"description": "edited once"})
	call("POST", "/v1/jobs/paused/pause", map[string]any{"note": "for the next release"})
	call("DELETE", "/v1/jobs/deleted", nil)
	call("POST", "/v1/events/order", map[string]any{"body": map[string]any{"n": 1}})
	call("POST", "/v1/jobs/dated/trigger", map[string]any{
		"delay": "20h", "key": "order-7", "on_conflict": "replace",
	})
	call("POST", "/v1/jobs/dated/trigger", map[string]any{"delay": "1s", "key": "order-8", "sequence": 3})
	for _, name := range []string{"accepted", "unavailable", "decided", "named-secret", "own-secret"} {
		trigger(t, api, name)
	}
	do[any](t, api.WithHeader("Idempotency-Key", "first"), "POST", "/v1/jobs/hourly/trigger", nil)
	for range 3 {
		for _, name := range []string{"dead", "chained", "queued", "limited", "hourly"} {
			call("POST", "/v1/jobs/"+name+"/trigger", map[string]any{"body": map[string]any{"of": name}})
		}
	}
	call("POST", "/v1/jobs/hourly/backfill", map[string]any{
		"from": time.Now().Add(-5 * time.Hour).UTC().Format(time.RFC3339),
		"to":   time.Now().UTC().Format(time.RFC3339), "note": "of the first release",
	})
}
