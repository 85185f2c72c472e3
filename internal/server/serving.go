package server

import (
	"log/slog"
	"math"
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

// fewDescriptors is what a replica has open beside its requests, its API's connections and those to the database.
const fewDescriptors = 32

// apiConnections is how many connections to the API may be open. They leave most descriptors to callbacks.
func apiConnections(descriptors uint64) int32 { return int32(min(mostConnections, descriptors/4)) }

// mostRequests is how many requests may be in flight at once, so that file descriptors are left for everything else.
// It warns if that is fewer than there are worker slots.
func mostRequests(log *slog.Logger, descriptors uint64, queues map[string]int, databaseConns int) int {
	slots := 0
	for _, n := range queues {
		slots += n
	}
	api := int(apiConnections(descriptors))
	most := max(1, int(min(descriptors, math.MaxInt32))-api-databaseConns-fewDescriptors)
	if most < slots {
		log.Warn("too few file descriptors for the concurrency of all queues: fewer requests are sent at a time; raise "+
			"the limit (ulimit -n, RLIMIT_NOFILE) or lower --queues",
			"limit", descriptors, "worker_slots", slots, "requests", most, "api_connections", api,
			"database_connections", databaseConns)
	}
	return most
}
