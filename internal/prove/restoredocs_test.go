//prove:freezes

package prove

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A dump is restored as docs/restore.md says. Nothing is sent before the last block.
//
// The test runs the commands block by block, on a database in which jobs fire.
func TestRestoringADumpFiresNothing(t *testing.T) {
	t.Parallel()
	var steps []docs.Block
	for _, b := range docs.Blocks(t, "docs/restore.md") {
		if b.Word == "sh" {
			steps = append(steps, b)
		}
	}
	if len(steps) != 5 || !strings.HasPrefix(steps[2].Text, "punctual serve ") ||
		!strings.HasPrefix(steps[4].Text, "punctual unfreeze ") {
		t.Fatalf("docs/restore.md has %d blocks of commands, or others than this test knows", len(steps))
	}
	production, w := pgtest.DSN(t), newWitness(t)
	w.Script("/stuck", Answer{Hang: true})
	w.Script("/broken", Answer{Status: 500}, Answer{Status: 200})
	dumped := firing(t, production, w)
	sh, restored := restoring(t, production)
	step := func(i int) *process.Replica {
		r, err := sh.run(t, steps[i])
		must(t, err)
		return r
	}

	step(0)
	dumped.Kill()
	sent := settled(t, w)
	step(1)
	r := step(2)
	conn := connect(t, restored)
	await(t, "the attempt in flight to be taken back", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.claims) AND EXISTS (SELECT FROM punctual.ready WHERE due_at <= now())`)
	})
	overdueFor(t, restored, 3, "the restored jobs")
	if !strings.Contains(r.Output(), "run `punctual unfreeze`, or start a replica with --adopt-database") {
		t.Error("the log does not say how to go on")
	}
	step(3)
	nothingCame(t, w, sent)
	w.Release("/stuck")
	step(4)
	await(t, "its jobs to fire", func() bool {
		return query[int](t, conn, `
			SELECT count(DISTINCT j.name)
			FROM punctual.runs r
			JOIN punctual.jobs j ON j.id = r.job_id
			WHERE j.name = 'skips' AND r.reason = 'missed'
			   OR j.name = 'once' AND r.late AND r.status = 'succeeded'
			   OR j.name = 'retries' AND r.status = 'succeeded'
			   OR j.name = 'stuck' AND r.status = 'succeeded' AND r.attempt = 2`) == 4
	})
	stop(t, r)
}

// firing runs jobs of all kinds until the database has one of each: missed slots to come, a waiting retry, and a
// request in flight.
func firing(t *testing.T, dsn string, w *Witness) *process.Replica {
	t.Helper()
	r := serve(t, dsn, "--drain-timeout=0s")
	create(t, r.API,
		job("skips", w.URL+"/skips", process.JobSpec{
			"schedule": every("1s"),
			"missed":   map[string]any{"policy": "skip", "tolerance": "1s"},
		}),
		job("once", w.URL+"/once", process.JobSpec{
			"schedule": every("1s"),
			"missed":   map[string]any{"policy": "fire_once", "tolerance": "1s"},
		}),
		job("retries", w.URL+"/broken", process.JobSpec{"retry": map[string]any{"initial_backoff": "4s"}}),
		job("stuck", w.URL+"/stuck", process.JobSpec{"timeout": "5m"}),
	)
	trigger(t, r.API, "stuck")
	trigger(t, r.API, "retries")
	conn := connect(t, dsn)
	await(t, "something of everything", func() bool {
		return len(w.At("/skips")) > 1 && len(w.At("/once")) > 1 && len(w.At("/stuck")) == 1 &&
			query[bool](t, conn, `SELECT EXISTS (SELECT FROM punctual.runs WHERE status = 'retrying')`)
	})
	return r
}

// restoring returns a shell with the variables that the page names, and the DSN of the database that it restores.
func restoring(t *testing.T, production string) (sh *shell, restored string) {
	t.Helper()
	server := pgtest.Server(t)
	u, err := url.Parse(production)
	must(t, err)
	owner := u.User.Username()
	u.Path = "/punctual_restored"
	restored = u.String()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		admin, err := pgx.Connect(ctx, server.DSN("postgres"))
		if err == nil {
			_, err = admin.Exec(ctx, `DROP DATABASE IF EXISTS punctual_restored WITH (FORCE)`)
			_ = admin.Close(ctx)
		}
		if err != nil {
			t.Errorf("dropping the restored database: %v", err)
		}
	})
	return newShell(t, "PRODUCTION="+production, "OWNER="+owner, "ADMIN="+server.DSN("postgres"),
		"RESTORED_ADMIN="+server.DSN("punctual_restored"), "RESTORED="+restored, "PUNCTUAL_AUTH=none"), restored
}

// settled returns the number of requests that have arrived, after the last request of a killed replica has arrived.
func settled(t *testing.T, w *Witness) int {
	t.Helper()
	n := -1
	awaitFor(t, 10*time.Second, "the last requests of a replica that was killed", func() bool {
		before := n
		n = w.Len()
		return n == before
	})
	return n
}
