//prove:database

package prove

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// All backends are terminated every 200 ms. Everything is sent once, and no attempt fails.
//
// For 8 s.
func TestTerminatedBackendsLoseNothing(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	s := besiege(t, fleet[0].API, w, 10)
	conn, killed := connect(t, dsn), 0
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for until := s.end().Add(-time.Second); killed < 10 || time.Now().Before(until); <-tick.C {
		if time.Now().After(s.end().Add(patience)) {
			t.Fatalf("waited in vain for ten connections to terminate; there were %d", killed)
		}
		killed += query[int](t, conn, `
			SELECT count(pg_terminate_backend(pid))
			FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'punctual'`)
	}
	s.unharmed(t, dsn)
	t.Logf("%d connections were terminated", killed)
	stopCalm(t, 400, fleet...)
}

// notReady waits until a replica is not ready for the given reason.
func notReady(t testing.TB, r *process.Replica, why string) {
	t.Helper()
	await(t, "/readyz to say "+why, func() bool {
		status, err := r.API.Do(t.Context(), "GET", "/readyz", nil, nil)
		return status == 503 && strings.Contains(err.Error(), why)
	})
}

func ready(t testing.TB, replicas ...*process.Replica) {
	t.Helper()
	for _, r := range replicas {
		await(t, "/readyz to be content", func() bool {
			status, _ := r.API.Do(t.Context(), "GET", "/readyz", nil, nil)
			return status == 200
		})
	}
}

// configure changes a setting of a server for all sessions, including open ones.
func configure(t testing.TB, server *privatepg.Server, setting string) {
	t.Helper()
	administer(t, server, `SET default_transaction_read_only = off`, `ALTER SYSTEM SET `+setting, `SELECT pg_reload_conf()`)
}

// administer runs statements as a superuser, on a connection that it closes.
func administer(t testing.TB, server *privatepg.Server, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// The database is read-only for 5 s. Everything is sent once; `/readyz`, the API and the log say so.
//
// The API answers 503. The log says why without flooding.
func TestAReadOnlyDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	server, w := pgtest.NewServer(t, privatepg.Config{}), newWitness(t)
	dsn := pgtest.Database(t, server)
	w.Script("/slow", Answer{Hang: true})
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	create(t, fleet[0].API, job("slow", w.URL+"/slow", process.JobSpec{"concurrency_policy": "forbid", "timeout": "5m"}))
	trigger(t, fleet[0].API, "slow")
	s := besiege(t, fleet[0].API, w, 10)
	await(t, "the slow request", func() bool { return len(w.At("/slow")) == 1 })

	configure(t, server, `default_transaction_read_only = on`)
	began := time.Now()
	for _, r := range fleet {
		notReady(t, r, "read-only")
	}
	status, err := fleet[0].API.Do(t.Context(), "POST", "/v1/jobs", job("refused", w.URL, nil), nil)
	if status != 503 || !strings.Contains(err.Error(), "database_unavailable") {
		t.Errorf("a job that cannot be written is answered with %d: %v", status, err)
	}
	w.Release("/slow") // the answer comes while its outcome cannot be written
	await(t, "some seconds of it", func() bool { return time.Since(began) > 5*time.Second })
	configure(t, server, `default_transaction_read_only = off`)
	ready(t, fleet...)
	for _, r := range fleet {
		if !strings.Contains(r.Output(), "read-only transaction") {
			t.Error("the log does not say why")
		}
	}
	s.unharmed(t, dsn)
	stopCalm(t, 200, fleet...)
}
