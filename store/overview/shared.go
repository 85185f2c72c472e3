package overview

import (
	"context"
	"strconv"
	"time"

	"punctual/store/pg"
)

// A board is read once for all who look at it. They look every two seconds each, and as many as there are screens.
const (
	// BoardAge is how old a shared board of a replica may be.
	BoardAge   = time.Second
	boardLimit = 10 * time.Second // for one read, whoever waits for it
)

// seen is a tenant's overview, and when this replica began to read it.
type seen struct {
	Figures
	begun time.Time
}

// SetAge sets how old a shared board may be. At first, only those who look at the same time share one.
func (b *Board) SetAge(age time.Duration) { b.age = age }

// Shared returns the overview of a tenant as it was no longer ago than the set age. All callers of a replica share
// one read.
func (b *Board) Shared(ctx context.Context, tenant int32) (Figures, error) {
	if last, known := b.seen.Load(tenant); known && time.Since(last.(seen).begun) < b.age {
		return last.(seen).Figures, nil
	}
	flight := b.flights.DoChan(strconv.Itoa(int(tenant)), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), boardLimit) // others may wait for it, too
		defer cancel()
		s := seen{begun: time.Now()}
		var err error
		if s.Figures, err = b.Overview(limited, tenant); err == nil {
			b.seen.Store(tenant, s)
		}
		return s.Figures, err
	})
	select {
	case <-ctx.Done():
		return Figures{}, pg.Wrap("reading the overview", ctx.Err())
	case r := <-flight:
		return r.Val.(Figures), r.Err
	}
}
