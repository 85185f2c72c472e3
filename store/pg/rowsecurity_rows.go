package pg

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// batchRows are the rows of a batch's last statement. They end with the batch, and the batch ends its transaction. So
// an error of the transaction's end becomes theirs.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // of the batch's end
	closed  bool
}

// Next implements pgx.Rows.
func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *batchRows) Close() {
	r.Rows.Close()
	if !r.closed {
		r.closed = true
		r.err = r.results.Close()
	}
}

// Err implements pgx.Rows.
func (r *batchRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// batchRow is the row of a batch's last statement. It ends with the batch, as batchRows do.
type batchRow struct {
	pgx.Row
	results pgx.BatchResults
}

// Scan implements pgx.Row. That a batch did not end well says more than that it had no row.
func (r batchRow) Scan(dest ...any) (err error) {
	defer func() {
		if ended := r.results.Close(); ended != nil && (err == nil || errors.Is(err, pgx.ErrNoRows)) {
			err = ended
		}
	}()
	return r.Row.Scan(dest...)
}
