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
	if err := s.pool.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("reading the database's clock: %w", err)
	}
	return now.UTC(), nil
}

// Maintain implements scheduler.Store: the chores of every replica, each safe to be done by several at
// once. One that fails does not keep the others from being done.
func (s *Store) Maintain(ctx context.Context) error {
	_, partitions := s.EnsurePartitions(ctx)
	_, keys := s.ForgetIdempotencyKeys(ctx)
	_, jobs := s.ForgetCompletedJobs(ctx)
	_, cancels := s.ForgetCancels(ctx)
	return errors.Join(partitions, keys, jobs, cancels)
}
