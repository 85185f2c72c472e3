//go:build failpoint && unix

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
)

// env is the variable that says at which step to end, and how.
const env = "PUNCTUAL_FAILPOINT"

var form = regexp.MustCompile(`^([a-z-]+):([1-9]\d*)=(kill|stop)$`)

var (
	at   Point
	left atomic.Int64 // how often the step is still passed before that
	how  = syscall.SIGKILL
)

func init() {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		panic(fmt.Sprintf("%s=%q: write point:times=kill or point:times=stop", env, text))
	}
	at = Point(parts[1])
	times, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		panic(err)
	}
	left.Store(times)
	if parts[3] == "stop" {
		how = syscall.SIGSTOP
	}
}

// At ends or freezes this process when p is the chosen step and it has been reached often enough.
func At(p Point) {
	if p != at || left.Add(-1) != 0 {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	_ = syscall.Kill(os.Getpid(), how)
	// The signal is on its way, and on a busy machine this thread runs on for a while. Nothing more must happen here: not
	// before somebody has the process continue, and after a kill never.
	<-continued
}
