package scheduler

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/admit"
)

// tellHolds writes what this replica holds back.
func (s *Scheduler) tellHolds(ctx context.Context) (wait time.Duration, left bool, err error) {
	orders, err := s.store.ReportHolds(ctx, s.replica.ID, s.admission.Holds.States())
	s.admission.Holds.Obey(orders) // after an error too: the database has forgotten them
	if err == nil && slices.ContainsFunc(orders, func(o admit.HoldOrder) bool { return o.Reset }) {
		_, err = s.store.ReportHolds(ctx, s.replica.ID, s.admission.Holds.States())
	}
	return 0, false, err
}

// lendSlots lends the worker slots of requests that take very long to other runs.
func (s *Scheduler) lendSlots(context.Context) {
	if n := s.admission.Lend(); n > 0 {
		s.log.Warn(
			"requests in flight for more than a minute use over a quarter of a queue's concurrency; other runs get extra concurrency",
			"requests", n)
	}
}
