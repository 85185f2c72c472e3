package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

// Pair is a database on a server of its own, and a hot standby of that.
type Pair struct {
	t                testing.TB
	Primary, Standby *privatepg.Server
	DSN, Copy        string // of the database, and of its copy on the standby
}

// NewPair starts the servers of a pair.
func NewPair(t testing.TB) Pair {
	t.Helper()
	primary := NewServer(t, privatepg.Config{Settings: map[string]string{"fsync": "off"}})
	dsn := Doomed(t, primary)
	standby := NewStandby(t, primary, "")
	return Pair{t, primary, standby, TCP(t, primary, dsn), TCP(t, standby, dsn)}
}

// OnStandby runs statements as a superuser on the standby.
func (p Pair) OnStandby(statements ...string) {
	p.t.Helper()
	for _, sql := range statements {
		execute(p.t, p.Standby, "postgres", sql)
	}
}

// Configure changes a setting of the standby, for all that it replays from then on. Before Postgres begins a session
// that knows the new value, it has told all older processes.
func (p Pair) Configure(setting, value string) {
	p.t.Helper()
	p.OnStandby(`ALTER SYSTEM SET `+setting+` = '`+value+`'`, `SELECT pg_reload_conf()`)
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	for known := false; !known; {
		scan(ctx, p.t, p.Standby, `SELECT current_setting('`+setting+`')::interval = '`+value+`'::interval`, &known)
	}
}

// Replayed waits until the standby has all that was committed on the primary.
func (p Pair) Replayed() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	var end string
	scan(ctx, p.t, p.Primary, `SELECT pg_current_wal_insert_lsn()::text`, &end)
	for reached := false; !reached; {
		// The next record may begin behind the header of a page: it takes one to get there.
		execute(p.t, p.Primary, "postgres", `SELECT pg_logical_emit_message(true, '', '')`)
		scan(ctx, p.t, p.Standby, `SELECT pg_last_wal_replay_lsn() >= '`+end+`'`, &reached)
	}
}

func scan(ctx context.Context, t testing.TB, server *privatepg.Server, sql string, into any) {
	t.Helper()
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err == nil {
		err = conn.QueryRow(ctx, sql).Scan(into)
		_ = conn.Close(ctx)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
