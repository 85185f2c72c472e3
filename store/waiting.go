package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Waiting is what a due run waits for.
type Waiting struct {
	For   string     // such as "frozen", "breaker billing.internal:443", "gate", "limit max_concurrent_runs", "slots"
	Since time.Time  // since when the run could have been sent otherwise
	Until *time.Time // only if the run waits for its host: until when at most
}

// RunWaitsFor returns what a tenant's run waits for. It is nil if the run waits for nothing: it is being sent, it has
// ended, or it is not due yet.
func (s *Store) RunWaitsFor(ctx context.Context, tenant int32, run uuid.UUID) (*Waiting, error) {
	return readWaitsFor(ctx, s.db.Conns(ctx), tenant, run)
}

func readWaitsFor(ctx context.Context, q pg.Querier, tenant int32, run uuid.UUID) (*Waiting, error) {
	rows, err := q.Query(ctx, `
		SELECT w.held_by, w.since, w.until FROM (
		    SELECT CASE WHEN punctual.frozen_since(y.tenant) IS NOT NULL THEN 'frozen'
		                ELSE punctual.waits_for(punctual.is_served(q.name), q.name, y.held_by, g.active_run,
		                                        punctual.held_by(u.held_by, u.held_at), y.due_at) END AS held_by,
		           CASE WHEN y.held_by IS NOT NULL THEN y.held_since
		                WHEN g.active_run IS NOT NULL THEN r.due_at
		                ELSE y.due_at END AS since,
		           CASE WHEN y.held_by IS NOT NULL THEN y.held_until END AS until
		    FROM punctual.ready y
		    JOIN punctual.runs r ON r.id = y.run_id AND r.accepted_at IS NULL
		    JOIN punctual.queues q ON q.id = y.lane / 4
		    LEFT JOIN punctual.exclusive g ON g.job_id = y.job_id AND g.active_run <> y.run_id
		    LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
		    WHERE y.run_id = $1 AND y.tenant = $2 AND r.id = $1
		      AND (y.due_at <= now() OR y.held_by IS NOT NULL OR g.active_run IS NOT NULL)) w
		WHERE w.held_by IS NOT NULL`, run, tenant)
	if err != nil {
		return nil, fmt.Errorf("reading what run %s waits for: %w", run, err)
	}
	w, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Waiting])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // it waits for nothing
	}
	if err != nil {
		return nil, fmt.Errorf("reading what run %s waits for: %w", run, err)
	}
	pg.UTC(&w.Since, w.Until)
	return w, nil
}

// unserved returns the queues that have due work and that no live replica serves.
func (s *Store) unserved(ctx context.Context) ([]string, error) {
	rows, err := s.db.Conns(ctx).Query(ctx, `
		SELECT q.name FROM punctual.queues q WHERE NOT punctual.is_served(q.name) AND EXISTS (
		    SELECT FROM generate_series(0, 3) p CROSS JOIN LATERAL (
		        (SELECT FROM punctual.schedules s
		         WHERE s.enabled AND s.lane = (q.id * 4 + p)::smallint AND s.next_run_at <= now() LIMIT 1)
		        UNION ALL
		        (SELECT FROM punctual.ready y WHERE y.lane = (q.id * 4 + p)::smallint AND y.due_at <= now() LIMIT 1)) due)
		ORDER BY q.name`)
	if err != nil {
		return nil, fmt.Errorf("looking for queues that no replica serves: %w", err)
	}
	queues, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return queues, pg.Wrap("looking for queues that no replica serves", err)
}

// warnOfUnserved logs the queues that have due work and that no live replica serves.
func (s *Store) warnOfUnserved(ctx context.Context) error {
	queues, err := s.unserved(ctx)
	for _, queue := range queues {
		s.options.Log.Error("no live replica serves a queue that has due work; start one with --queues "+queue+"=…",
			"queue", queue)
	}
	return err
}
