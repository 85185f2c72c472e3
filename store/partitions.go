package store

import (
	"context"
	"fmt"
	"time"
)

// PartitionsAhead is for how many days daily partitions are made in advance.
const PartitionsAhead = 7

// EnsurePartitions makes the daily partitions that are missing from yesterday to PartitionsAhead days from
// now, and those of the days in between that went by while nothing ran. It returns how many it made.
func (s *Store) EnsurePartitions(ctx context.Context) (int, error) {
	var made int
	err := s.pool.QueryRow(ctx, `
		WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day),
		newest AS (SELECT max(to_date(right(c.relname, 8), 'YYYYMMDD')) AS day
		             FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
		            WHERE i.inhparent = 'punctual.runs'::regclass)
		SELECT punctual.create_partitions(least(today.day - 1, newest.day), today.day + $1::int) FROM today, newest`, PartitionsAhead).Scan(&made)
	if err != nil {
		return 0, fmt.Errorf("making partitions: %w", err)
	}
	return made, nil
}

// partitionsFor makes the partitions that are missing for runs of the given slots.
func (s *Store) partitionsFor(ctx context.Context, slots []time.Time) error {
	_, err := s.pool.Exec(ctx, `
		SELECT punctual.create_partitions(d.day, d.day)
		FROM (SELECT DISTINCT (slot AT TIME ZONE 'UTC')::date AS day FROM unnest($1::timestamptz[]) AS slot) d`, slots)
	if err != nil {
		return fmt.Errorf("making the partitions of slots: %w", err)
	}
	return nil
}
