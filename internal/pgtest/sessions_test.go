package pgtest

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A session that is handed on is as a new one, and has the defaults of the role.
func TestSessionsAreHandedOnAsNew(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), DSN(t)
	open := func() (*pgx.Conn, uint32) {
		conn, err := Connect(ctx, dsn)
		must(t, err)
		return conn, conn.PgConn().PID()
	}
	first, pid := open()
	_, err := first.Exec(ctx, `CREATE TEMP TABLE own (); SET work_mem = '77kB'; SET application_name = 'mine'; LISTEN news;
		PREPARE mine AS SELECT 1; SELECT pg_advisory_lock(7)`, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	must(t, first.Close(ctx))

	again, same := open()
	for bound := time.Now().Add(time.Minute); same != pid; again, same = open() { // it rests when its client has gone
		if time.Now().After(bound) {
			t.Fatal("the session is not handed on")
		}
		other := again // open, so that it is not the one that is handed on
		defer func() { must(t, other.Close(ctx)) }()
	}
	var left []string
	must(t, again.QueryRow(ctx, `
		SELECT array_agg(what) FROM (
			SELECT 'a table' AS what WHERE to_regclass('pg_temp.own') IS NOT NULL
			UNION ALL SELECT 'a setting' WHERE current_setting('work_mem') = '77kB'
			UNION ALL SELECT 'a name' WHERE current_setting('application_name') IN ('mine', 'pgtest')
			UNION ALL SELECT 'a limit of rest' WHERE current_setting('idle_session_timeout') <> $1
			UNION ALL SELECT 'a channel' FROM pg_listening_channels()
			UNION ALL SELECT 'a statement' FROM pg_prepared_statements WHERE name = 'mine'
			UNION ALL SELECT 'a lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) l`,
		"0").Scan(&left))
	if left != nil {
		t.Errorf("the session has still %v", left)
	}

	// One that is left in the middle of a transaction ends.
	_, err = again.Exec(ctx, `BEGIN`)
	must(t, err)
	must(t, again.Close(ctx))
	if fresh, other := open(); other == pid {
		t.Error("a session that was in a transaction is handed on")
	} else {
		must(t, fresh.Close(ctx))
	}
}

// A statement can be cancelled, and a session that ends tells its client.
func TestSessionsPassOnCancellationsAndEnds(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), DSN(t)
	conn, err := Connect(ctx, dsn)
	must(t, err)
	ended, cancelling := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cancelling)
		for {
			select {
			case <-ended:
				return
			default:
				_ = conn.PgConn().CancelRequest(ctx)
			}
		}
	}()
	_, err = conn.Exec(ctx, `SELECT pg_sleep(60)`)
	close(ended)
	<-cancelling
	var said *pgconn.PgError
	if !errors.As(err, &said) || said.Code != "57014" {
		t.Errorf("cancelled: %v", err)
	}
	_ = conn.Close(ctx)

	conn, err = Connect(ctx, dsn)
	must(t, err)
	if _, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`); !errors.As(err, &said) || !conn.IsClosed() {
		t.Errorf("a session that was ended: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
