package pg

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is what reads need: the pool, or the transaction whose own writes the reads must see. As in pgx, the rows of
// a query that fails have its error.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Batcher
}

// Batcher is what reads of several statements need.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Reader returns a Querier that reads for a tenant.
func (p *Pool) Reader(tenant int32) Querier { return p.readerOn(p, tenant) }

func (p *Pool) readerOn(c conns, tenant int32) Querier {
	if tenant == Everybody {
		return c
	}
	return tenantReader{p, c, tenant}
}

// ReadOnly runs work for a tenant on one snapshot, in a transaction that cannot write. A command may take its time
// between two statements, such as for writing a report.
func (p *Pool) ReadOnly(ctx context.Context, tenant int32, work func(tx pgx.Tx) error) error {
	return p.readOnlyOn(ctx, p, tenant, work)
}

func (p *Pool) readOnlyOn(ctx context.Context, c conns, tenant int32, work func(tx pgx.Tx) error) error {
	idle := mayPause
	if p.db.config.Replica {
		idle = mayHang
	}
	begin, err := p.beginFor(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; `+idle+`; `+Uncompiled, tenant)
	if err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{BeginQuery: begin}, work)
}

// Query runs a query. An error is that of the rows, so whoever reads them returns it, such as [pgx.CollectRows].
func Query(ctx context.Context, q Querier, sql string, args ...any) pgx.Rows {
	rows, _ := q.Query(ctx, sql, args...)
	return rows
}

// All returns all rows of a query.
func All[T any](ctx context.Context, q Querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return pgx.CollectRows(Query(ctx, q, sql, args...), scan)
}

// One returns the row of a query that has no more than one. The error is pgx.ErrNoRows if it has none: see Found.
func One[T any](ctx context.Context, q Querier, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	return pgx.CollectExactlyOneRow(Query(ctx, q, sql, args...), scan)
}

// Some reports whether there was the one row that was read. err is the error of reading it.
func Some(err error) (bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Map returns the rows of a query as a map: from their first column to their second.
func Map[K comparable, V any](ctx context.Context, q Querier, sql string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	return all, IntoMap(all)(Query(ctx, q, sql, args...))
}

// Exec executes a statement and reads its rows to the end.
func Exec(ctx context.Context, q Querier, sql string, args ...any) error {
	rows := Query(ctx, q, sql, args...)
	rows.Close()
	return rows.Err()
}

// Clock returns the database's clock: the only one that decides anything about schedules.
func Clock(ctx context.Context, q Querier) (now time.Time, err error) {
	err = q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, Wrap("reading the database's clock", err)
}

// Each calls f after each row, whose columns were scanned to the given places.
func Each(rows pgx.Rows, columns []any, f func()) error {
	_, err := pgx.ForEachRow(rows, columns, func() error {
		f()
		return nil
	})
	return err
}

// Each2 calls f with each row of two columns.
func Each2[A, B any](rows pgx.Rows, f func(A, B)) error {
	var a A
	var b B
	return Each(rows, []any{&a, &b}, func() { f(a, b) })
}

// Each3 calls f with each row of three columns.
func Each3[A, B, C any](rows pgx.Rows, f func(A, B, C)) error {
	var a A
	var b B
	var c C
	return Each(rows, []any{&a, &b, &c}, func() { f(a, b, c) })
}

// Each4 calls f with each row of four columns.
func Each4[A, B, C, D any](rows pgx.Rows, f func(A, B, C, D)) error {
	var a A
	var b B
	var c C
	var d D
	return Each(rows, []any{&a, &b, &c, &d}, func() { f(a, b, c, d) })
}

// Into returns what reads the rows of a batch's query into a list.
func Into[T any](list *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*list, err = pgx.CollectRows(rows, scan)
		return err
	}
}

// IntoPlaces returns what scans the row of a batch's query to the given places.
func IntoPlaces(places ...any) func(pgx.Row) error {
	return func(row pgx.Row) error { return row.Scan(places...) }
}

// IntoOne returns what reads the only row of a batch's query.
func IntoOne[T any](one *T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*one, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	}
}

// IntoMap returns what reads the rows of a batch's query into a map: from their first column to their second.
func IntoMap[K comparable, V any](all map[K]V) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return Each2(rows, func(key K, value V) { all[key] = value })
	}
}

// IntoKeys returns what reads the only column of a batch's query into the keys of a map. Each gets the value.
func IntoKeys[K comparable, V any](all map[K]V, value V) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key K
		return Each(rows, []any{&key}, func() { all[key] = value })
	}
}

// Column returns one value of each row, or of each element of any other list. An array for a statement is one.
func Column[R, T any](rows []R, of func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return values
}

// Texts returns values as texts. As arguments, lists of other types do not work in every mode of queries.
func Texts[T ~string](list []T) []string { return Column(list, func(v T) string { return string(v) }) }

// UTC converts instants that were computed to UTC, except nil ones. Those that are read from the database are in UTC.
func UTC(instants ...*time.Time) {
	for _, t := range instants {
		if t != nil {
			*t = t.UTC()
		}
	}
}

// Stamp returns an instant as texts for people show it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// OrZero returns the value that was read; for null, the zero value.
func OrZero[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// OrNull returns a pointer to a value; nil for the zero value.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return new(v) // &v would allocate for the zero value too
}

// Storable makes text from a target fit for Postgres, which accepts neither NUL nor broken UTF-8.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
