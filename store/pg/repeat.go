package pg

import (
	"context"
	"time"
)

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
