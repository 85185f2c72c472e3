package prove

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// The data of the first release: a dump of a database that was at work when its replicas died. It is kept for ever, so
// that each later release shows that it goes on with it. -first-release writes it again, which ends with 0.1.0.
const firstData = "../../testdata/releases/0.1.0.sql.gz"

var writeFirstData = flag.Bool("first-release", false, "write the dump of the first release again")

// firstURL stands in the dump for the address of its targets.
const firstURL = "http://127.0.0.1:1"

var restricted = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

// rowsOfFirst are queries that each find at least one row in the dump: the kinds of rows that a release must know.
var rowsOfFirst = map[string]string{
	"runs of each status":   `SELECT count(*) FROM (SELECT DISTINCT status FROM punctual.runs) s HAVING count(*) = 7`,
	"runs of most triggers": `SELECT count(*) FROM (SELECT DISTINCT trigger FROM punctual.runs) t HAVING count(*) >= 6`,
	"attempts":              `SELECT count(*) FROM punctual.attempts`,
	"bodies and results":    `SELECT count(*) FROM punctual.run_data`,
	"leases":                `SELECT count(*) FROM punctual.claims`,
	"each wait": `SELECT count(*) FROM (SELECT DISTINCT waits FROM punctual.ready) w
		HAVING array_agg(waits) @> ARRAY['turn', 'gate', 'limit', 'target', 'person']`,
	"dead letters":         `SELECT count(*) FROM punctual.dead_letters`,
	"dated runs":           `SELECT count(*) FROM punctual.dated`,
	"limits and holders":   `SELECT count(*) FROM punctual.limits JOIN punctual.limit_holders USING (tenant, name)`,
	"workflows that go on": `SELECT count(*) FROM punctual.workflows`,
	"backfills":            `SELECT count(*) FROM punctual.operations`,
	"paused jobs":          `SELECT count(*) FROM punctual.jobs WHERE state = 'paused'`,
	"deleted jobs":         `SELECT count(*) FROM punctual.jobs WHERE state = 'deleted'`,
	"versions":             `SELECT count(*) FROM punctual.job_versions WHERE version > 1`,
	"gates that are held":  `SELECT count(*) FROM punctual.exclusive WHERE active_run IS NOT NULL`,
	"chains":               `SELECT count(*) FROM punctual.links`,
	"events":               `SELECT count(*) FROM punctual.events`,
	"audit entries":        `SELECT count(*) FROM punctual.audit_entries`,
	"keys of the API":      `SELECT count(*) FROM punctual.api_keys`,
	"tenants":              `SELECT count(*) FROM punctual.tenants HAVING count(*) > 1`,
	"secrets":              `SELECT count(*) FROM punctual.secrets`,
	"replicas":             `SELECT count(*) FROM punctual.replicas`,
	"recorded skips":       `SELECT count(*) FROM punctual.runs WHERE reason = 'overlap'`,
}

