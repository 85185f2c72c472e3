package prove

import (
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

func TestSQLDocs(t *testing.T) {
	t.Parallel()
	const path, least = "../../docs/reference/sql.md", 12
	blocks := codeBlocks(t, path, "sql")
	if len(blocks) < least {
		t.Errorf("%s has %d queries, want at least %d", path, len(blocks), least)
	}

	dsn := someHistory(t)
	// Connect as the superuser of the private server, who may switch to any role. Statements that the reader may not run
	// fail.
	config := connect(t, dsn).Config()
	conn := connect(t, pgtest.Server(t).DSN(config.Database))
	execute(t, conn, `SET ROLE punctual_reader; SET default_transaction_read_only = on`)
	empty := 0
	for i, block := range blocks {
		results, err := conn.PgConn().Exec(t.Context(), block).ReadAll()
		if err != nil {
			t.Errorf("query %d: %v\n%s", i+1, err, block)
			continue
		}
		rows := 0
		for _, r := range results {
			rows += len(r.Rows)
		}
		if rows == 0 {
			empty++
			t.Logf("query %d found nothing:\n%s", i+1, strings.TrimSpace(block))
		}
	}
	if 2*empty > len(blocks) {
		t.Errorf("%d of %d queries found nothing: what are they about?", empty, len(blocks))
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
