package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Briskly is ByIndex for a batch of a chore that gets smaller if a statement takes long: one may hang at some row.
const Briskly = ByIndex + `, set_config('statement_timeout', '2s', true)`

// ForgetBatch is how many rows one transaction of a chore deletes.
const ForgetBatch = 1000

// oldestFirst has a batch read no row that is not among its oldest.
const oldestFirst = Briskly + `, set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// mostStuck is how many rows of a table that cannot be deleted ForgetOld passes over.
const mostStuck = 100

// timedOut is the SQLSTATE of a statement that took too long (query_canceled): it may hang at one row.
const timedOut = "57014"

// halfIsRead is how long the search for a row that cannot be read waits for a part of the rows. About 50 parts of a
// row that hangs take as long.
const halfIsRead = 100 * time.Millisecond

// ForgetOld deletes the rows of a table in which the column instant is older than age, oldest first. A deleted row
// stays in the column's index as long as an old snapshot sees it. So each batch starts behind the one before. A row
// that cannot be read or deleted keeps no other: a batch that fails is made smaller, and passes over the instant of the
// row that fails alone. The error is then that row's.
func ForgetOld(
	ctx context.Context, p *Pool, table, instant string, key []string, age time.Duration,
) (int, bool, error) {
	columns := key
	if !slices.Contains(key, instant) {
		columns = append(slices.Clip(key), instant)
	}
	same := make([]string, len(key))
	for i, column := range key {
		same[i] = fmt.Sprintf("d.%[1]s = old.%[1]s", column)
	}
	f := forgetting{
		pool: p, age: age, size: ForgetBatch, over: []time.Time{}, sql: fmt.Sprintf(`
		WITH old AS (
		    SELECT %[3]s FROM punctual.%[1]s
		    WHERE %[2]s < now() - $1::interval AND %[2]s >= $2 AND %[2]s <> ALL($4::timestamptz[])
		    ORDER BY %[2]s LIMIT $3 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM punctual.%[1]s d USING old WHERE %[4]s RETURNING old.%[2]s)
		SELECT count(*), coalesce(max(%[2]s), $2) FROM gone`,
			table, instant, strings.Join(columns, ", "), strings.Join(same, " AND ")),
		read: fmt.Sprintf(`
		SELECT min(%[2]s), count(r::text) FROM punctual.%[1]s r
		WHERE %[2]s >= $2 AND %[2]s <= $3 AND %[2]s < now() - $1::interval AND %[2]s <> ALL($4::timestamptz[])`,
			table, instant),
	}
	n, left, err := Repeat(ctx, ForgetBatch, f.batch)
	return n, left, Wrap("removing old rows of "+table, errors.Join(f.stuck, err))
}

// forgetting is the removal of the old rows of a table.
type forgetting struct {
	pool      *Pool
	sql, read string
	age       time.Duration
	after     time.Time   // the newest instant of the rows that are gone
	size      int         // of the next batch
	over      []time.Time // the instants of rows that cannot be removed
	stuck     error       // why the last of these could not
}

// batch removes a batch of rows. It says that it found a whole one unless there are no more.
func (f *forgetting) batch(ctx context.Context) (found, gone int, err error) {
	for {
		var b pgx.Batch
		b.Queue(oldestFirst)
		b.Queue(f.sql, f.age, f.after, f.size, f.over).QueryRow(IntoPlaces(&gone, &f.after))
		err = f.pool.SendBatch(ctx, &b).Close()
		switch {
		case err == nil && gone < f.size:
			return gone, gone, nil
		case err == nil:
			f.size = min(2*f.size, ForgetBatch)
			return ForgetBatch, gone, nil
		case ctx.Err() != nil || Away(err) && Code(err) != timedOut || len(f.over) >= mostStuck:
			return 0, 0, err
		case f.size > 1:
			f.size = max(f.size/32, 1)
		default:
			oldest, found := f.oldest(ctx)
			if !found {
				return 0, 0, err
			}
			f.over, f.stuck = append(f.over, oldest), err
		}
	}
}

// oldest returns the instant of the oldest row: of that which cannot be deleted, or else of the one that cannot even be
// read, which it finds by halves of the time.
func (f *forgetting) oldest(ctx context.Context) (at time.Time, found bool) {
	first, last := f.after, time.Now()
	if first.IsZero() {
		first = time.Unix(0, 0)
	}
	look := func(limit time.Duration, first, last time.Time) (oldest *time.Time, err error) {
		var n int
		var b pgx.Batch
		b.Queue(ByIndex+`, set_config('statement_timeout', $1::int::text, true)`, limit.Milliseconds())
		b.Queue(f.read, f.age, first, last, f.over).QueryRow(IntoPlaces(&oldest, &n))
		return oldest, f.pool.SendBatch(ctx, &b).Close()
	}
	oldest, err := look(2*time.Second, first, last)
	for err != nil && last.Sub(first) >= time.Microsecond && ctx.Err() == nil {
		middle := first.Add(last.Sub(first) / 2).Truncate(time.Microsecond)
		if _, err := look(halfIsRead, first, middle); err != nil {
			last = middle
		} else {
			first = middle.Add(time.Microsecond)
		}
	}
	if err != nil {
		return first.Truncate(time.Microsecond), ctx.Err() == nil
	}
	return OrZero(oldest), oldest != nil
}

// repeatFor is how long Repeat starts further batches, so that other chores have their turn.
const repeatFor = 10 * time.Second

// Repeat runs batch after batch until one finds fewer than size rows, or until the time is up; then left is true. A
// batch returns how many rows it found and how many of them it deleted.
func Repeat(
	ctx context.Context, size int, batch func(context.Context) (found, gone int, err error),
) (total int, left bool, err error) {
	for begun := time.Now(); ; {
		found, gone, err := batch(ctx)
		total += gone
		if err != nil || found < size {
			return total, false, err
		}
		if time.Since(begun) > repeatFor {
			return total, true, nil
		}
	}
}
