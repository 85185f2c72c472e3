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

// maintain does what is soon done and may be done by several replicas at once, such as creating partitions ahead. A
// part that fails does not keep the others from being done. What may take long is in tidyUp.
func (s *Store) maintain(ctx context.Context) (left bool, err error) {
	ctx = pg.Chores.In(ctx)
	_, partitions := s.Days.Ensure(ctx)
	if partitions != nil {
		s.alarm(ctx)
	}
	_, cancels := s.ForgetCancels(ctx)
	allowances := s.ForgetAllowances(ctx)
	used := s.NoteKeysUsed(ctx)
	gates := s.CheckGates(ctx)
	return false, errors.Join(partitions, gates, cancels, allowances, used, s.WarnOfUnserved(ctx))
}

// alarm logs an error if there will soon be no partition for new runs.
func (s *Store) alarm(ctx context.Context) {
	if ahead, err := s.Days.Ahead(ctx); err == nil && ahead < 2 {
		s.options.Log.Error("partitions are about to run out: a run cannot be written without the partition of its day",
			"days_ahead", ahead)
	}
}
