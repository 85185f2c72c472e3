package pg

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// open opens a database with one connection a pool, for a test that may change the settings of the database.
func open(t *testing.T, dsn string, replica bool) *DB {
	t.Helper()
	db, err := Open(t.Context(), Config{URL: dsn, Replica: replica})
	must(t, err)
	t.Cleanup(db.Close)
	return db
}

// readOnly makes all sessions on the database read-only, but not those that are begun from now on.
func readOnly(t *testing.T, db *DB) {
	t.Helper()
	for _, p := range db.pools {
		for _, conn := range p.AcquireAllIdle(t.Context()) {
			_, err := conn.Exec(t.Context(), `SET default_transaction_read_only = on`)
			must(t, err)
			conn.Release()
		}
	}
}

func TestAConnectionToAServerThatBecameAReaderIsLeft(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.DSN(t), true)
	for name, write := range map[string]func(p *Pool) error{
		"a statement": func(p *Pool) error {
			return Exec(t.Context(), p, `UPDATE punctual.queues SET name = name`)
		},
		"a batch": func(p *Pool) error {
			var b pgx.Batch
			b.Queue(ByIndex)
			b.Queue(`UPDATE punctual.queues SET name = name`)
			return p.SendBatch(t.Context(), &b).Close()
		},
		"a transaction": func(p *Pool) error {
			return p.InTx(t.Context(), Everybody, func(tx *Tx) error {
				return Exec(t.Context(), tx, `UPDATE punctual.queues SET name = name`)
			})
		},
	} {
		for _, p := range db.pools {
			must(t, write(p))
		}
		readOnly(t, db)
		db.renewal.last = time.Time{}
		if err := write(db.Runs); Code(err) != "25006" {
			t.Fatalf("%s: %v, want a refusal: the session is not read-only", name, err)
		}
		for _, p := range db.pools {
			if err := write(p); err != nil {
				t.Errorf("%s: pool %s still uses an old connection: %v", name, p.name, err)
			}
		}
	}
}

func TestADatabaseThatStaysReadOnlyCostsFewConnections(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.DSN(t)+"&default_transaction_read_only=on", false)
	before, began := db.Callers.Stat().NewConnsCount(), time.Now()
	for range 500 {
		if err := Exec(t.Context(), db.Callers, `UPDATE punctual.queues SET name = name`); Code(err) != "25006" {
			t.Fatal(err)
		}
	}
	most := 4 * (1 + int64(time.Since(began)/renewEvery))
	if n := db.Callers.Stat().NewConnsCount() - before; n > most {
		t.Errorf("%d connections were made, want at most %d", n, most)
	}
}

// What is prepared on a connection may no longer fit.
func TestAStatementThatNoLongerFitsIsPreparedAnew(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.DSN(t), false)
	read := func() error { return Exec(t.Context(), db.Callers, `SELECT * FROM punctual.queues`, Prepared{}) }
	must(t, Exec(t.Context(), db.Callers, `ALTER TABLE punctual.queues ADD COLUMN before text`))
	for range 10 {
		must(t, read())
	}
	must(t, Exec(t.Context(), db.Callers, `ALTER TABLE punctual.queues ADD COLUMN after text`))
	failed := 0
	for range 10 {
		if read() != nil {
			failed++
		}
	}
	if failed > 2 {
		t.Errorf("%d of 10 uses of a statement failed after its table was changed", failed)
	}
}

func TestAConnectionLivesForMinutes(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]time.Duration{
		pgtest.DSN(t): lifetime, pgtest.DSN(t) + "&pool_max_conn_lifetime=2h": 2 * time.Hour,
	} {
		if got := open(t, dsn, false).Callers.Config().MaxConnLifetime; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
