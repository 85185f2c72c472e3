package prove

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// The test runs the commands of docs/restore.md block by block, on a database in which jobs fire. Nothing may be sent
// before the last block.
func TestRestoringADumpFiresNothing(t *testing.T) {
	t.Parallel()
	blocks := codeBlocks(t, "../../docs/restore.md", "sh")
	if len(blocks) != 5 || !strings.HasPrefix(blocks[2], "punctual serve ") ||
		!strings.HasPrefix(blocks[4], "punctual unfreeze ") {
		t.Fatalf("docs/restore.md has %d blocks of commands, or others than this test knows", len(blocks))
	}
	production, w := pgtest.DSN(t), newWitness(t)
	w.Script("/stuck", Answer{Hang: true})
	w.Script("/broken", Answer{Status: 500}, Answer{Status: 200})
	dumped := firing(t, production, w)
	sh := newShell(t, production)

	sh.run(t, blocks[0])
	dumped.Kill()
	sent := settled(t, w)
	sh.run(t, blocks[1])
	r := sh.serve(t, blocks[2])
	conn := connect(t, sh.restored)
	await(t, "the attempt in flight to be taken back", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.claims) AND EXISTS (SELECT FROM punctual.ready WHERE due_at <= now())`)
	})
	overdueFor(t, sh.restored, 3, "the restored jobs")
	if !strings.Contains(r.Output(), "run `punctual unfreeze`, or start a replica with --adopt-database") {
		t.Error("the log does not say how to go on")
	}
	sh.run(t, blocks[3])
	nothingCame(t, w, sent)
	w.Release("/stuck")
	sh.run(t, blocks[4])
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

// shell runs the commands of the page, in a directory of its own.
type shell struct {
	dir, restored string
	env           []string
}

func newShell(t *testing.T, production string) *shell {
	t.Helper()
	server := pgtest.Server(t)
	u, err := url.Parse(production)
	must(t, err)
	owner := u.User.Username()
	u.Path = "/punctual_restored"
	sh := &shell{dir: t.TempDir(), restored: u.String()}
	must(t, os.Symlink(binary(t), filepath.Join(sh.dir, "punctual")))
	must(t, os.WriteFile(filepath.Join(sh.dir, "punctual.key"), []byte(process.MasterKey+"\n"), 0o600))
	sh.env = []string{
		"PATH=" + sh.dir + ":" + server.BinDir() + ":" + os.Getenv("PATH"), "PRODUCTION=" + production, "OWNER=" + owner,
		"ADMIN=" + server.DSN("postgres"), "RESTORED_ADMIN=" + server.DSN("punctual_restored"), "RESTORED=" + sh.restored,
	}
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
	return sh
}

// run runs a block to its end, without the time limits that the role of tests has.
func (sh *shell) run(t *testing.T, block string) {
	t.Helper()
	env := append(sh.env, "PGOPTIONS=-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0")
	succeed(t, "/bin/sh", env, "-euc", "cd "+sh.dir+"\n"+block)
}

// serve runs a block that starts a replica.
func (sh *shell) serve(t *testing.T, block string) *process.Replica {
	t.Helper()
	env := append(sh.env, "PUNCTUAL_LISTEN=127.0.0.1:0", "PUNCTUAL_AUTH=none", "PUNCTUAL_LOG_FORMAT=json",
		"PUNCTUAL_MASTER_KEY=", process.CallLoopback)
	return launch(t, "/bin/sh", env, "-euc", "cd "+sh.dir+"\nexec "+block)
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
