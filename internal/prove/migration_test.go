//prove:releases

package prove

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/migrations"
)

// nextRelease does what a migration of the next release may do: it only expands.
const nextRelease = `
	ALTER TABLE punctual.runs ADD COLUMN of_next_release text;
	ALTER TABLE punctual.jobs ADD COLUMN of_next_release text NOT NULL DEFAULT '';
	ALTER TABLE punctual.schedules ADD COLUMN of_next_release integer;
	ALTER TABLE punctual.ready ADD COLUMN of_next_release text;
	ALTER TABLE punctual.run_data ADD COLUMN of_next_release bytea;
	CREATE TABLE punctual.of_next_release (id integer);
	ALTER DOMAIN punctual.run_reason DROP CONSTRAINT run_reason_is_known;`

// A migration runs under old and new replicas. No claim fails, and none becomes unready.
//
// Schema N serves binaries N-1 and N.
func TestAMigrationUnderLoadFailsNoClaim(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	h := herd{start: nextSecond(2 * time.Second), oneShots: 500, within: 8 * time.Second, cronJobs: 30, seconds: 8}
	create(t, fleet[0].API, h.jobs(w.URL)...)
	await(t, "the load", func() bool { return w.Len() > h.runs()/4 })
	punctual(t, dsn, "migrate")
	conn := connect(t, dsn)
	await(t, "the migration to get its locks", func() bool {
		_, err := conn.Exec(t.Context(), `SET lock_timeout = '500ms';`+nextRelease)
		return err == nil
	})
	execute(t, conn, fmt.Sprintf(`
		INSERT INTO punctual.goose_db_version (version_id, is_applied)
		VALUES (%d, true)`, migrations.Latest()+1))
	fleet = append(fleet, serve(t, dsn)) // a replica of this release becomes ready on the schema of the next one
	ready(t, fleet...)
	h.outlast(t)
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	neverSaid(t, "a tick failed", fleet...)
	neverSaid(t, "cannot be written", fleet...)
	stop(t, fleet...)
}

// The first release is migrated under load, its replicas replaced one by one. Each run is sent once.
func TestSoakAnUpgradeFromTheFirstRelease(t *testing.T) {
	soak(t)
	t.Parallel()
	dsn, w := pgtest.EmptyDSN(t), newWitness(t)
	old := firstRelease(t)
	succeed(t, old, []string{"DATABASE_URL=" + dsn}, "migrate")
	before := []*process.Replica{serveBinary(t, old, dsn, nil), serveBinary(t, old, dsn, nil)}
	h := herd{start: nextSecond(2 * time.Second), oneShots: 2000, within: 20 * time.Second, cronJobs: 50, seconds: 20}
	create(t, before[0].API, h.jobs(w.URL)...)
	await(t, "the load", func() bool { return w.Len() > h.runs()/5 })
	punctual(t, dsn, "migrate")
	var after []*process.Replica
	for _, r := range before {
		ready(t, r) // on the newer schema
		after = append(after, serve(t, dsn))
		seen := w.Len()
		await(t, "both versions at work", func() bool { return w.Len() > seen+h.runs()/10 })
		neverSaid(t, "a tick failed", r)
		neverSaid(t, "cannot be written", r)
		stop(t, r)
	}
	h.outlast(t)
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stop(t, after...)
}

// firstRelease builds the first tagged version. Until there is one, it builds today's version, which will become the
// first release.
func firstRelease(t testing.TB) (binary string) {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", "../.."}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("the first release is built from the repository's history, which must be whole: git %s: %v\n%s",
				strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tags := strings.Fields(git("tag", "--list", "v*", "--sort=version:refname"))
	if len(tags) == 0 {
		path, err := Build(t.Context(), Variant{})
		must(t, err)
		return path
	}
	tree := filepath.Join(t.TempDir(), "first-release")
	git("worktree", "add", "--detach", tree, tags[0])
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "git", "-C", "../..", "worktree", "remove", "--force",
			tree).Run()
	})
	binary = filepath.Join(t.TempDir(), "punctual-first-release")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".")
	build.Dir = tree
	build.Env = append(os.Environ(), plain...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", tags[0], err, out)
	}
	return binary
}
