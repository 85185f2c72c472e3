package claim

import (
	"context"
	"fmt"
	"time"

	"punctual/scheduler"
)

// silentBatch is how many attempts of silent targets one transaction ends.
const silentBatch = 100

// BeatSoon is how far ahead a heartbeat, which comes every two seconds, names a chore that is done at an instant.
const BeatSoon = `interval '2 s'`

// isDeadline is SQL for a row of ready whose due_at is a deadline: of a target that works on, or of a person who is to
// decide. No other claim takes it, because ending an attempt takes no worker slot.
const isDeadline = `waits IN ('target', 'person')`

// selectSilent locks deadlines that have passed. It leaves those of frozen tenants, which delay no others.
const selectSilent = `
SELECT y.run_id, y.job_id, y.tenant, y.lane, y.since, y.until, NULL::tid, now()
FROM punctual.ready y
WHERE ` + isDeadline + ` AND y.due_at <= now()
  AND y.run_id <> ALL((SELECT $2::uuid[])::uuid[])
  AND NOT EXISTS (SELECT FROM punctual.tenants t WHERE t.id = y.tenant AND t.frozen_at IS NOT NULL)
ORDER BY y.due_at LIMIT $1 FOR UPDATE OF y SKIP LOCKED`

// ComeDue is SQL, after WITH, that sets the deadlines of runs ($2) due. free are those whose rows no other transaction
// has locked, and those of them that were not due yet have ended.
const ComeDue = `free AS (
    SELECT run_id, due_at <= now() AS known FROM punctual.ready
    WHERE run_id = ANY((SELECT $2::uuid[])::uuid[]) ORDER BY run_id FOR UPDATE SKIP LOCKED),
ended AS (
    UPDATE punctual.ready y SET due_at = now() FROM free f WHERE y.run_id = f.run_id AND NOT f.known
    RETURNING y.run_id)`

// nextSilent is how long it is until the next deadline.
const nextSilent = `
SELECT min(due_at) - clock_timestamp() FROM punctual.ready
WHERE ` + isDeadline + ` AND due_at > now() AND due_at <= now() + ` + BeatSoon

// AnySilent is true if a deadline has passed or is about to pass.
const AnySilent = `EXISTS (SELECT FROM punctual.ready WHERE ` + isDeadline + ` AND due_at <= now() + ` + BeatSoon + `)`

// EndSilent ends as lost the attempts whose targets answered 202 and have passed their deadlines. It takes no worker
// slot, and no start of a tenant's max_runs_per_second. It returns how long to wait before the next such deadline; left
// is false once none is near.
func (s *Claims) EndSilent(ctx context.Context) (wait time.Duration, left bool, err error) {
	var c *waitingClaim
	more, err := s.through(ctx, &s.sieves.silent, func(ctx context.Context, of taking) (_ []item, _ int, err error) {
		c, err = s.claimWaiting(ctx, scheduler.Claim{}, of, true)
		return c.items(), len(c.deadlines.ended), err
	})
	if err != nil {
		return 0, false, fmt.Errorf("ending attempts whose targets are silent: %w", err)
	}
	if len(c.deadlines.ended) > 0 {
		s.db.Wake() // for a retry, or for the run that waits at the gate
	}
	if more || c.more {
		return 0, true, nil
	}
	var next *time.Duration
	if err := s.db.Runs.QueryRow(ctx, nextSilent).Scan(&next); err != nil {
		return 0, false, fmt.Errorf("looking for the next deadline of a target: %w", err)
	}
	if next == nil {
		return 0, false, nil
	}
	return max(*next, time.Millisecond), true, nil
}