// Each release goes on with the data of the first one: it migrates the schema, reads every job and run, ends what was
// under way, and fires what comes next. Nothing fires before an operator has lifted the freeze of a restored dump.
func TestTheFirstReleasesDataIsUnderstood(t *testing.T) {
	if testing.Short() {
		t.Skip("restores a dump, and starts replicas: `make prove` does")
	}
	t.Parallel()
	if *writeFirstData {
		writeFirst(t)
	}
	w := newWitness(t)
	scriptMix(w)
	dsn := pgtest.EmptyDSN(t)
	restoreFirst(t, dsn, w.URL)
	conn := connect(t, dsn)
	for what, sql := range rowsOfFirst {
		var n int64
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil || n == 0 {
			t.Errorf("the dump has no %s: %d, %v", what, n, err)
		}
	}
	jobs := queryAll[string](t, conn, `SELECT id::text FROM punctual.jobs WHERE state <> 'deleted' AND tenant = 1`)
	runs := queryAll[string](t, conn, `SELECT id::text FROM punctual.runs WHERE status <> 'skipped' AND tenant = 1`)
	left := queryAll[string](t, conn, `SELECT id::text FROM punctual.runs WHERE finished_at IS NULL`)

	punctual(t, dsn, "migrate")
	fleet := []*process.Replica{serve(t, dsn, "--retention=87600h"), serve(t, dsn, "--retention=87600h")}
	api := fleet[0].API
	work(t, w, func() []*process.Replica { return fleet })
	for _, job := range jobs {
		do[any](t, api, "GET", "/v1/jobs/"+job, nil)
		do[any](t, api, "GET", "/v1/jobs/"+job+"/versions", nil)
	}
	for _, run := range runs {
		do[any](t, api, "GET", "/v1/runs/"+run, nil)
	}
	for _, page := range []string{"/", "/jobs", "/runs", "/dead-letters", "/forecast", "/timeline"} {
		if status, err := api.Do(t.Context(), http.MethodGet, page, nil, nil); status != http.StatusOK {
			t.Errorf("the page %s: %d, %v", page, status, err)
		}
	}
	if n := w.Len(); n > 0 {
		t.Errorf("%d requests were sent before the freeze was lifted", n)
	}
	punctual(t, dsn, "unfreeze")
	await(t, "what was under way to end", func() bool {
		for _, step := range queryAll[string](t, conn, `SELECT run_id::text FROM punctual.ready WHERE waits = 'person'`) {
			_, _ = api.Do(t.Context(), http.MethodPost, "/v1/runs/"+step+"/approve", nil, nil)
		}
		return query[int64](t, conn, `SELECT count(*) FROM punctual.runs
			WHERE id::text = ANY($1) AND finished_at IS NULL`, left) == 0
	})
	do[any](t, api, "POST", "/v1/jobs", job("after-the-upgrade", w.URL+promptPath, process.JobSpec{
		"schedule": map[string]any{"every": "1s"},
	}))
	await(t, "a job of the newer release to fire", func() bool { return w.Len() > 0 && len(w.At(promptPath)) > 2 })
	punctual(t, dsn, "verify", "--grace=60s")
	stop(t, fleet...)
}

// restoreFirst restores the dump with targets at an address.
func restoreFirst(t *testing.T, dsn, url string) {
	t.Helper()
	raw, err := os.ReadFile(firstData)
	must(t, err)
	unpacked, err := gzip.NewReader(bytes.NewReader(raw))
	must(t, err)
	text, err := io.ReadAll(unpacked)
	must(t, err)
	restore := exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname="+dsn)
	restore.Stdin = bytes.NewReader(bytes.ReplaceAll(text, []byte(firstURL), []byte(url)))
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("restoring the dump: %v\n%s", err, out)
	}
}

