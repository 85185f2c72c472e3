package scheduler

import (
	"context"
	"time"

	"punctual/scheduler/domain"
)

// replace claims the due slots of jobs whose runs in flight here they are to replace. The tick loop claims nothing
// while no worker slot is free, or while a tenant has as many runs as it may have. So a run that hangs in the last of
// them would block the very slot that is to end it.
func (s *Scheduler) replace(ctx context.Context) (wait time.Duration, left bool, err error) {
	jobs := s.flights.replaceable()
	if len(jobs) == 0 || s.freezing.on() || s.heart.watch.expired(time.Now()) {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	batch, err := s.store.ClaimDue(ctx, Claim{Replica: s.replica.ID, Work: domain.WorkDue, Replacing: jobs})
	return 0, batch.Settled > 0, err
}
