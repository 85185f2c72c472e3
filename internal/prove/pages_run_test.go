//prove:other

package prove

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/httpapi/client"
	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// The blocks of all pages do what they show.
//
// Those in sh run against `punctual dev` and against `punctual serve` with keys, in the order of the page.
//
//   - A block that names http://127.0.0.1:8080 is for dev, which listens there. One that works on the database is for
//     serve. All others run against both, with $URL and $KEY.
//   - A page that calls `punctual migrate` finds an empty database, and may start a replica, which is $URL from then
//     on. Any other page finds a database with some history.
//   - $RUN is a run that has ended, and $CALLBACK and $TOKEN belong to an attempt that has been accepted.
func TestThePages(t *testing.T) {
	t.Parallel()
	dsn := someHistory(t)
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		sqlOfThePages(t, dsn)
	})
	t.Run("dev", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("", "punctual-pages-") // not t.TempDir, which the user of Postgres may not enter
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		must(t, os.Chmod(dir, 0o755))
		r, err := process.Dev(t.Context(), binary(t), filepath.Join(dir, "data"))
		must(t, err)
		watch(t, r.Process)
		runPages(t, newDocumented(t, "dev", r.API, "unused", ""))
		stop(t, r)
	})
	t.Run("serve", func(t *testing.T) {
		t.Parallel()
		key := strings.TrimSpace(lastLine(punctual(t, dsn, "keys", "create", "--role=operator", "--name=pages")))
		r := serve(t, dsn, "--auth=keys")
		runPages(t, newDocumented(t, "serve", r.API.WithKey(key), key, dsn))
	})
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// documented is a deployment that pages talk to, with what they take for granted there.
type documented struct {
	name     string
	api      *client.Client
	key, dsn string // dsn is empty where pages do not know the database
	w        *Witness
	run      string
}

// The jobs that pages take for granted.
const (
	documentedJob   = "daily-invoice-gen"
	documentedAsync = "rebuild-index"
)

