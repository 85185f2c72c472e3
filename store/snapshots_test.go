package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	. "punctual/internal/storetest"
)

// Transactions of an application keep old rows while they are open, whether or not the role may see when they began.
func TestTheOldestSnapshotIsFound(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.Database(t, server)
	c := NewFixtureOn(t, dsn)
	await := func(what string, is func(age time.Duration) bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; {
			age, err := c.OldestSnapshot(t.Context())
			Must(t, err)
			if is(age) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("waited in vain for %s: %s", what, age)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	own, err := pgx.ParseConfig(dsn)
	Must(t, err)
	for _, hidden := range []string{dsn, server.DSN(own.Database)} {
		for name, begin := range map[string]string{
			"a reader": `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM punctual.jobs`,
			"a writer": `BEGIN; SELECT pg_current_xact_id()`,
		} {
			conn, err := pgtest.Connect(t.Context(), hidden)
			Must(t, err)
			_, err = conn.Exec(t.Context(), begin, pgx.QueryExecModeSimpleProtocol)
			Must(t, err)
			await("the snapshot of "+name, func(age time.Duration) bool { return age > 500*time.Millisecond })
			Must(t, conn.Close(t.Context()))
			await("the end of "+name, func(age time.Duration) bool { return age < 500*time.Millisecond })
		}
	}
}
