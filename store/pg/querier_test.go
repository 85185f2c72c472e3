package pg

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Query leaves it to the readers of rows to return an error.
func TestTheRowsOfAQueryThatFailsHaveItsError(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), Config{URL: pgtest.DSN(t)})
	must(t, err)
	defer db.Close()
	read := func(ctx context.Context, tenant int32, sql string) error {
		_, err := pgx.CollectRows(Query(ctx, db.Callers.Reader(tenant), sql), pgx.RowTo[int])
		return err
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tenant := range []int32{1, Everybody} {
		for range 2 { // a tenant's first query asks whether the database lets it act as the tenant
			if err := read(ended, tenant, `SELECT 1`); !errors.Is(err, context.Canceled) {
				t.Errorf("tenant %d: once the caller has left: %v", tenant, err)
			}
			if err := read(t.Context(), tenant, `SELECT 1 / 0`); Code(err) != "22012" {
				t.Errorf("tenant %d: a division by zero: %v", tenant, err)
			}
			var n int
			if err := db.Callers.Reader(tenant).QueryRow(t.Context(), `SELECT 1 / 0`).Scan(&n); Code(err) != "22012" {
				t.Errorf("tenant %d: one row of a division by zero: %v", tenant, err)
			}
			err := db.Callers.Reader(tenant).QueryRow(t.Context(), `SELECT 1 WHERE false`).Scan(&n)
			if !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("tenant %d: no row: %v", tenant, err)
			}
		}
	}
	err = db.Callers.InTx(t.Context(), 1, func(tx *Tx) error {
		_ = tx.Rollback(t.Context())
		return Exec(t.Context(), tx, `SELECT 1`)
	})
	if !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("in a transaction that is over: %v", err)
	}
}
