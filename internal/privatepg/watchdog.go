package privatepg

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it
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
