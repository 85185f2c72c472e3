// Package pgtest gives tests a real Postgres.
//
// Most tests need only DSN: a migrated database of their own. It is cloned from a template, or an earlier test has
// handed it on: see recycle.go. Connections to it are handed on, too: see sessions.go. Its server is started by the
// test process on first use: see run.go. The tests of the process share it and may run in parallel. The server trades
// durability for speed, and does not vacuum or analyse anything by itself. NewServer starts one that does, and is
// durable, for tests that crash or restart Postgres.
//
// The role of tests has odd defaults: see zoo.go. So whatever passes works whatever the defaults of a role are.
//
// There is nothing to set up or tear down. The servers and their directories go with the test process, even if it
// panics, times out or is killed. A test that looks for leaked goroutines should call Server first, and then ignore the
// goroutines that exist already.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

// quiet are settings of the shared server. What autovacuum does would depend on how long tests take, and the template
// would change while it is cloned.
var quiet = map[string]string{"autovacuum": "off"}

// shared is the server that the tests of this process share.
var shared struct {
	once   sync.Once
	server *privatepg.Server
	err    error

	sessions *sessions
}

// Server returns the server that the tests of this process share. It also listens on TCP. Tests must not stop, restart
// or reconfigure it.
func Server(t testing.TB) *privatepg.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.err = errors.New("another test has failed to")
		if shared.server, shared.err = startShared(t); shared.err == nil {
			shared.sessions = handSessionsOn(t, shared.server)
		}
	})
	if shared.err != nil {
		t.Fatalf("start Postgres for the tests: %v", shared.err)
	}
	return shared.server
}

// startShared starts the shared server. It has the migrated database.
func startShared(t testing.TB) (*privatepg.Server, error) {
	t.Helper()
	cfg, err := forTests(privatepg.Config{Fast: true, Settings: quiet})
	if err != nil {
		return nil, err
	}
	copied, err := runCluster(t, cfg.Dir)
	if err != nil {
		return nil, err
	}
	server, err := privatepg.Start(context.Background(), cfg)
	switch {
	case err != nil:
	case copied:
		ownerOnce(server).Do(func() {}) // it came with the copy
	default:
		prepare(t, server)
	}
	return server, err
}

// NewServer starts a server for this test alone, which the test may crash and restart. It is as durable as in
// production unless cfg.Fast is set. NewServer sets all of cfg but Fast, Settings and Env.
func NewServer(t testing.TB, cfg privatepg.Config) *privatepg.Server {
	t.Helper()
	s, err := start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start Postgres for the test: %v", err)
	}
	return stopped(t, s)
}

// stopped stops a server at the end of the test.
func stopped(t testing.TB, s *privatepg.Server) *privatepg.Server {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop Postgres in %s: %v", s.Dir(), err)
		}
	})
	return s
}

// NewStandby starts a streaming standby of a server that is the test's own. The test can promote it after crashing the
// primary. The standby reaches the primary by the DSN from; empty: directly.
func NewStandby(t testing.TB, primary *privatepg.Server, from string) *privatepg.Server {
	t.Helper()
	cfg, err := forTests(privatepg.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := primary.Standby(t.Context(), cfg, from)
	if err != nil {
		t.Fatalf("start a standby for the test: %v", err)
	}
	return stopped(t, s)
}

// Promote makes a standby the primary, and returns when it takes writes. The former primary must be gone.
func Promote(t testing.TB, standby *privatepg.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), standby.DSN("postgres"))
	if err != nil {
		t.Fatalf("promote the standby: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var promoted bool
	if err := conn.QueryRow(t.Context(), `SELECT pg_promote(true, 60)`).Scan(&promoted); err != nil || !promoted {
		t.Fatalf("promote the standby: promoted is %t, %v", promoted, err)
	}
}

// Either returns dsn with the TCP addresses of two servers in place of its own. Clients connect to the server that
// takes writes.
func Either(t testing.TB, dsn string, one, other *privatepg.Server) string {
	t.Helper()
	hosts := parse(t, one.TCP("postgres")).Host + "," + parse(t, other.TCP("postgres")).Host
	return Through(t, dsn, hosts) + "&target_session_attrs=read-write"
}

func start(ctx context.Context, cfg privatepg.Config) (*privatepg.Server, error) {
	cfg, err := forTests(cfg)
	if err != nil {
		return nil, err
	}
	return privatepg.Start(ctx, cfg)
}

// forTests fills in what is the same for all tests.
func forTests(cfg privatepg.Config) (privatepg.Config, error) {
	// Not t.TempDir: only this user may enter its parents, and for root, Postgres runs as another user.
	parent := ""
	if cfg.Fast {
		parent = inMemory()
	}
	dir, err := os.MkdirTemp(parent, "punctual-test-")
	if err != nil {
		return cfg, fmt.Errorf("make a directory: %w", err)
	}
	cfg.Dir, cfg.Ephemeral, cfg.TCP = dir, true, true
	settings := map[string]string{"max_connections": "300"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	return cfg, nil
}

// Through returns dsn with another TCP address (host:port) in place of its own, such as that of a proxy in front of the
// server.
func Through(t testing.TB, dsn, addr string) string {
	t.Helper()
	u := parse(t, dsn)
	u.Host = addr
	q := u.Query()
	q.Del("host")
	q.Del("port")
	u.RawQuery = q.Encode()
	return u.String()
}

// throughSocket is Through for a Unix socket.
func throughSocket(t testing.TB, dsn, dir, port string) string {
	t.Helper()
	u := parse(t, dsn)
	u.Host = ""
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", port)
	u.RawQuery = q.Encode()
	return u.String()
}

func parse(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("parse the DSN: %v", err)
	}
	return u
}
