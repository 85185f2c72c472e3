package command

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"punctual/internal/pgtest"
)

// A day of runs that is past its retention, with one that succeeded.
const plantOldDay = `
SELECT punctual.create_partitions(current_date - 40, current_date - 40);
INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
VALUES ('019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', 1, 1, 'old', 'active', 'none', 1);
INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
	VALUES ('019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', 1, now() - interval '41 days', 'active',
	    '{"name":"old","target":{"url":"http://localhost/"}}');
INSERT INTO punctual.runs
	(id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, attempt, status, trigger)
	SELECT punctual.partition_bound(current_date - 40), '019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', d, d, d, 1, 1, 5, 1,
	    'succeeded', 'manual'
	FROM (SELECT (current_date - 40)::timestamptz AS d) d;
INSERT INTO punctual.archives (day, part) VALUES (current_date - 40, 1);`

func TestADayIsArchivedDroppedAndImported(t *testing.T) {
	t.Parallel()
	dsn, dir := dsnFor(t), t.TempDir()
	counts := func(sql string) (n int) {
		t.Helper()
		conn, err := pgtest.Connect(t.Context(), dsn)
		must(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		must(t, conn.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	const runs = `SELECT count(*) FROM punctual.runs`
	execute(t, dsn, plantOldDay)
	r := serve(t, dsn, "--archive-command=gzip > "+dir+"/%d.gz")
	await(t, "the archive", func() bool {
		return counts(`SELECT count(*) FROM punctual.archives WHERE archived_at IS NOT NULL AND runs = 1`) == 1
	})
	stop(t, r)
	execute(t, dsn, `UPDATE punctual.deployment SET tidied_at = '-infinity'`)
	r = serve(t, dsn) // it archives nothing, and drops what is archived
	await(t, "the drop", func() bool { return counts(runs) == 0 })

	files, err := filepath.Glob(filepath.Join(dir, "*.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	env := []string{"DATABASE_URL=" + dsn}
	code, out := punctual(t, env, "runs", "import", files[0])
	if code != 1 {
		t.Errorf("a compressed file is imported:\n%s", out)
	}
	says(t, out, "line 1", "zstd -dc FILE")
	text, err := exec.CommandContext(t.Context(), "gzip", "-dc", files[0]).Output()
	must(t, err)
	plain := filepath.Join(dir, "plain")
	must(t, os.WriteFile(plain, text, 0o600))
	says(t, succeeds(t, env, "runs", "import", "--keep=1h", plain), "a day of runs was imported", "runs=1")
	if n := counts(runs); n != 1 {
		t.Errorf("there are %d runs", n)
	}
	stop(t, r)
}
