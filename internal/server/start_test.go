package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/pg"
)

// A replica that starts makes the partitions that are missing. A session that keeps it from that does not keep it from
// starting.
func TestAReplicaStartsAlthoughItCanMakeNoPartitions(t *testing.T) {
	dsn := pgtest.DSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{
		`
		DO $$ BEGIN
			EXECUTE format('DROP TABLE punctual.runs_%s', pg_catalog.to_char(
				(pg_catalog.now() AT TIME ZONE 'UTC')::date + 7, 'YYYYMMDD'));
		END $$`, `SET idle_in_transaction_session_timeout = 0`, `BEGIN`, `LOCK TABLE punctual.runs IN SHARE UPDATE EXCLUSIVE MODE`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	log := new(bytes.Buffer)
	err = Run(ctx, Config{
		Store:  store.Options{DatabaseURL: dsn, MaxConns: pg.LeastConns, Master: pgtest.Master(t)},
		Listen: "127.0.0.1:0", Queues: map[string]int{"default": 5}, Version: "test",
		Log: slog.New(slog.NewTextHandler(log, nil)), NoAuth: true,
		Ready: func(string) { stop() },
	})
	if n := strings.Count(log.String(), "partitions cannot be made"); err != nil || n != 1 {
		t.Errorf("%v; it is logged %d times:\n%s", err, n, log)
	}
}
