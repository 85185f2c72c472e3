package claim

import (
	"context"
	"fmt"
)

// Unheld selects what parked runs wait for although no replica holds them back for it any more: each tenant and reason
// once.
const Unheld = `
SELECT w.tenant, w.held_by FROM (
    WITH RECURSIVE waits AS (
        (SELECT tenant, waits_on AS held_by FROM punctual.ready WHERE waits = 'host' ORDER BY tenant, waits_on LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.held_by FROM waits w CROSS JOIN LATERAL (
            SELECT r.tenant, r.waits_on AS held_by FROM punctual.ready r
            WHERE r.waits = 'host' AND (r.tenant, r.waits_on) > (w.tenant, w.held_by)
            ORDER BY r.tenant, r.waits_on LIMIT 1) n)
    SELECT tenant, held_by FROM waits) w
WHERE NOT EXISTS (SELECT FROM punctual.holds h WHERE h.tenant = w.tenant AND h.held_by = w.held_by)`

// releaseBatch is how many runs one statement releases.
const releaseBatch = 1000

// ReleaseHeld makes runs ready again that wait for something that no replica holds back any more. The runs keep the
// start and the limit of their wait: a run that is held back again goes on with the same wait.
func (s *Claims) ReleaseHeld(ctx context.Context) error {
	for {
		tag, err := s.db.Chores.Exec(ctx, `
			WITH free AS MATERIALIZED (`+Unheld+`),
			locked AS (SELECT y.run_id FROM free f CROSS JOIN LATERAL (
			    SELECT r.run_id FROM punctual.ready r WHERE r.tenant = f.tenant AND r.waits = 'host'
			    AND r.waits_on = f.held_by ORDER BY r.since LIMIT $1 FOR UPDATE SKIP LOCKED) y LIMIT $1)
			UPDATE punctual.ready y
			SET waits = 'turn', waits_on = NULL, due_at = greatest(now(), r.due_at)
			FROM locked l LEFT JOIN punctual.runs_of(ARRAY(SELECT run_id FROM locked)) r ON r.id = l.run_id
			WHERE y.run_id = l.run_id`, releaseBatch)
		if err != nil {
			return s.db.TookWrite(fmt.Errorf("releasing runs that are no longer held back: %w", err))
		}
		if tag.RowsAffected() > 0 {
			s.db.Wake()
		}
		if tag.RowsAffected() < releaseBatch {
			return nil
		}
	}
}
