package pg

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ForgetBatch is how many rows one transaction of a chore deletes.
const ForgetBatch = 1000

// ForgetOld deletes the rows of a table in which the column instant is older than age, oldest first. A deleted row
// stays in the column's index as long as an old snapshot sees it. So each batch starts behind the one before.
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
	sql := fmt.Sprintf(`
		WITH old AS (
		    SELECT %[3]s FROM punctual.%[1]s
		    WHERE %[2]s < now() - $1::interval AND %[2]s >= $2
		    ORDER BY %[2]s LIMIT $3 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM punctual.%[1]s d USING old WHERE %[4]s RETURNING old.%[2]s)
		SELECT count(*), coalesce(max(%[2]s), $2) FROM gone`,
		table, instant, strings.Join(columns, ", "), strings.Join(same, " AND "))
	var after time.Time
	n, left, err := Repeat(ctx, ForgetBatch, func(ctx context.Context) (found, gone int, err error) {
		var b pgx.Batch
		b.Queue(ByIndex)
		b.Queue(sql, age, after, ForgetBatch).QueryRow(IntoPlaces(&gone, &after))
		err = p.SendBatch(ctx, &b).Close()
		return gone, gone, err
	})
	return n, left, Wrap("removing old rows of "+table, err)
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
