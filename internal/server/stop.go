package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrInterrupted is the cause of a context that somebody at a terminal ended (Ctrl-C). No load balancer waits for such
// a replica to leave, and somebody does, so that it stops without --shutdown-grace.
var ErrInterrupted = errors.New("interrupted")

// apiShutdown is the least time that requests in flight get when the API stops; the most is what is left of
// --drain-timeout.
const apiShutdown = 3 * time.Second

// grace is how long a replica answers that stops since ctx has ended: one that stops by itself, or whose end somebody
// waits for, does not at all.
func (c Config) grace(ctx context.Context) time.Duration {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrInterrupted) {
		return 0
	}
	return c.ShutdownGrace
}

// departure is how a replica leaves its load balancers. They send requests over connections that they keep, until their
// checks have failed: so it is unready first, and closes nothing under them. Each answer closes its own connection,
// and who asks again has to ask elsewhere.
type departure struct {
	begun atomic.Bool
	asked chan time.Time // when it began
}

func newDeparture() *departure { return &departure{asked: make(chan time.Time, 1)} }

// begin makes the replica unready. It is to be called once.
func (d *departure) begin() {
	d.begun.Store(true)
	d.asked <- time.Now()
}

// ready is an error once the replica is leaving.
func (d *departure) ready(context.Context) error {
	if d.begun.Load() {
		return errors.New("draining: this replica is stopping")
	}
	return nil
}

// closing answers as next does, and closes the connection once the replica is leaving.
func (d *departure) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// end closes the API when the grace is over and the runs in flight have ended, or had their time. Requests of callers that
// are in flight then have what is left of that time too. A departure that is hurried waits for nothing.
func (d *departure) end(hurry context.Context, server *http.Server, drained <-chan struct{}, grace func() time.Duration, drain time.Duration) {
	asked := <-d.asked
	select {
	case <-time.After(time.Until(asked.Add(grace()))):
	case <-hurry.Done():
	}
	select {
	case <-drained:
	case <-time.After(time.Until(asked.Add(drain))):
	case <-hurry.Done():
	}
	shutDown(hurry, server, max(apiShutdown, time.Until(asked.Add(drain))))
}

// shutDown lets requests in flight finish for so long, or until ctx ends, and cuts off what is still open after that.
func shutDown(ctx context.Context, server *http.Server, longest time.Duration) {
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	_ = server.Shutdown(limited)
	_ = server.Close()
}
