package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"punctual/internal/privatepg"
)

// To make a cluster and to migrate a database costs as much as the tests of a small package. So the test processes of
// one run share what does not change: the first makes a cluster with the migrated database, in a directory that
// $PUNCTUAL_TEST_RUN names and that goes with the run (.ci/progress.go), and each begins with a copy. Without the
// variable a process makes its own.

// runCluster fills the directory of a new server with a copy of the run's cluster. It does nothing if there is no run.
func runCluster(t testing.TB, dir string) (copied bool, err error) {
	t.Helper()
	run := os.Getenv("PUNCTUAL_TEST_RUN")
	if run == "" {
		return false, nil
	}
	unlock, err := lock(filepath.Join(run, "lock"))
	if err != nil {
		return false, fmt.Errorf("lock the directory of the run: %w", err)
	}
	defer unlock()
	cluster, described := filepath.Join(run, "cluster"), filepath.Join(run, "template.json")
	if _, err := os.Stat(described); err != nil {
		if err := makeCluster(t, cluster); err != nil {
			return false, err
		}
		if err := os.WriteFile(described, []byte(idle.template), 0o600); err != nil {
			return false, err
		}
	}
	text, err := os.ReadFile(described)
	if err != nil {
		return false, err
	}
	idle.template = string(text)
	if out, err := exec.CommandContext(t.Context(), "cp", "-Rp", cluster+"/.", dir).CombinedOutput(); err != nil {
		return false, fmt.Errorf("copy the cluster of the run: %w\n%s", err, out)
	}
	return true, nil
}

// makeCluster makes a cluster with the migrated database, and leaves it at rest.
func makeCluster(t testing.TB, dir string) error {
	t.Helper()
	server, err := privatepg.Start(context.Background(), privatepg.Config{Dir: dir, Fast: true, Settings: quiet})
	if err != nil {
		return err
	}
	prepare(t, server)
	return server.Stop()
}

// lock waits until this process alone has a file.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}
