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

// Hurry ends when a command that was asked to stop is asked again: it is not to wait for anything any more.
type Hurry context.Context

// sameStop is how long after the first signal others mean the same: a terminal sends Ctrl-C to all processes of a
// group, and a parent such as make or npm passes it on to its child once more.
const sameStop = time.Second

// errTerminated is the cause of the end that a process manager asks for.
var errTerminated = errors.New("terminated")

// Signals returns a context that ends with the first SIGTERM or SIGINT (Ctrl-C), the latter with the cause
// server.ErrInterrupted, and one that ends with the next. From then on a signal ends the process at once.
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