func newDocumented(t *testing.T, name string, api *client.Client, key, dsn string) *documented {
	t.Helper()
	d := &documented{name: name, api: api, key: key, dsn: dsn, w: newWitness(t)}
	d.w.Cycle("/rebuild", Answer{Status: 202})
	for _, j := range []process.JobSpec{
		job(documentedJob, d.w.URL+"/ok", process.JobSpec{
			"schedule": map[string]any{"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
			"labels":   map[string]string{"team": "billing"},
		}),
		job(documentedAsync, d.w.URL+"/rebuild", process.JobSpec{"completion": "async", "heartbeat_timeout": "5m"}),
	} {
		do[any](t, api, "PUT", fmt.Sprint("/v1/jobs/", j["name"]), j)
	}
	d.run = finalRun(t, api, trigger(t, api, documentedJob)).ID
	return d
}

// accepted returns the address and the token of an attempt that the target has accepted.
func (d *documented) accepted(t *testing.T) (callback, token string) {
	t.Helper()
	run := trigger(t, d.api, documentedAsync)
	await(t, "a run to be accepted", func() bool {
		for _, q := range d.w.At("/rebuild") {
			if q.Run.String() == run {
				token = q.Token
			}
		}
		return token != "" && do[map[string]any](t, d.api, "GET", "/v1/runs/"+run, nil)["accepted_at"] != nil
	})
	return d.api.URL + "/v1/runs/" + run, token
}

const devURL = "http://127.0.0.1:8080"

var (
	withDatabase = regexp.MustCompile(`\b(punctual (migrate|keys|tenants|secrets|verify|freeze|unfreeze|serve)|` +
		`psql|pg_dump)\b`)
	withCallback = regexp.MustCompile(`\$\{?(CALLBACK|TOKEN)\b`)
)

// walked are pages whose commands a test of their own runs.
var walked = map[string]string{
	"docs/restore.md":          "TestRestoringADumpFiresNothing",
	"docs/sql-transactions.md": "TestRunsFromYourOwnTransaction",
}

func runPages(t *testing.T, d *documented) {
	ran := 0
	for _, page := range docs.Pages(t) {
		if walked[page] == "" {
			ran += d.runPage(t, page)
		}
	}
	t.Logf("ran %d blocks", ran)
}

func (d *documented) runPage(t *testing.T, page string) (ran int) {
	t.Helper()
	var list []docs.Block
	migrates := false
	for _, b := range docs.Blocks(t, page) {
		if b.Word == "sh" {
			list = append(list, b)
			migrates = migrates || strings.Contains(b.Text, "punctual migrate")
		}
	}
	if len(list) == 0 {
		return 0
	}
	url, dsn := d.api.URL, d.dsn
	if dsn != "" && migrates {
		dsn = pgtest.EmptyDSN(t)
	}
	sh := newShell(t)
	for _, b := range list {
		own := url != d.api.URL // the page has started a replica of its own
		ofDatabase := own || withDatabase.MatchString(b.Text)
		if ofDatabase && d.dsn == "" || !own && d.dsn != "" && strings.Contains(b.Text, devURL) {
			continue
		}
		b.Text = strings.ReplaceAll(b.Text, devURL, url)
		given := map[string]string{"URL": url, "KEY": d.key, "DATABASE_URL": dsn, "RUN": d.run}
		if withCallback.MatchString(b.Text) {
			given["CALLBACK"], given["TOKEN"] = d.accepted(t)
		}
		sh.give(t, given)
		r, err := sh.run(t, b)
		if err != nil {
			t.Errorf("against %s: %v", d.name, err)
		}
		if r != nil {
			url = r.API.URL
		}
		ran++
	}
	return ran
}

// changing matches SQL that is no query of a reader.
var changing = regexp.MustCompile(`(?m)^ *(GRANT|REVOKE|CREATE|ALTER|DROP|INSERT|UPDATE|DELETE|SET|COMMENT)\b|` +
	`\bsetval\(|guard_tenants`)

// sqlOfThePages runs queries as punctual_reader, and what changes something as a superuser in a transaction that is
// rolled back. The latter has a database of its own, because it locks tables.
func sqlOfThePages(t *testing.T, dsn string) {
	quiet := connect(t, pgtest.DSN(t)).Config().Database
	reader, owner := asSuperuser(t, connect(t, dsn).Config().Database), asSuperuser(t, quiet)
	execute(t, reader, `SET ROLE punctual_reader; SET default_transaction_read_only = on`)
	queries, empty := 0, 0
	for _, page := range docs.Pages(t) {
		for _, b := range docs.Blocks(t, page) {
			switch {
			case b.Word != "sql":
			case changing.MatchString(b.Text):
				change(t, owner, quiet, b)
			default:
				queries++
				results, err := reader.PgConn().Exec(t.Context(), b.Text).ReadAll()
				if err != nil {
					t.Errorf("%s: %v\n%s", b, err, b.Text)
				} else if !slices.ContainsFunc(results, func(r *pgconn.Result) bool { return len(r.Rows) > 0 }) {
					empty++
					t.Logf("%s: found nothing", b)
				}
			}
		}
	}
	if queries < 12 || 2*empty > queries {
		t.Errorf("%d of %d queries found nothing: what are they about?", empty, queries)
	}
}

// asSuperuser connects as the superuser of the server of tests, who may switch to any role.
func asSuperuser(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	return connect(t, pgtest.Server(t).DSN(database))
}

var statementEnd = regexp.MustCompile(`;[ \t]*(?:--.*)?\n`)

// change runs the statements of a block on roles and a database with the names of pages. What they create may be there
// already.
func change(t *testing.T, conn *pgx.Conn, database string, b docs.Block) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	text := regexp.MustCompile(`\bDATABASE app\b`).ReplaceAllString(b.Text, "DATABASE "+database)
	for _, statement := range slices.Concat([]string{"CREATE ROLE punctual", "CREATE ROLE alice"},
		statementEnd.Split(text, -1)) {
		_, err := tx.Exec(t.Context(), "SAVEPOINT before")
		must(t, err)
		_, err = tx.Exec(t.Context(), statement)
		if failed, is := errors.AsType[*pgconn.PgError](err); is && failed.Code == "42710" { // exists already
			_, err = tx.Exec(t.Context(), "ROLLBACK TO before")
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", b, err, statement)
			return
		}
	}
}

// someHistory returns a database in which everything has happened once, with a replica still running.
func someHistory(t *testing.T) (dsn string) {
	t.Helper()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/broken", Answer{Status: 500, Body: "out of order"})
	w.Script("/stuck", Answer{Hang: true})
	r := serve(t, dsn, "--drain-timeout=0s")
	second := every("1s")
	create(t, r.API,
		job("every-second", w.URL+"/ok", process.JobSpec{"schedule": second, "labels": map[string]string{"team": "billing"}}),
		job("once", w.URL+"/ok", process.JobSpec{"schedule": delayed("50ms")}),
		job("tomorrow", w.URL+"/ok", process.JobSpec{
			"schedule": map[string]any{"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
		}),
		job("dies", w.URL+"/broken", process.JobSpec{
			"schedule": delayed("50ms"),
			"retry":    map[string]any{"max_attempts": 1},
		}),
		job("retries", w.URL+"/broken", process.JobSpec{
			"schedule": delayed("50ms"),
			"retry":    map[string]any{"initial_backoff": "1h"},
		}),
		job("overlaps", w.URL+"/stuck", process.JobSpec{"schedule": second, "concurrency_policy": "forbid"}),
		job("paused", w.URL+"/ok", process.JobSpec{"schedule": second}),
	)
	do[any](t, r.API, "POST", "/v1/jobs/paused/pause", map[string]any{"note": "for the test"})
	trigger(t, r.API, "tomorrow")
	conn := connect(t, dsn)
	await(t, "something of everything", func() bool {
		kinds := query[int](t, conn, `SELECT count(DISTINCT (status, coalesce(reason, ''))) FROM punctual.runs`)
		return kinds >= 5 // succeeded, dead, retrying, running, skipped
	})
	return dsn
}
