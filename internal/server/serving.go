package server

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"punctual/scheduler"
	"punctual/scheduler/delivery"
)

// newServer returns the HTTP server of the API. It bounds how slow, how long and how large a request may be.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// mostConnections is how many connections to the API may be open at once. Each costs 10 to 20 KB, and a file
// descriptor, which callbacks need too.
const mostConnections = 4096

// acceptAgain is how long nothing is accepted after this replica lacked something for it, such as a file descriptor.
const acceptAgain = 100 * time.Millisecond

// bounded closes new connections at once while the most are open. Clients notice and can go to another replica, which
// they could not if they were left waiting to be accepted.
func bounded(l net.Listener, most int32, log *slog.Logger, shortages *scheduler.Shortages) net.Listener {
	return &boundedListener{Listener: l, most: most, log: log, shortages: shortages}
}

type boundedListener struct {
	net.Listener
	most      int32
	log       *slog.Logger
	shortages *scheduler.Shortages
	open      atomic.Int32
	told      time.Time // when this was last logged; only the goroutine that calls Accept uses it
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if lacks := delivery.Shortage(err); lacks != "" {
			l.shortages.Add(lacks)
			l.tell("connections to the API wait: this replica lacks what they need", "lacks", lacks)
			time.Sleep(acceptAgain)
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &boundedConn{Conn: nc, done: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		_ = nc.Close()
		l.tell("the API has its maximum of open connections; further connections are closed at once", "open", l.most)
	}
}

// tell logs what keeps connections from being accepted, once a minute.
func (l *boundedListener) tell(what string, more ...any) {
	if time.Since(l.told) > time.Minute {
		l.told = time.Now()
		l.log.Warn(what, more...)
	}
}

type boundedConn struct {
	net.Conn
	done func()
}

func (c *boundedConn) Close() error {
	c.done()
	return c.Conn.Close()
}

// CloseWrite lets the server finish its answer to a request that it does not read to the end. Without it the client may
// never see the answer.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
