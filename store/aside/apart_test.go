package aside

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// statement has work end as Postgres ends a statement that takes too long.
func statement(ctx context.Context, takes time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func numbers(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// All items of a tenant may hang, as their outcomes do at a row that all of them write.
func TestManyItemsThatHangKeepOthersWaitingForSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(n int) bool { return 40 <= n && n < 70 }
		done := map[int]time.Duration{}
		begun := time.Now()
		failed, err := Apart(t.Context(), numbers(1, 500), func(ctx context.Context, items []int) error {
			takes := time.Millisecond
			if slices.ContainsFunc(items, hangs) {
				takes = time.Minute
			}
			err := statement(ctx, takes)
			for _, n := range items {
				if err == nil {
					done[n] = time.Since(begun)
				}
			}
			return err
		})
		if err != nil || time.Since(begun) > Parts+10*time.Second {
			t.Errorf("it took %s: %v", time.Since(begun), err)
		}
		for _, n := range numbers(1, 500) {
			left := slices.ContainsFunc(failed, func(f Failed[int]) bool { return f.Item == n })
			if at, is := done[n]; is == left || is && at > Parts+3*time.Second/2 || hangs(n) && is {
				t.Errorf("%d: done %t after %s, left %t", n, is, at, left)
			}
		}
		if len(failed) > 45 {
			t.Errorf("%d are left", len(failed))
		}
	})
}

func TestNothingIsAtFaultOnASlowMachine(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		synctest.Test(t, func(t *testing.T) {
			failed, err := Apart(t.Context(), numbers(1, n), func(ctx context.Context, _ []int) error {
				return statement(ctx, time.Minute)
			})
			if !errors.Is(err, context.DeadlineExceeded) || failed != nil {
				t.Errorf("of %d, %d fail: %v", n, len(failed), err)
			}
		})
	}
}

// However long statements may take by now, a batch is tried in parts before its context ends: else it would fail for
// ever.
func TestPartsAreTriedBeforeTheDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{5 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			done := map[int]bool{}
			failed, err := Apart(ctx, numbers(1, 4), func(ctx context.Context, items []int) error {
				if slices.Contains(items, 2) {
					<-ctx.Done()
					return ctx.Err()
				}
				for _, n := range items {
					done[n] = true
				}
				return nil
			})
			if err != nil || len(failed) != 1 || failed[0].Item != 2 || len(done) != 3 {
				t.Errorf("within %s %v are done, and %v fail: %v", deadline, done, failed, err)
			}
			if ctx.Err() != nil {
				t.Error("nothing could be written after it")
			}
		})
	}
}
