package aside

import (
	"context"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Rows are those among which an item is sought that cannot even be read: rows of a table, each with the item's id, of
// which a condition is true.
type Rows struct {
	Kind           Kind
	Table, ID, Are string
}

// reading bounds a statement that reads such rows. One that reads a part of them is bounded by many times what it
// takes to read none, within leastReadingPart and mostReadingPart: about 60 of them hang until the row is found.
const (
	reading          = 500 * time.Millisecond
	leastReadingPart = 20 * time.Millisecond
	mostReadingPart  = 100 * time.Millisecond
)

// SetUnreadable sets the item aside whose row cannot be read, after the selection of a batch has failed: that does not
// say by which row. It reports whether there is one. Then the next selection passes over it.
func (a *Aside) SetUnreadable(ctx context.Context, among Rows, cause error) bool {
	if !Blames(ctx, cause) {
		return false
	}
	read := func(limit time.Duration, first, last uuid.UUID) error {
		var b pgx.Batch
		b.Queue(pg.ByIndex+`, set_config('statement_timeout', $1::int::text, true)`, limit.Milliseconds())
		b.Queue(`SELECT count(r::text) FROM punctual.`+among.Table+` r
			WHERE r.`+among.ID+` BETWEEN $1 AND $2 AND r.`+among.ID+` <> ALL($3::uuid[]) AND `+among.Are,
			first, last, a.Resting(among.Kind))
		return a.db.Chores.SendBatch(ctx, &b).Close()
	}
	id, found := unreadable(ctx, read)
	return found && a.Put(ctx, a.Whose(ctx, Item{Kind: among.Kind, ID: id}), cause)
}

// selections is how often Select tries. To find a row takes seconds, and other work waits for its turn: what further
// rows there are is found the next time.
const selections = 3

// Select selects the items of a batch within Whole. If the row of one cannot be read, that item is set aside, and the
// others are selected. The statement's last argument is the items that it has to pass over.
func (a *Aside) Select(
	ctx context.Context, p *pg.Pool, among Rows, statement string, arguments ...any,
) (items []uuid.UUID, err error) {
	for range selections {
		err = within(ctx, Whole, nil, func(ctx context.Context, _ []uuid.UUID) (err error) {
			items, err = pg.All(ctx, p, pgx.RowTo[uuid.UUID], statement,
				append(slices.Clone(arguments), a.Resting(among.Kind))...)
			return err
		})
		if err == nil || !a.SetUnreadable(ctx, among, err) {
			break
		}
	}
	return items, err
}

// unreadable finds a row that cannot be read, by halves of the range of all ids.
func unreadable(
	ctx context.Context, read func(limit time.Duration, first, last uuid.UUID) error,
) (id uuid.UUID, found bool) {
	first, last := uuid.Nil, uuid.Max
	begun := time.Now()
	if read(reading, uuid.Nil, uuid.Nil) != nil { // nothing can be read, or all takes long
		return uuid.Nil, false
	}
	part := min(max(20*time.Since(begun), leastReadingPart), mostReadingPart)
	if !Blames(ctx, read(reading, first, last)) {
		return uuid.Nil, false
	}
	for first != last {
		middle := plus(first, new(big.Int).Rsh(new(big.Int).Sub(number(last), number(first)), 1))
		if Blames(ctx, read(part, first, middle)) {
			last = middle
		} else {
			first = plus(middle, big.NewInt(1))
		}
		if ctx.Err() != nil {
			return uuid.Nil, false
		}
	}
	if !Blames(ctx, read(reading, first, last)) { // so many rows have taken too long
		return uuid.Nil, false
	}
	return first, read(part, uuid.Nil, uuid.Nil) == nil // else all takes long
}

func number(id uuid.UUID) *big.Int { return new(big.Int).SetBytes(id[:]) }

func plus(id uuid.UUID, n *big.Int) (sum uuid.UUID) {
	new(big.Int).Add(number(id), n).FillBytes(sum[:])
	return sum
}
