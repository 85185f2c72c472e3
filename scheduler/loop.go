package scheduler

import (
	"context"
	"time"

	"punctual/scheduler/domain"
)

// every calls work at once and then each period, until ctx ends. The period varies a little, so that replicas do not
// march in step. A call that takes longer than the period delays the next one.
func every(ctx context.Context, period time.Duration, work func(context.Context)) {
	for ctx.Err() == nil {
		work(ctx)
		sleep(ctx, domain.About(period))
	}
}

// steadily calls work at once and then each period, until ctx ends. The period counts from the start of one call to the
// start of the next, so a call that takes longer than the period is followed by the next one at once.
func steadily(ctx context.Context, period time.Duration, work func(context.Context)) {
	for ctx.Err() == nil {
		began := time.Now()
		work(ctx)
		sleep(ctx, domain.About(period)-time.Since(began))
	}
}

// sleep waits for d or for the end of ctx, whichever comes first.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// outlast returns a context that ends d after ctx does.
func outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { sleep(longer, d); cancel() })
	return longer, func() { stop(); cancel() }
}
