package aside

import (
	"context"
	"errors"
	"time"

	"punctual/store/pg"
)

// Part is how long work on a part of a batch may take. A part is tried because the whole batch failed, so it must not
// hold up the others for as long as a whole batch may: a chore's takes at most Whole. An item that takes longer alone
// is tried once more, for Alone, unless other parts were done at once. All parts are tried for about Parts.
const (
	Whole = 5 * time.Second
	Part  = time.Second
	Alone = 5 * time.Second
	Parts = 4 * time.Second

	quickly = 200 * time.Millisecond
)

// Failed is an item that fails alone.
type Failed[T any] struct {
	Item T
	Err  error
}

// Blames reports whether an error may be one item's fault. It is not if the caller's context has ended, or if the
// database cannot be used for a while, whatever the statement. Work that takes too long may be an item's fault.
func Blames(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (TooSlow(err) || !pg.Away(err))
}

// TooSlow reports whether work was given up because it took too long: one of its statements, or what the replica did
// between two of them. Whether it was committed may then be unknown.
func TooSlow(err error) bool {
	code := pg.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || code == "57014" || // query_canceled
		code == "25P03" // idle_in_transaction_session_timeout
}

// Apart has work done on items: on all together if that is possible, or else on parts. It returns the items that fail
// alone, and after Parts those of which no part was done, if others were done at once. With an error the work on some
// of the items was not done, and is to be done later: the database cannot be used, or nothing at all is done in time.
// Then the machine is slow, and no item is at fault.
//
// Parts are halves of the items as they are ordered, the largest first. So items that may fail for the same reason,
// such as those of a tenant, come next to each other.
//
// If the context has a deadline, all items together are tried for a third of the time at most: else there would be none
// left for their parts, and the same batch would fail for ever.
//
// Work must be idempotent, as a part is done again of which it is not known whether it was committed.
func Apart[T any](
	ctx context.Context, items []T, work func(ctx context.Context, items []T) error,
) (failed []Failed[T], err error) {
	whole, budget := time.Hour, Parts
	if end, is := ctx.Deadline(); is {
		whole = time.Until(end) / 3
		budget = min(budget, whole)
	}
	err = within(ctx, whole, items, work)
	if Blames(ctx, err) && !TooSlow(err) {
		err = within(ctx, whole, items, work)
	}
	if !Blames(ctx, err) || len(items) == 0 {
		return nil, err
	}
	if len(items) == 1 && !TooSlow(err) {
		return []Failed[T]{{items[0], err}}, nil
	}
	begun, limit := time.Now(), Part
	quick, done, refused := false, false, false
	for parts := Halves(items); len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		tried, allowed := time.Now(), limit
		if long := time.Since(begun) > budget; len(part) == 1 && !long {
			allowed = Part
		} else if long {
			allowed = min(limit, quickly)
		}
		err := within(ctx, allowed, part, work)
		if err == nil && len(part) > 1 { // so smaller ones take no longer, unless they hang
			limit = min(max(10*time.Since(tried), quickly), limit)
		}
		quick = quick || err == nil
		if len(part) == 1 && !quick && Blames(ctx, err) && TooSlow(err) {
			err = within(ctx, Alone, part, work) // a slow machine is not its fault
		}
		long := time.Since(begun) > budget
		switch {
		case err == nil:
			done = true
		case !Blames(ctx, err):
			return failed, err
		case len(part) > 1 && !long:
			parts = append(parts, Halves(part)...)
		case long && !quick && TooSlow(err):
			return nil, err
		default:
			refused = refused || !TooSlow(err)
			for _, item := range part {
				failed = append(failed, Failed[T]{item, err})
			}
		}
	}
	if len(failed) > 0 && !done && !refused {
		return nil, failed[0].Err
	}
	return failed, nil
}

// Halves returns the halves of a batch that failed: of a single item, the item.
func Halves[T any](items []T) [][]T {
	if len(items) < 2 {
		return [][]T{items}
	}
	middle := len(items) / 2
	return [][]T{items[:middle:middle], items[middle:]}
}

func within[T any](
	ctx context.Context, limit time.Duration, part []T, work func(ctx context.Context, items []T) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return work(ctx, part)
}
