//prove:database

package prove

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// The disk is full: tables or the write-ahead log cannot grow. Everything is sent once.
//
// Without room for the log Postgres panics. /readyz, the API and the log say so, as when the database is read-only.
func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*testing.T, *privatepg.Server, *pgtest.Disk, []*process.Replica){
		"tables": fillTables, "write-ahead log": fillWAL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, w := pgtest.NewDisk(t), newWitness(t)
			server := pgtest.NewServer(t, privatepg.Config{Env: disk.Env})
			dsn := pgtest.Database(t, server)
			fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
			s := besiege(t, fleet[0].API, w, 10)
			fill(t, server, disk, fleet)
			ready(t, fleet...)
			s.unharmed(t, dsn)
			stopCalm(t, 200, fleet...)
		})
	}
}

// fillTables keeps tables from growing for some seconds, so that statements fail.
func fillTables(t *testing.T, _ *privatepg.Server, disk *pgtest.Disk, fleet []*process.Replica) {
	disk.Fill(pgtest.Tables)
	began := time.Now()
	for _, r := range fleet {
		notReady(t, r, "disk is full")
		await(t, "the log to say why", func() bool { return strings.Contains(r.Output(), "No space left on device") })
	}
	await(t, "some seconds of it", func() bool { return time.Since(began) > 4*time.Second })
	disk.Clear()
}

// fillWAL keeps the write-ahead log from growing. Postgres then panics, and cannot start again before there is room.
func fillWAL(t *testing.T, server *privatepg.Server, disk *pgtest.Disk, fleet []*process.Replica) {
	disk.Fill(pgtest.WAL)
	began := time.Now()
	await(t, "Postgres to panic", func() bool { return !switchWAL(t.Context(), server) })
	for _, r := range fleet {
		notReady(t, r, "cannot be reached")
	}
	await(t, "some seconds of it", func() bool { return time.Since(began) > 4*time.Second })
	if log, err := os.ReadFile(server.Log()); err != nil ||
		!strings.Contains(string(log), "PANIC:  could not write to file \"pg_wal") {
		t.Errorf("Postgres did not panic: %v\n%s", err, tail(string(log), 2<<10))
	}
	disk.Clear()
	// Postgres has panicked, and may panic again in its recovery. So the test crashes it instead of asking for an orderly
	// shutdown.
	must(t, server.Crash())
	must(t, server.Restart(t.Context()))
}

// switchWAL asks Postgres for a new file of the write-ahead log. It returns false if Postgres is down.
func switchWAL(ctx context.Context, server *privatepg.Server) bool {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `SELECT pg_switch_wal()`)
	return err == nil
}
