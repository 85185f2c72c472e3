package replicas

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"punctual/store/claim"
	"punctual/store/pg"
)

// EnsureQueues registers new queues and returns the number of each of the given ones. Every replica does so when it
// starts, for the queues that it serves.
func (s *Replicas) EnsureQueues(ctx context.Context, names []string) (map[string]int16, error) {
	names = slices.Sorted(slices.Values(names))
	// ON CONFLICT uses up a number each time, and there are only 8,000. So the statement tries only new names.
	_, err := s.db.Runs.Exec(ctx, `
		INSERT INTO punctual.queues (name)
		SELECT w.name FROM unnest($1::text[]) w(name)
		WHERE NOT EXISTS (SELECT FROM punctual.queues q WHERE q.name = w.name)
		ON CONFLICT DO NOTHING`, names)
	if err != nil {
		return nil, s.db.TookWrite(fmt.Errorf("registering queues: %w", err))
	}
	queues, err := pg.Map[string, int16](ctx, s.db.Runs, `
		SELECT name, id FROM punctual.queues WHERE name = ANY($1::text[])`, names)
	return queues, pg.Wrap("reading queues", err)
}

// Unserved returns the queues that have due work and that no live replica serves.
func (s *Replicas) Unserved(ctx context.Context) ([]string, error) {
	queues, err := pg.All(ctx, s.db.Chores, pgx.RowTo[string], `
		SELECT q.name
		FROM punctual.queues q
		WHERE NOT punctual.is_served(q.name) AND EXISTS (
		    SELECT FROM generate_series(0, 3) p CROSS JOIN LATERAL (
		        (SELECT FROM punctual.schedules s
		         WHERE s.enabled AND s.lane = (q.id * 4 + p)::smallint AND s.next_run_at <= now() LIMIT 1)
		        UNION ALL
		        (SELECT FROM punctual.waiting y
		         WHERE y.lane = (q.id * 4 + p)::smallint AND `+claim.Claimable+` AND y.due_at <= now() LIMIT 1)) due)
		ORDER BY q.name`)
	return queues, pg.Wrap("looking for queues that no replica serves", err)
}

// WarnOfUnserved logs the queues that have due work and that no live replica serves. Replicas may serve one and be
// unable to renew their heartbeats; then another replica would help as little.
func (s *Replicas) WarnOfUnserved(ctx context.Context) error {
	queues, err := s.Unserved(ctx)
	for _, queue := range queues {
		silent, err := pg.All(ctx, s.db.Chores, pgx.RowTo[string], `
			SELECT DISTINCT host FROM punctual.replicas WHERE queues ? $1 AND NOT draining ORDER BY host LIMIT 10`, queue)
		switch {
		case err != nil:
			return pg.Wrap("looking for silent replicas", err)
		case len(silent) > 0:
			s.options.Log.Error("a queue has due work, and the replicas that serve it cannot renew their heartbeats; "+
				"their logs say why", "queue", queue, "hosts", silent)
		default:
			s.options.Log.Error("no live replica serves a queue that has due work; start one with --queues "+queue+"=…",
				"queue", queue)
		}
	}
	return err
}

// noteService extends the present period of service of every queue that a live replica serves, or begins a new one. A
// period that another replica is noting is skipped.
const noteService = `
WITH served AS (
    SELECT q.id AS queue, min(r.started_at) AS started
    FROM punctual.replicas r
    CROSS JOIN jsonb_object_keys(r.queues) AS k(name)
    JOIN punctual.queues q ON q.name = k.name
    WHERE NOT r.draining AND r.renewed_at > now() - interval '6 s' AND r.renewed_at <= now()
    GROUP BY q.id),
latest AS (
    SELECT s.queue, s.started, p.since, p.until
    FROM served s
    LEFT JOIN LATERAL (
        SELECT since, until FROM punctual.service_periods
        WHERE queue = s.queue ORDER BY since DESC LIMIT 1) p ON true),
free AS (
    SELECT p.queue, p.since
    FROM punctual.service_periods p
    JOIN latest l ON l.queue = p.queue AND l.since = p.since
    WHERE l.until BETWEEN now() - interval '30 s' AND now() - interval '8 s'
    ORDER BY p.queue FOR NO KEY UPDATE OF p SKIP LOCKED),
longer AS (
    UPDATE punctual.service_periods p SET until = now()
    FROM free f WHERE p.queue = f.queue AND p.since = f.since)
INSERT INTO punctual.service_periods (queue, since, until, survived)
SELECT queue, now(), now(), coalesce(started < until, false)
FROM latest
WHERE until IS NULL OR until < now() - interval '30 s'
ON CONFLICT DO NOTHING`

// NoteService notes which queues are served, so that it is known later why slots in a gap came late.
func (s *Replicas) NoteService(ctx context.Context) (left bool, err error) {
	return false, pg.Wrap("noting which queues are served", pg.Exec(ctx, s.db.Chores, noteService))
}
