package privatepg

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// watchdog is a shell that reads from a pipe whose other end only this process
// holds: the end of the pipe is the end of this process. A nil watchdog is one
// that is not needed.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	end  func() error
}

// watchScript watches over process $1. At the end of its input it signals $2
// to it, waits for it to be gone, and removes directory $3. The wait is bounded,
// as below a process 1 that reaps nothing a dead process never goes. The line
// "gone" says that the process is no more (its id may be another's), "done" that
// all is over.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
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

// forget tells the watchdog that the process has ended and been reaped. That
// the watchdog itself is gone, killed by someone, does not matter then.
func (w *watchdog) forget() {
	if w != nil {
		_, _ = io.WriteString(w.pipe, "gone\n")
	}
}

// dismiss ends the watch without harm to anything.
func (w *watchdog) dismiss() error {
	if w == nil {
		return nil
	}
	return w.end()
}
