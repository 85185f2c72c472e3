package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/pg"
)

// A replica that starts makes the partitions that are missing. A session that keeps it from that does not keep it from
// starting.
func TestAReplicaStartsAlthoughItCanMakeNoPartitions(t *testing.T) {
	dsn := pgtest.DSN(t)
	stranger(t, dsn, `
		DO $$ BEGIN
			EXECUTE format('DROP TABLE punctual.runs_%s', pg_catalog.to_char(
				(pg_catalog.now() AT TIME ZONE 'UTC')::date + 7, 'YYYYMMDD'));
		END $$`, `BEGIN`, `LOCK TABLE punctual.runs IN SHARE UPDATE EXCLUSIVE MODE`)
	log := new(bytes.Buffer)
	err := start(t, dsn, log)
	if n := strings.Count(log.String(), "partitions cannot be made"); err != nil || n != 1 {
		t.Errorf("%v; it is logged %d times:\n%s", err, n, log)
	}
}

// A start that waits says so, and continues when it can.
func TestAStartThatWaitsForALockSaysSo(t *testing.T) {
	dsn := pgtest.DSN(t)
	conn := stranger(t, dsn, `BEGIN`, `LOCK TABLE punctual.deployment IN ACCESS EXCLUSIVE MODE`)
	log := &told{of: "the start waits for the database", then: func() {
		if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
			t.Error(err)
		}
	}}
	if err := start(t, dsn, log); err != nil {
		t.Error(err)
	}
}

// told does something when it is told of something.
type told struct {
	of   string
	then func()
}

func (w *told) Write(line []byte) (int, error) {
	if strings.Contains(string(line), w.of) {
		w.then()
	}
	return len(line), nil
}

// stranger runs statements in a session of its own, which ends with the test.
func stranger(t *testing.T, dsn string, statements ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	for _, sql := range append([]string{`SET idle_in_transaction_session_timeout = 0`}, statements...) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// start starts a replica, and stops it as soon as it is ready.
func start(t *testing.T, dsn string, log io.Writer) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	return Run(ctx, Config{
		Store:  store.Options{DatabaseURL: dsn, MaxConns: pg.LeastConns, Master: pgtest.Master(t)},
		Listen: "127.0.0.1:0", Queues: map[string]int{"default": 5}, Version: "test",
		Log: slog.New(slog.NewTextHandler(log, nil)), NoAuth: true,
		Ready: func(string) { stop() },
	})
}
