package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Now returns the database's clock: the only one that decides anything about schedules.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.conns(ctx).QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("reading the database's clock: %w", err)
	}
	return now.UTC(), nil
}

// Maintain implements scheduler.Store: the chores of every replica, each safe to be done by several at
// once. One that fails does not keep the others from being done. The first call, with which a replica
// starts, leaves out what may take long.
func (s *Store) Maintain(ctx context.Context) error {
	ctx = forChores.in(ctx)
	_, partitions := s.EnsurePartitions(ctx)
	if partitions != nil {
		s.alarm(ctx)
	}
	_, keys := s.ForgetIdempotencyKeys(ctx)
	_, jobs := s.ForgetCompletedJobs(ctx)
	_, cancels := s.ForgetCancels(ctx)
	allowances := s.forgetAllowances(ctx)
	used := s.NoteKeysUsed(ctx)
	gates := s.CheckGates(ctx)
	var old error
	if s.tidy.started.Swap(true) {
		old = s.Tidy(ctx)
	}
	return errors.Join(partitions, keys, jobs, cancels, allowances, used, gates, old, s.warnOfUnserved(ctx))
}

// alarm says so when runs are about to have nowhere to go.
func (s *Store) alarm(ctx context.Context) {
	if days, err := s.DaysAhead(ctx); err == nil && days < 2 {
		s.options.Log.Error("partitions are about to run out: without that of its day no run can be written", "days_ahead", days)
	}
}
