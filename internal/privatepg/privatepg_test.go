package privatepg

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// newDir returns a new directory with a short path that the user of Postgres can enter. For root, t.TempDir is no such
// directory.
func newDir(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts and kills Postgres: `make prove` does")
	}
	dir, err := os.MkdirTemp("", "punctual-privatepg-")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// made is a directory with a cluster. To copy it costs a tenth of what initdb takes.
var made = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "punctual-privatepg-")
	if err != nil {
		return dir, err
	}
	removeMade = func() { _ = os.RemoveAll(dir) }
	s, err := Start(context.Background(), Config{Dir: dir, Fast: true})
	if err != nil {
		return dir, err
	}
	return dir, s.Stop()
})

var removeMade = func() {}

// oldDir is newDir for a directory in which a server has run.
func oldDir(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	from, err := made()
	must(t, err)
	if out, err := exec.Command("cp", "-Rp", from+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("copy a cluster: %v\n%s", err, out)
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, _ := conn.Query(t.Context(), sql)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(all, ",")
}

func TestSecondStartFindsTheDataOfTheFirst(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := start(t, Config{Dir: dir})
	query(t, first.DSN("postgres"), "CREATE TABLE kept AS SELECT 'kept' AS v")
	must(t, first.Stop())
	if err := first.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
	second := start(t, Config{Dir: dir})
	if got := query(t, second.DSN("postgres"), "SELECT v FROM kept"); got != "kept" {
		t.Errorf("read %q", got)
	}
}

func TestRestartAfterCrashKeepsAddressAndData(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Dir: oldDir(t), TCP: true})
	socket, tcp := s.DSN("postgres"), s.TCP("postgres")
	query(t, tcp, "CREATE TABLE kept AS SELECT 'kept' AS v")
	done := s.current().done
	must(t, s.Crash())
	<-done
	must(t, s.Restart(t.Context()))
	for _, dsn := range []string{socket, tcp} {
		if got := query(t, dsn, "SELECT v FROM kept"); got != "kept" {
			t.Errorf("read %q", got)
		}
	}
}

func TestDefaultsAreDurableAndClosedToOthers(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Dir: newDir(t), Settings: map[string]string{"work_mem": "5MB"}})
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"TimeZone": "UTC", "listen_addresses": "", "work_mem": "5MB",
		"data_checksums": "on",
	} {
		if got := query(t, s.DSN("postgres"), "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if s.TCP("postgres") != "" {
		t.Error("there is a TCP address, though no port was asked for")
	}
	socket, _ := s.Socket()
	for path, want := range map[string]os.FileMode{
		socket: 0o700, filepath.Join(s.Dir(), "pgdata"): 0o700,
		filepath.Join(s.Dir(), "password"): 0o600, s.Log(): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Error(err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
}

func TestTCPNeedsThePassword(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Dir: oldDir(t), TCP: true, Fast: true})
	wrong := strings.Replace(s.TCP("postgres"), s.password, "wrong", 1)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password is accepted")
	}
}

func TestSocketMovesWhenThePathIsTooLong(t *testing.T) {
	t.Parallel()
	parent := newDir(t)
	must(t, os.Chmod(parent, 0o755)) // for the user that Postgres runs as
	dir := filepath.Join(parent, strings.Repeat("long", 30))
	s := start(t, Config{Dir: dir, Fast: true})
	query(t, s.DSN("postgres"), "SELECT 'x'")
	socket, _ := s.Socket()
	must(t, s.Stop())
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", socket)
	}
}

func TestEphemeralDirectoryGoesWithTheServer(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, Config{Dir: dir, Fast: true, Ephemeral: true})
	must(t, s.Stop())
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", dir)
	}
}

func TestStartFailureShowsThePostgresLog(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{
		Dir: oldDir(t), Fast: true,
		Settings: map[string]string{"shared_buffers": "rubbish"},
	})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("error is %v", err)
	}
}

func TestStalePIDFileIsNoObstacle(t *testing.T) {
	t.Parallel()
	stranger := os.Getppid() // it is alive and not a Postgres
	for name, pid := range map[string]int{"of a dead process": 1 << 22, "reused by another program": stranger} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := oldDir(t)
			s := start(t, Config{Dir: dir, Fast: true})
			must(t, s.Stop())
			file := filepath.Join(s.pgdata(), "postmaster.pid")
			text := strconv.Itoa(pid) + "\n" + s.pgdata() + "\n1700000000\n5432\n/nowhere\n\n"
			must(t, os.WriteFile(file, []byte(text), 0o600))
			must(t, s.user.own(file))
			start(t, Config{Dir: dir, Fast: true})
		})
	}
}

// drain reads r to its end, for at most a minute.
func drain(t *testing.T, r io.Reader) {
	t.Helper()
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case <-end:
	case <-time.After(time.Minute):
		t.Fatal("still running after a minute")
	}
}
