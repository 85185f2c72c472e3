package pg

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// firstRow is the first of some rows, as QueryRow returns it.
type firstRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements pgx.Row.
func (r firstRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// refusedBatch is a batch of which no statement was executed.
type refusedBatch struct{ err error }

func (b refusedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b refusedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b refusedBatch) QueryRow() pgx.Row                { return firstRow{err: b.err} }
func (b refusedBatch) Tx() pgx.Tx                       { return nil }
func (b refusedBatch) Close() error                     { return b.err }
