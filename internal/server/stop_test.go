package server

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/scheduler/delivery/guard"
	"punctual/store"
	"punctual/store/pg"
)

// stopping is a replica that serves the API until it is asked to stop.
type stopping struct {
	t     *testing.T
	stop  context.CancelCauseFunc
	hurry context.CancelFunc
	host  string
	ended chan error
}

func serveUntilStopped(t *testing.T, grace time.Duration) *stopping {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	hurry, now := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(now)
	s, url := &stopping{t: t, stop: stop, hurry: now, ended: make(chan error, 1)}, make(chan string, 1)
	dsn := pgtest.DSN(t)
	go func() {
		s.ended <- Run(ctx, Config{
			Store:  store.Options{DatabaseURL: dsn, MaxConns: pg.LeastConns, Master: pgtest.Master(t)},
			Listen: "127.0.0.1:0", DrainTimeout: time.Hour, ShutdownGrace: grace, Hurry: hurry,
			Version: "test", Log: slog.New(slog.DiscardHandler), NoAuth: true,
			AllowTargets: guard.Loopback, Ready: func(at string) { url <- at },
		})
	}()
	select {
	case at := <-url:
		s.host = at[len("http://"):]
	case err := <-s.ended:
		t.Fatal(err)
	}
	return s
}

// over waits for the replica's end.
func (s *stopping) over() {
	s.t.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Error(err)
		}
	case <-time.After(patience):
		s.t.Fatal("the replica does not end")
	}
	if conn, err := net.Dial("tcp", s.host); err == nil {
		_ = conn.Close()
		s.t.Error("the port is still open")
	}
}

// kept is a connection that its client keeps open.
type kept struct {
	t       *testing.T
	conn    net.Conn
	answers *bufio.Reader
}

func (s *stopping) keep() *kept {
	s.t.Helper()
	conn := dial(s.t, s.host)
	return &kept{s.t, conn, bufio.NewReader(conn)}
}

// get returns the status of an answer, and whether the answer is the connection's last.
func (k *kept) get(path string) (status int, last bool) {
	k.t.Helper()
	request, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet, "http://127.0.0.1"+path, http.NoBody)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := request.Write(k.conn); err != nil {
		k.t.Fatal(err)
	}
	response, err := http.ReadResponse(k.answers, request)
	if err != nil {
		k.t.Fatalf("%s is not answered: %v", path, err)
	}
	defer response.Body.Close()
	return response.StatusCode, response.Close
}

// untilUnready asks for readiness, each time over a new connection, until the replica is not ready.
func (s *stopping) untilUnready() {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if status, last := s.keep().get("/readyz"); status == http.StatusServiceUnavailable {
			if !last {
				s.t.Error("a connection to a replica that is leaving is kept")
			}
			return
		}
	}
	s.t.Fatal("a replica that was asked to stop is still ready")
}

func TestAReplicaThatLeavesClosesNoConnectionThatIsKept(t *testing.T) {
	t.Parallel()
	s := serveUntilStopped(t, time.Hour)
	k := s.keep()
	if status, last := k.get("/v1/jobs"); status != http.StatusOK || last {
		t.Fatalf("status %d, the last answer: %t", status, last)
	}
	s.stop(nil)
	s.untilUnready()
	if status, last := k.get("/v1/jobs"); status != http.StatusOK || !last {
		t.Errorf("status %d, the last answer: %t", status, last)
	}
	if status, last := s.keep().get("/v1/jobs"); status != http.StatusOK || !last {
		t.Errorf("on a new connection: status %d, the last answer: %t", status, last)
	}
	s.hurry() // so the hour need not pass
	s.over()
}

func TestAReplicaLeavesWhenItsGraceIsOver(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	s := serveUntilStopped(t, grace)
	asked := time.Now()
	s.stop(nil)
	s.over()
	if took := time.Since(asked); took < grace {
		t.Errorf("it left after %s", took)
	}
}

func TestNobodyAtATerminalWaitsForTheGrace(t *testing.T) {
	t.Parallel()
	s := serveUntilStopped(t, time.Hour)
	s.stop(ErrInterrupted)
	s.over()
}
