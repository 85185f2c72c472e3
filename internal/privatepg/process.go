package privatepg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
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
	ownGroup(cmd.SysProcAttr)
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

// StartChild starts any other program that must not outlive this process: it gets the signal when this process ends.
// The channel is closed when the program has ended and is reaped.
func StartChild(cmd *exec.Cmd, last syscall.Signal) (done <-chan struct{}, err error) {
	p, err := startProcess(cmd, last, "")
	if p.watch != nil {
		go func() {
			<-p.done
			_ = p.watch.dismiss() // it has nothing to watch any more
		}()
	}
	return p.done, err
}

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

// watchdog is a shell that reads from a pipe. Only this process holds the other end, so the pipe ends when this process
// ends. The watchdog is nil where none is needed.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	end  func() error
}

// watchScript watches over process $1. When its input ends, it sends signal $2 to the process, waits until the process
// is gone, and removes directory $3. The wait is bounded: if process 1 reaps nothing, as in some containers, a dead
// process never goes away. The line "gone" says that the process has ended and that another may have its id by now. The
// line "done" says that everything is over.
const watchScript = `
pid=$1
while read -r word; do
	[ "$word" = done ] && exit 0
	pid=
done
if [ -n "$pid" ]; then
	kill -"$2" "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ $((n += 1)) -lt 600 ]; do sleep 0.05; done
fi
[ -z "$3" ] || rm -rf -- "$3"`

func startWatchdog(pid int, signal syscall.Signal, cleanup string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchScript, "punctual-watchdog",
		strconv.Itoa(pid), strconv.Itoa(int(signal)), cleanup)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	ownGroup(cmd.SysProcAttr) // Ctrl-C must not reach it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watch over process %d: %w", pid, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch over process %d: %w", pid, err)
	}
	w := &watchdog{cmd: cmd, pipe: pipe}
	w.end = sync.OnceValue(func() error {
		if _, err := io.WriteString(pipe, "done\n"); err != nil {
			return fmt.Errorf("dismiss the watchdog: %w", err)
		}
		return cmd.Wait()
	})
	return w, nil
}

// forget tells the watchdog that the process has ended and was reaped. It does not matter then if the watchdog itself
// was killed.
func (w *watchdog) forget() {
	if w != nil {
		_, _ = io.WriteString(w.pipe, "gone\n")
	}
}

// dismiss ends the watch, and touches nothing.
func (w *watchdog) dismiss() error {
	if w == nil {
		return nil
	}
	return w.end()
}
