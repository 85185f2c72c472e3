package privatepg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that cannot outlive this process.
type process struct {
	cmd   *exec.Cmd
	watch *watchdog     // nil where the kernel does it all
	done  chan struct{} // closed when the child has ended and is reaped
	err   error         // how the child ended; read it after done
}

// startProcess starts cmd. When this process dies, the child gets signal, and then the directory cleanup is removed,
// unless cleanup is empty.
func startProcess(cmd *exec.Cmd, signal syscall.Signal, cleanup string) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A group of its own: Ctrl-C in the terminal is for the owner, which stops its children in order.
	cmd.SysProcAttr.Setpgid = true
	tied := tieToOwner(cmd.SysProcAttr, signal)

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started, func() (err error) {
		if !tied || cleanup != "" {
			p.watch, err = startWatchdog(p.pid(), signal, cleanup)
		}
		return err
	})
	return p, <-started
}

// run starts the child and waits for it on one OS thread, which lives as long as the child: when the thread that forked
// the child ends, Linux takes that for the death of the parent.
func (p *process) run(started chan<- error, watch func() error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	err := watch()
	if err != nil {
		err = errors.Join(err, p.cmd.Process.Kill())
	}
	started <- err
	p.err = p.cmd.Wait()
	p.watch.forget()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end sends sig and waits until the process has ended, for at most patience.
func (p *process) end(sig os.Signal, patience time.Duration) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.pid(), err)
	}
	select {
	case <-p.done:
		return p.watch.dismiss()
	case <-time.After(patience):
		return fmt.Errorf("process %d did not end within %s of %q", p.pid(), patience, sig)
	}
}
