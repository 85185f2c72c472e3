package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"punctual/internal/server"
)

// Hurry ends when a command that was asked to stop is asked again. The command must then wait for nothing.
type Hurry context.Context

// sameStop is how long after the first signal further signals count as the same one. A terminal sends Ctrl-C to all
// processes of a group, and a parent such as make or npm passes it on to its child a second time.
const sameStop = time.Second

// errTerminated is the cause when a process manager stops the command with SIGTERM.
var errTerminated = errors.New("terminated")

// Signals returns two contexts. The first ends with the first SIGTERM or SIGINT (Ctrl-C); for SIGINT its cause is
// server.ErrInterrupted. The second ends with the next signal that comes more than sameStop later. After that, a signal
// ends the process at once.
func Signals() (context.Context, Hurry) {
	ctx, stop := context.WithCancelCause(context.Background())
	hurry, now := context.WithCancel(context.Background())
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGTERM, os.Interrupt)
	go func() {
		cause := errTerminated
		if <-arrived == os.Interrupt {
			cause = server.ErrInterrupted
		}
		stop(cause)
		for first := time.Now(); time.Since(first) < sameStop; {
			<-arrived
		}
		now()
		signal.Stop(arrived)
	}()
	return ctx, hurry
}
