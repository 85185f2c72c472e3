package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

const bouncerPort = "6432" // appears only in the socket's name

// heeding does for a role in a database what operators are told to do if they have a pooler.
const heeding = `
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
                   WHERE s.setrole = '%[1]s'::regrole AND d.datname = '%[2]s') THEN
        ALTER ROLE %[1]s IN DATABASE %[2]s SET default_transaction_isolation = 'read committed';
        ALTER ROLE %[1]s IN DATABASE %[2]s SET search_path = pg_catalog;
        ALTER ROLE %[1]s IN DATABASE %[2]s SET statement_timeout = '1min';
        ALTER ROLE %[1]s IN DATABASE %[2]s SET lock_timeout = '1min';
        ALTER ROLE %[1]s IN DATABASE %[2]s SET idle_in_transaction_session_timeout = '1min';
        ALTER ROLE %[1]s IN DATABASE %[2]s SET idle_session_timeout = 0;
        ALTER ROLE %[1]s IN DATABASE %[2]s SET IntervalStyle = postgres;
        ALTER ROLE %[1]s IN DATABASE %[2]s SET bytea_output = hex;
        ALTER ROLE %[1]s IN DATABASE %[2]s SET array_nulls = on;
    END IF;
END $$`

// PgBouncer starts a PgBouncer in transaction mode in front of server, for this test, and returns dsn as seen through
// it. Settings are further lines of its configuration, such as "default_pool_size = 5". The test fails if the machine
// has no pgbouncer.
func PgBouncer(t testing.TB, server *privatepg.Server, dsn string, settings ...string) string {
	t.Helper()
	path := Program(t, "apt-get install pgbouncer, dnf install pgbouncer, or brew install pgbouncer", "pgbouncer",
		"/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer")
	dir, err := server.MakeDir("pgbouncer-")
	if err != nil {
		t.Fatalf("configure pgbouncer: %v", err)
	}
	execute(t, server, "postgres", fmt.Sprintf(heeding, owner, parse(t, dsn).Path[1:]))
	ini := configurePgBouncer(t, dir, server, dsn, settings)
	log := filepath.Join(dir, "output.log")
	ended := startBouncer(t, server.Command(path, ini), log)
	through := throughSocket(t, dsn, dir, bouncerPort)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, through)
		if err == nil {
			_ = conn.Close(ctx)
			return through
		}
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
			continue
		}
		said, _ := os.ReadFile(log)
		t.Fatalf("pgbouncer accepts no connections: %v\n%s", err, said)
	}
}

// startBouncer starts PgBouncer for this test. The channel is closed when it has ended.
func startBouncer(t testing.TB, cmd *exec.Cmd, log string) (ended <-chan struct{}) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if ended, err = privatepg.StartChild(cmd, syscall.SIGKILL); err != nil {
		t.Fatalf("start pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			t.Error("pgbouncer did not end within 10 s of SIGTERM")
		}
	})
	return ended
}

// Program returns the path of a program that a test needs: of the first of its names that is found. A name may be a
// path in a directory that packages use but that is often missing from a user's PATH. If there is none, the test fails
// and says how to install it.
func Program(t testing.TB, install string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("this test needs %s: %s", names[0], install)
	return ""
}

// configurePgBouncer writes the configuration into dir. It trusts every client, because only this test can reach the
// socket.
func configurePgBouncer(t testing.TB, dir string, server *privatepg.Server, dsn string, settings []string) string {
	t.Helper()
	socket, port := server.Socket()
	password, _ := parse(t, dsn).User.Password()
	files := map[string]string{
		"users.txt": fmt.Sprintf("%q %q\n", parse(t, dsn).User.Username(), password),
		"pgbouncer.ini": fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_port = %s
unix_socket_dir = %s
unix_socket_mode = 0700
auth_type = trust
auth_file = %s/users.txt
pool_mode = transaction
max_client_conn = 1000
%s
`, socket, port, bouncerPort, dir, dir, strings.Join(settings, "\n")),
	}
	for name, text := range files {
		// Readable for the user that PgBouncer runs as. Other users cannot enter the directory.
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // see above
			t.Fatalf("configure pgbouncer: %v", err)
		}
	}
	return filepath.Join(dir, "pgbouncer.ini")
}
