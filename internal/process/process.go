// Package process runs replicas as in production: as separate processes of the real binary (Serve). It also
// reads what they cost (CPU). A Process does not outlive the process that launched it.
//
// Package prove uses it to test the guarantee, package bench to measure.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"punctual/internal/privatepg"
)

// Process is a child that does not outlive this process.
type Process struct {
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the process has ended and is reaped
	log  logBuffer       // stdout and stderr
}

// MasterKey is the master key of every replica launched here, because replicas share databases. It protects nothing of
// value.
const MasterKey = "bm90IHNlY3JldDogZm9yIHByaXZhdGUgZGF0YWJhc2U="

// noGrace lets replicas stop at once, because there is no load balancer that must notice. A binary without this setting
// ignores it.
const noGrace = "PUNCTUAL_SHUTDOWN_GRACE=0s"

// Launch starts a program. Its environment is this process's without everything that would configure Punctual or
// Postgres, plus the master key and env, which may replace the key. A replica stops without a --shutdown-grace unless
// env or args set one.
func Launch(path string, env []string, args ...string) (*Process, error) {
	return launch(syscall.SIGKILL, path, env, args)
}

// LaunchServer is Launch for a program that ends its own children when it is sent SIGTERM, and would leave them behind
// if it were killed.
func LaunchServer(path string, env []string, args ...string) (*Process, error) {
	return launch(syscall.SIGTERM, path, env, args)
}

// launch starts a program, which gets a signal when this process ends.
func launch(last syscall.Signal, path string, env, args []string) (*Process, error) {
	p := &Process{cmd: exec.Command(path, args...)}
	p.cmd.Env = append(append(Environment(), "PUNCTUAL_MASTER_KEY="+MasterKey, noGrace), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = 5 * time.Second // for grandchildren that keep the output open
	var err error
	if p.done, err = privatepg.StartChild(p.cmd, last); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, nil
}

// Environment returns the environment without the variables that Punctual or libpq read.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "PUNCTUAL_") || strings.HasPrefix(entry, "PG") ||
			strings.HasPrefix(entry, "DATABASE_URL=") || strings.HasPrefix(entry, "GOGC=")
	})
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Output returns what the process has written so far to stdout and stderr; if that is a lot, the newest megabyte.
func (p *Process) Output() string { return p.log.String() }

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Wait waits until the process has ended, and returns its exit code; -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d has not ended: %w", p.PID(), ctx.Err())
	}
}

// Stop sends SIGTERM and waits for the end. Any exit code but 0 is an error.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("exit code %d (%s)", code, p.cmd.ProcessState)
	}
	return nil
}

// Kill kills the process and its process group with SIGKILL. Killing again does nothing.
func (p *Process) Kill() {
	if !p.Ended() {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // it may have ended already
		<-p.done
	}
}

// logBuffer keeps the newest megabyte of what is written to it.
type logBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

const logLimit = 1 << 20

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data.Len()+len(p) > logLimit {
		_, _ = io.CopyN(io.Discard, &b.data, logLimit/2)
	}
	return b.data.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
