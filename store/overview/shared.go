package overview

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"punctual/store/pg"
)

// A board is read once for all who look at it. They look every two seconds each, and as many as there are screens.
const (
	// BoardAge is how old a shared board of a replica may be.
	BoardAge   = time.Second
	boardLimit = 10 * time.Second // for one read, whoever waits for it
)

// shared is what callers of a replica share, by tenant.
type shared[T any] struct {
	flights singleflight.Group
	seen    sync.Map // tenant to seen[T]
}

// seen is what was read, and when this replica began to read it.
type seen[T any] struct {
	what  T
	begun time.Time
}

// SetAge sets how old a shared board may be. At first, only those who look at the same time share one.
func (b *Board) SetAge(age time.Duration) { b.age = age }

// Shared returns the overview of a tenant as it was no longer ago than the set age. All callers of a replica share
// one read.
func (b *Board) Shared(ctx context.Context, tenant int32) (Figures, error) {
	return b.boards.get(ctx, tenant, b.age, "reading the overview", b.Overview)
}

// get returns what read has returned no longer ago than age.
func (s *shared[T]) get(
	ctx context.Context, tenant int32, age time.Duration, does string, read func(context.Context, int32) (T, error),
) (none T, err error) {
	if last, known := s.seen.Load(tenant); known && time.Since(last.(seen[T]).begun) < age {
		return last.(seen[T]).what, nil
	}
	flight := s.flights.DoChan(strconv.Itoa(int(tenant)), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), boardLimit) // others may wait for it, too
		defer cancel()
		return s.renew(limited, tenant, read)
	})
	select {
	case <-ctx.Done():
		return none, pg.Wrap(does, ctx.Err())
	case r := <-flight:
		return r.Val.(T), r.Err
	}
}

// renew reads, for those who come next, too.
func (s *shared[T]) renew(ctx context.Context, tenant int32, read func(context.Context, int32) (T, error)) (T, error) {
	begun := time.Now()
	what, err := read(ctx, tenant)
	if err == nil {
		s.seen.Store(tenant, seen[T]{what, begun})
	}
	return what, err
}
