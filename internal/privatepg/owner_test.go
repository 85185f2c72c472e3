package privatepg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownerEnv turns the test binary into an owner of the directory that it names.
const ownerEnv = "PRIVATEPG_TEST_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		if err := own(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	removeMade()
	os.Exit(code)
}

// own starts Postgres, prints "ready" with its address, and waits to be killed.
func own(dir string) error {
	s, err := Start(context.Background(), Config{Dir: dir, Ephemeral: os.Getenv("EPHEMERAL") != ""})
	if err != nil {
		return err
	}
	if _, err := StartChild(s.Command("/bin/sleep", "1000"), syscall.SIGKILL); err != nil {
		return err
	}
	fmt.Println("ready", s.DSN("postgres"))
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Stop())
}

// otherOwner starts a process that owns dir, and returns when it is ready.
func otherOwner(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, dsn string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd = exec.Command(self)
	cmd.Env = append(append(os.Environ(), ownerEnv+"="+dir), env...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	if _, err := cmd.StdinPipe(); err != nil { // open as long as this process lives
		t.Fatal(err)
	}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	dsn, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		t.Fatalf("the other owner says %q, %v", line, err)
	}
	return cmd, dsn
}

// eventually polls until cond holds, for at most half a minute.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	giveUp := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-giveUp:
			t.Fatalf("still not so after 30 s: %s", what)
		}
	}
}

func TestNothingOutlivesAKilledOwner(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := oldDir(t)
			cmd, dsn := otherOwner(t, dir)
			query(t, dsn, "CREATE TABLE kept AS SELECT 'kept' AS v")
			children := descendants(t, cmd.Process.Pid)
			if len(children) < 5 { // the postmaster, its workers and the companion
				t.Fatalf("the owner has the descendants %v, want more", children)
			}
			must(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			eventually(t, "no descendant is left", func() bool {
				for _, pid := range children {
					if _, there := processes(t)[pid]; there {
						return false
					}
				}
				return true
			})
			next := start(t, Config{Dir: dir})
			if got := query(t, next.DSN("postgres"), "SELECT v FROM kept"); got != "kept" {
				t.Errorf("read %q after the crash", got)
			}
		})
	}
}

func TestStartAtOnceAfterAKilledOwner(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	cmd, _ := otherOwner(t, dir)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	start(t, Config{Dir: dir}) // the old Postgres is still shutting down
}

func TestEphemeralDirectoryGoesWithAKilledOwner(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	cmd, _ := otherOwner(t, dir, "EPHEMERAL=1")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, dir+" is gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestOwnerInAnotherProcessIsNamed(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	cmd, _ := otherOwner(t, dir)
	_, err := Start(t.Context(), Config{Dir: dir})
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != cmd.Process.Pid {
		t.Errorf("error is %v, want one that names process %d", err, cmd.Process.Pid)
	}
}

func TestWatchdogDoesWhatLinuxWould(t *testing.T) {
	t.Parallel()
	// Here both the watched process and the watchdog are children of the test, as on systems without PR_SET_PDEATHSIG.
	// Closing the pipe stands for the death of the owner.
	victim := exec.Command("/bin/sleep", "1000")
	out, err := victim.StdoutPipe()
	must(t, err)
	must(t, victim.Start())
	dir := newDir(t)
	w, err := startWatchdog(victim.Process.Pid, syscall.SIGTERM, dir)
	must(t, err)
	must(t, w.pipe.Close())
	drain(t, out)
	_ = victim.Wait()
	if err := w.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory is still there")
	}
}
