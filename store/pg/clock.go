package pg

import (
	"context"
	"fmt"
	"time"
)

// Clock returns the database's clock: the only one that decides anything about schedules.
func Clock(ctx context.Context, q Querier) (now time.Time, err error) {
	if err := q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return now, fmt.Errorf("reading the database's clock: %w", err)
	}
	return now.UTC(), nil
}

// Stamp returns an instant as texts for people show it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
