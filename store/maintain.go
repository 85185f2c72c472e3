package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"punctual/store/pg"
)

// Now returns the database's clock: the only one that decides anything about schedules.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.db.Conns(ctx).QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("reading the database's clock: %w", err)
	}
	return now.UTC(), nil
}

// Maintain implements scheduler.Store. It does the chores of every replica, each of which several replicas may do at
// once. A chore that fails does not keep the others from being done. Chores that may take long are in Tidy.
func (s *Store) Maintain(ctx context.Context) error {
	ctx = pg.Chores.In(ctx)
	_, partitions := s.EnsurePartitions(ctx)
	if partitions != nil {
		s.alarm(ctx)
	}
	_, cancels := s.ForgetCancels(ctx)
	allowances := s.forgetAllowances(ctx)
	used := s.NoteKeysUsed(ctx)
	gates := s.CheckGates(ctx)
	return errors.Join(partitions, gates, cancels, allowances, used, s.warnOfUnserved(ctx))
}

// alarm logs an error if there will soon be no partition for new runs.
func (s *Store) alarm(ctx context.Context) {
	if days, err := s.DaysAhead(ctx); err == nil && days < 2 {
		s.options.Log.Error("partitions are about to run out: a run cannot be written without the partition of its day",
			"days_ahead", days)
	}
}
