package replicas

import (
	"context"

	"punctual/store/pg"
)

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
	_, err = s.db.Chores.Exec(ctx, noteService)
	return false, pg.Wrap("noting which queues are served", err)
}

// NoteReplicas notes that the replicas that there are were seen, about once an hour. So the history names them for as
// long as it has their runs.
func (s *Replicas) NoteReplicas(ctx context.Context) error {
	_, err := s.db.Chores.Exec(ctx, `
		UPDATE punctual.replicas_seen s SET seen_at = now()
		FROM punctual.replicas r
		WHERE r.id = s.id AND s.seen_at < now() - interval '1 hour'`)
	return pg.Wrap("noting the replicas that there are", err)
}
