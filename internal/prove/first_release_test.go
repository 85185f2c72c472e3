//prove:releases

package prove

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"

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

// emptyInFirst are the tables without rows in the dump, and why. All others have some.
var emptyInFirst = map[string]string{
	"archives":      "a day that is over",
	"cancels":       "replicas that are about to cancel what they send",
	"daily_usage":   "a day that is over",
	"dated_work":    "dated runs that a chore has not moved yet",
	"grants":        "a schema of the user's",
	"holds":         "hosts that are held back at the moment",
	"reports":       "a schema of the user's",
	"request_rates": "unlogged",
	"set_aside":     "rows that cannot be written",
	"waiting":       "the parent of ready and dated",
}

// rowsOfFirst are queries that each find at least one row in the dump: what the rows say that a release must know.
var rowsOfFirst = map[string]string{
	"runs of each status":   `SELECT count(*) FROM (SELECT DISTINCT status FROM punctual.runs) s HAVING count(*) = 7`,
	"runs of most triggers": `SELECT count(*) FROM (SELECT DISTINCT trigger FROM punctual.runs) t HAVING count(*) >= 6`,
	"each wait": `SELECT count(*) FROM (SELECT DISTINCT waits FROM punctual.ready) w
		HAVING array_agg(waits) @> ARRAY['turn', 'gate', 'limit', 'target', 'person']`,
	"limits and holders":      `SELECT count(*) FROM punctual.limits JOIN punctual.limit_holders USING (tenant, name)`,
	"paused jobs":             `SELECT count(*) FROM punctual.jobs WHERE state = 'paused'`,
	"deleted jobs":            `SELECT count(*) FROM punctual.jobs WHERE state = 'deleted'`,
	"versions":                `SELECT count(*) FROM punctual.job_versions WHERE version > 1`,
	"gates that are held":     `SELECT count(*) FROM punctual.exclusive WHERE active_run IS NOT NULL`,
	"tenants that are frozen": `SELECT count(*) FROM punctual.tenants WHERE frozen_at IS NOT NULL`,
	"recorded skips":          `SELECT count(*) FROM punctual.runs WHERE reason = 'overlap'`,
}

// A dump of the first release is restored. Open runs end, and nothing fires while frozen.
//
// Each release migrates its schema, reads every job and run, ends what was under way, and fires what comes next.
// Nothing fires before an operator has lifted the freeze.
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
	if lacks := lacksOfFirst(t, conn); len(lacks) > 0 {
		t.Errorf("the dump lacks %q", lacks)
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

// lacksOfFirst returns what a database has not that the dump is to have.
func lacksOfFirst(t *testing.T, conn *pgx.Conn) (lacks []string) {
	t.Helper()
	for what, sql := range rowsOfFirst {
		var n int64
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatalf("%s: %v", what, err)
		}
		if n == 0 {
			lacks = append(lacks, what)
		}
	}
	for _, table := range queryAll[string](t, conn, `
		SELECT relname FROM pg_class
		WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`) {
		if emptyInFirst[table] == "" && !query[bool](t, conn, `SELECT EXISTS (SELECT FROM punctual.`+table+`)`) {
			lacks = append(lacks, "rows in "+table)
		}
	}
	slices.Sort(lacks)
	return lacks
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
