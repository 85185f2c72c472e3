package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// silentBatch is how many attempts of silent targets one transaction ends.
const silentBatch = 100

// BeatSoon is how far ahead a heartbeat, which comes every two seconds, names a chore that is done at an instant.
const BeatSoon = `interval '2 s'`

// selectSilent locks deadlines that have passed. The deadline of a target that works on waits in a lane of its queue
// that no claim reads, because ending an attempt takes no worker slot. It leaves those of frozen tenants, which delay
// no others.
const selectSilent = `
SELECT s.*, now() FROM punctual.queues q CROSS JOIN LATERAL (
    SELECT y.run_id, y.job_id, y.tenant, y.lane, y.held_by, y.held_since, y.held_until, NULL::tid FROM punctual.ready y
    WHERE y.lane = (-1 - q.id)::smallint AND y.due_at <= now()
      AND y.run_id <> ALL((SELECT $2::uuid[])::uuid[])
      AND NOT EXISTS (SELECT FROM punctual.tenants t WHERE t.id = y.tenant AND t.frozen_at IS NOT NULL)
    ORDER BY y.due_at LIMIT $1 FOR UPDATE OF y SKIP LOCKED) s LIMIT $1`

// nextSilent is how long it is until the next deadline in any queue.
const nextSilent = `SELECT min(d.due_at) - clock_timestamp() FROM punctual.queues q CROSS JOIN LATERAL (
    SELECT y.due_at FROM punctual.ready y
    WHERE y.lane = (-1 - q.id)::smallint AND y.due_at > now() ORDER BY y.due_at LIMIT 1) d
WHERE d.due_at <= now() + ` + BeatSoon

// AnySilent is true if a deadline has passed or is about to pass.
const AnySilent = `EXISTS (SELECT FROM punctual.queues q CROSS JOIN LATERAL (
    SELECT FROM punctual.ready y
    WHERE y.lane = (-1 - q.id)::smallint AND y.due_at <= now() + ` + BeatSoon + ` LIMIT 1) d)`

// heedReports ends attempts of overdue targets as followers decide. It puts off those that wait for a transaction of
// their target.
func (c *readyClaim) heedReports(ctx context.Context) error {
	if len(c.ended) == 0 {
		return nil
	}
	decided, err := decide(ctx, c.conn, c.following, c.ended)
	if err != nil {
		return err
	}
	c.ended = decided.write
	for _, o := range decided.wait {
		c.putOff(o.RunID, gateRetry)
		c.leave = slices.DeleteFunc(c.leave, func(run uuid.UUID) bool { return run == o.RunID })
	}
	return nil
}

// EndSilent ends as lost the attempts whose targets answered 202 and have passed their deadlines. It takes no worker
// slot, and no start of a tenant's max_runs_per_second. It returns how long to wait before the next such deadline; left
// is false once none is near.
func (s *Claims) EndSilent(ctx context.Context) (wait time.Duration, left bool, err error) {
	var c readyClaim
	more, err := s.through(ctx, &s.sieves.silent, func(ctx context.Context, of taking) (_ []item, _ int, err error) {
		c, err = s.claimReady(ctx, readyClaim{silent: true, taking: of})
		return c.items(), len(c.ended), err
	})
	if err != nil {
		return 0, false, fmt.Errorf("ending attempts whose targets are silent: %w", err)
	}
	if len(c.ended) > 0 {
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
