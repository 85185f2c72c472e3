package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrInterrupted is the cause of a context that a user at a terminal ended (Ctrl-C). Such a replica stops without
// --shutdown-grace: it has no load balancer that must notice, and a user who waits.
var ErrInterrupted = errors.New("interrupted")

// apiShutdown is the least time that API requests in flight get when the API stops. They get the rest of
// --drain-timeout if that is longer.
const apiShutdown = 3 * time.Second

// grace returns how long a replica keeps answering after ctx has ended. It is 0 if the replica stops by itself, or was
// interrupted at a terminal.
func (c Config) grace(ctx context.Context) time.Duration {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrInterrupted) {
		return 0
	}
	return c.ShutdownGrace
}

// departure is how a replica leaves its load balancers. They keep connections open and send requests over them until
// their health checks have failed. So the replica first becomes unready, and closes no connection that is in use. Each
// answer then closes its own connection, so that the client's next request goes elsewhere.
type departure struct {
	begun atomic.Bool
	asked chan time.Time // gets the time when it began
}

func newDeparture() *departure { return &departure{asked: make(chan time.Time, 1)} }

// begin makes the replica unready. Call it once.
func (d *departure) begin() {
	d.begun.Store(true)
	d.asked <- time.Now()
}

// ready returns an error once the replica is leaving.
func (d *departure) ready(context.Context) error {
	if d.begun.Load() {
		return errors.New("draining: this replica is stopping")
	}
	return nil
}

// closing answers as next does. Once the replica is leaving, it also closes the connection.
func (d *departure) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// follow begins when the replica is to stop, and then closes the API. The caller calls drained when the runs in flight
// have ended; it returns when the API is closed.
func (d *departure) follow(ctx context.Context, c Config, api *served) (drained func()) {
	context.AfterFunc(api.running, func() {
		d.begin()
		if grace := c.grace(ctx); grace > 0 {
			c.Log.Info("stopping: not ready; requests are answered until load balancers have noticed", "shutdown_grace", grace)
		}
	})
	atRest, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		d.end(ctx, c, api.Server, atRest)
	}()
	return func() {
		close(atRest)
		<-closed
	}
}

// end closes the API when the grace is over and the runs in flight have ended or used up the drain time. API requests
// in flight then get the rest of the drain time too. If c.Hurry ends, it waits for nothing. ctx is that of the replica.
func (d *departure) end(ctx context.Context, c Config, server *http.Server, drained <-chan struct{}) {
	asked := <-d.asked
	select {
	case <-time.After(time.Until(asked.Add(c.grace(ctx)))):
	case <-c.Hurry.Done():
	}
	select {
	case <-drained:
	case <-time.After(time.Until(asked.Add(c.DrainTimeout))):
	case <-c.Hurry.Done():
	}
	shutDown(c.Hurry, server, max(apiShutdown, time.Until(asked.Add(c.DrainTimeout))))
}

// shutDown lets requests in flight finish for at most longest, or until ctx ends. Then it cuts off the rest.
func shutDown(ctx context.Context, server *http.Server, longest time.Duration) {
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	_ = server.Shutdown(limited)
	_ = server.Close()
}