// writeFirst lets a replica work on everything there is, kills it, and writes the dump.
func writeFirst(t *testing.T) {
	t.Helper()
	w := newWitness(t)
	scriptMix(w)
	w.Script("/dead", Answer{Status: http.StatusGone})
	w.Script("/hangs", Answer{Delay: 10 * time.Minute})
	w.Script("/accepts", Answer{Status: http.StatusAccepted})
	w.Script("/unavailable", Answer{Status: http.StatusServiceUnavailable})
	dsn := pgtest.DSN(t)
	r := serve(t, dsn)
	work(t, w, func() []*process.Replica { return []*process.Replica{r} })
	api := r.API
	for _, name := range []string{"acme", "frozen"} {
		do[any](t, api, "POST", "/v1/tenants", map[string]any{"name": name})
	}
	do[any](t, api, "PUT", "/v1/limits/"+sharedLimit, map[string]any{"max_running": 1})
	do[any](t, api, "PUT", "/v1/secrets/token", map[string]any{"value": "of the first release"})
	punctual(t, dsn, "keys", "create", "--role=operator", "--name=first")
	m := mixed(8)
	create(t, api, slices.Concat(m.jobs(w.URL), m.limited(w.URL), m.approved(w.URL))...)
	hour := process.JobSpec{"schedule": map[string]any{"every": "1h"}}
	with := func(name, path string, more process.JobSpec) process.JobSpec { return job(name, w.URL+path, more) }
	decided := diamond("decided", w.URL, nil)
	step := decided["steps"].([]any)[0].(map[string]any)
	delete(step, "target")
	step["approval"] = map[string]any{"expires_after": "168h"}
	create(t, api,
		with("hourly", promptPath, hour), with("deleted", promptPath, hour), with("edited", promptPath, hour),
		with("paused", promptPath, hour), with("dead", "/dead", hour),
		with("chained", promptPath, process.JobSpec{"then": []any{map[string]any{"job": "hourly", "when": "ended"}}}),
		with("at-events", promptPath, process.JobSpec{"schedule": map[string]any{"event": "order"}}),
		with("queued", "/hangs", process.JobSpec{"concurrency_policy": "queue", "timeout": "10m"}),
		with("limited", "/hangs", process.JobSpec{"limits": []string{sharedLimit}, "timeout": "10m"}),
		with("accepted", "/accepts", process.JobSpec{"completion": "async", "heartbeat_timeout": "60s"}),
		with("unavailable", "/unavailable", process.JobSpec{"retry": map[string]any{"initial_backoff": "60s"}}),
		with("dated", promptPath, nil), decided)
	do[any](t, api.WithHeader("Punctual-Tenant", "acme"), "POST", "/v1/jobs", with("hourly", promptPath, hour))
	do[any](t, api, "PATCH", "/v1/jobs/edited", map[string]any{"description": "edited once"})
	do[any](t, api, "POST", "/v1/jobs/paused/pause", map[string]any{"note": "for the next release"})
	do[any](t, api, "DELETE", "/v1/jobs/deleted", nil)
	do[any](t, api, "POST", "/v1/events/order", map[string]any{"body": map[string]any{"n": 1}})
	do[any](t, api, "POST", "/v1/jobs/dated/trigger", map[string]any{"delay": "20h", "key": "order-7"})
	for _, name := range []string{"accepted", "unavailable", "decided"} {
		trigger(t, api, name)
	}
	for range 3 {
		for _, name := range []string{"dead", "chained", "queued", "limited", "hourly"} {
			do[any](t, api, "POST", "/v1/jobs/"+name+"/trigger", map[string]any{"body": map[string]any{"of": name}})
		}
	}
	conn := connect(t, dsn)
	await(t, "a dead letter", func() bool {
		return query[int64](t, conn, `SELECT count(*) FROM punctual.dead_letters WHERE job_name = 'dead'`) == 3
	})
	do[any](t, api, "POST", "/v1/dead-letters/"+query[string](t, conn, `SELECT max(run_id::text) FROM punctual.dead_letters`)+"/replay", nil)
	do[any](t, api, "POST", "/v1/runs/"+trigger(t, api, "queued")+"/cancel", nil)
	do[any](t, api, "POST", "/v1/jobs/hourly/backfill", map[string]any{
		"from": time.Now().Add(-5 * time.Hour).UTC().Format(time.RFC3339),
		"to":   time.Now().UTC().Format(time.RFC3339), "note": "of the first release",
	})
	await(t, "the load", func() bool { return time.Now().After(m.end()) })
	await(t, "each kind of row", func() bool {
		for what, sql := range rowsOfFirst {
			var n int64
			if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) || n == 0 {
				t.Logf("no %s yet: %v", what, err)
				return false
			}
		}
		return true
	})
	r.Kill()
	super := pgtest.Server(t).DSN(conn.Config().Database) // pg_dump has none of the odd defaults of the role of tests
	dump := exec.CommandContext(t.Context(), "pg_dump", "--schema=punctual", "--no-owner", "--dbname="+super)
	out, err := dump.Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		t.Fatalf("pg_dump: %s", failed.Stderr)
	}
	must(t, err)
	text := strings.ReplaceAll(string(out), w.URL, firstURL)
	text = restricted.ReplaceAllString(text, "") // older versions of psql do not know these
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	must(t, err)
	_, err = fmt.Fprint(to, text)
	must(t, err)
	must(t, to.Close())
	must(t, os.MkdirAll("../../testdata/releases", 0o755))
	must(t, os.WriteFile(firstData, packed.Bytes(), 0o600))
}
