package scheduler

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/domain"
)

// tellHolds writes what this replica holds back.
func (s *Scheduler) tellHolds(ctx context.Context) (wait time.Duration, left bool, err error) {
	orders, err := s.store.ReportHolds(ctx, s.replica.ID, s.holds.states())
	s.holds.obey(orders) // after an error too: the database has forgotten them
	if err == nil && slices.ContainsFunc(orders, func(o HoldOrder) bool { return o.Reset }) {
		_, err = s.store.ReportHolds(ctx, s.replica.ID, s.holds.states())
	}
	return 0, false, err
}

// lendSlots lends the worker slots of requests that take very long to other runs.
func (s *Scheduler) lendSlots(context.Context) {
	lent := s.holds.hangs.Long()
	for _, l := range lent {
		s.slots.lend(l.Queue, domain.Work(l.Work), 1)
	}
	if len(lent) > 0 {
		s.slots.wake()
		s.log.Warn(
			"requests in flight for more than a minute use over a quarter of a queue's concurrency; other runs get extra concurrency",
			"requests", len(lent))
	}
}
