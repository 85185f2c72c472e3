package claim

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

// Rows of ready are locked before rows of runs, in statements of their own.
const (
	lockReadyToCancel = `
SELECT run_id
FROM punctual.ready
WHERE run_id = ANY($1::uuid[])
ORDER BY run_id
FOR UPDATE`
	lockRunsToCancel = `
SELECT id
FROM punctual.runs
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE`
)

// cancelLocked cancels locked runs ($1) for a reason ($2). A row of ready may appear after it was to be locked, when
// the attempt in flight ends, and a claim that is about to lock its run may hold that row: this statement skips such a
// row. The claim then finds the run ended and drops the row, or finds the gate held and looks again a second later.
//
// A running run that nobody has, as Sweep finds it, ends here. Its attempt is on record as lost. If its target may have
// reported, Sweep ends it. A step that waits for approval ends here, too: it is with nobody else.
const cancelLocked = `
WITH before AS MATERIALIZED (
    SELECT r.id, r.fence, r.attempt, r.replica, r.started_at, r.reason IS DISTINCT FROM $2 AS anew,
           coalesce(y.waits = 'person', false) AS approval,
           CASE WHEN y.waits = 'person' THEN true
                WHEN (SELECT t.reports_since FROM punctual.tenants t WHERE t.id = r.tenant) IS NOT NULL THEN false
                WHEN r.accepted_at IS NULL THEN NOT punctual.is_claimed(r.id, r.replica, r.claimed_at)
                ELSE y.run_id IS NULL END AS nobodys
    FROM punctual.runs r
    LEFT JOIN punctual.ready y ON y.run_id = r.id
    WHERE r.id = ANY($1::uuid[]) AND r.status = 'running'),
ended AS (
    UPDATE punctual.runs
    SET status = 'cancelled', reason = $2, finished_at = now(), next_attempt_at = NULL,
        error = CASE $2 WHEN 'timeout' THEN '` + domain.LateStep + `' ELSE error END
    WHERE id = ANY($1::uuid[])
      AND (status IN ('pending', 'retrying') OR id IN (SELECT id FROM before WHERE nobodys))
    RETURNING id),
recorded AS (
    INSERT INTO punctual.attempts (run_id, fence, number, replica, started_at, finished_at, outcome, reason)
    SELECT id, fence, attempt, replica, started_at, greatest(now(), started_at),
           CASE WHEN approval THEN 'cancelled' ELSE 'lost' END, CASE WHEN approval THEN $2 ELSE 'lost' END
    FROM before
    WHERE nobodys AND started_at IS NOT NULL AND attempt > 0
    ON CONFLICT DO NOTHING),
asked AS (
    UPDATE punctual.runs
    SET reason = CASE $2 WHEN 'timeout' THEN 'cancelled_by_user' ELSE $2 END -- see QueueLate
    WHERE id = ANY($1::uuid[]) AND id IN (SELECT id FROM before WHERE NOT nobodys)
    RETURNING id, replica, accepted_at),
theirs AS (
    SELECT y.run_id
    FROM punctual.ready y
    JOIN ended e ON e.id = y.run_id
    FOR UPDATE OF y SKIP LOCKED),
told AS (
    INSERT INTO punctual.cancels (run_id, replica)
    SELECT id, replica FROM asked WHERE accepted_at IS NULL
    ON CONFLICT (run_id) DO UPDATE SET replica = excluded.replica),
given AS (
    DELETE FROM punctual.ready y
    USING theirs t
    WHERE y.run_id = t.run_id)
SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM before WHERE anew AND NOT nobodys)`

// freeCancelled frees the gates of cancelled runs. A run may have waited for its turn at the gate, been set due, and
// not taken the gate yet. Its turn then goes to the next run.
const freeCancelled = `
WITH freed AS (
    UPDATE punctual.exclusive e
    SET active_run = CASE WHEN e.active_run <> ALL(o.runs) THEN e.active_run END,
        waiting_run = CASE WHEN e.waiting_run <> ALL(o.runs) THEN e.waiting_run END
    FROM (
        SELECT r.job_id, array_agg(r.id) AS runs
        FROM punctual.runs r
        WHERE r.id = ANY($1::uuid[]) AND r.status = 'cancelled'
        GROUP BY r.job_id) o
    WHERE e.job_id = o.job_id
      AND (e.active_run IS NULL OR e.active_run = ANY(o.runs) OR e.waiting_run = ANY(o.runs))
    RETURNING e.job_id, e.active_run, e.earlier_runs),
next AS (
    SELECT (SELECT w.run_id FROM punctual.ready w
            WHERE w.job_id = e.job_id AND w.waits = 'gate' ORDER BY w.run_id LIMIT 1) AS run_id
    FROM freed e
    WHERE e.active_run IS NULL AND e.earlier_runs IS NULL)
UPDATE punctual.ready y
SET ` + dueAgain + `
WHERE run_id IN (
    SELECT y.run_id
    FROM punctual.ready y
    JOIN next n ON n.run_id = y.run_id
    FOR UPDATE OF y SKIP LOCKED)`

// CancelRuns cancels the runs that have not ended, and returns for how many of them that was new. The caller holds the
// gates of their jobs. A run that waits ends at once, and so does one that nobody has. For a run that a replica is
// sending, CancelRuns only writes the reason: the statement that writes the attempt's outcome, whatever it is, finds
// the reason and ends the run as cancelled. Its replica learns of the cancel with its next heartbeat. A target that
// works on learns of it with its own next heartbeat. Once the transaction has committed, the caller asks for Freed.
func CancelRuns(ctx context.Context, tx pg.Querier, ids []uuid.UUID, reason domain.Reason) (changed int, err error) {
	if err := pg.Exec(ctx, tx, lockReadyToCancel, ids); err != nil {
		return 0, fmt.Errorf("locking waiting runs: %w", err)
	}
	if err := pg.Exec(ctx, tx, lockRunsToCancel, ids); err != nil {
		return 0, fmt.Errorf("locking runs: %w", err)
	}
	if err := tx.QueryRow(ctx, cancelLocked, ids, string(reason)).Scan(&changed); err != nil {
		return 0, fmt.Errorf("cancelling runs: %w", err)
	}
	var b pgx.Batch
	b.Queue(freeCancelled, ids)
	var made bool // the callers ask for Freed in any case
	QueueChained(&b, ids, days.AnyDay, &made)
	b.Queue(dueWorkflows, ids)
	return changed, pg.Wrap("following the end of cancelled runs", tx.SendBatch(ctx, &b).Close())
}

// dueWorkflows has those workflows go on that are among runs, and those of which these are steps.
const dueWorkflows = `
UPDATE punctual.workflows w SET due = true
FROM (SELECT run_id FROM punctual.workflows
      WHERE run_id = ANY($1::uuid[]) OR run_id = ANY(ARRAY(
          SELECT r.parent_run FROM punctual.runs r WHERE r.id = ANY($1::uuid[]) AND r.parent_run IS NOT NULL))
      ORDER BY run_id FOR NO KEY UPDATE) u
WHERE w.run_id = u.run_id`

// QueueLate gives steps that were cancelled because the time of their workflow was up that for a reason: CancelRuns
// knows of no workflow. It comes after the lock of workflows, so it waits for nobody.
func QueueLate(b *pgx.Batch, steps []uuid.UUID) {
	b.Queue(`
		WITH free AS MATERIALIZED (
		    SELECT r.id FROM punctual.runs r
		    WHERE r.id = ANY($1::uuid[]) AND r.status = 'cancelled' AND r.reason = 'cancelled_by_user'
		    FOR NO KEY UPDATE SKIP LOCKED),
		late AS (
		    UPDATE punctual.runs r SET reason = 'timeout', error = $2
		    FROM free f WHERE r.id = ANY($1::uuid[]) AND r.id = f.id
		    RETURNING r.id, r.fence)
		UPDATE punctual.attempts a SET reason = 'timeout', error = $2
		FROM late l WHERE a.run_id = ANY($1::uuid[]) AND a.run_id = l.id AND a.fence = l.fence AND a.outcome = 'cancelled'`,
		steps, domain.LateStep)
}

// The chores that the end of runs makes work for.
const (
	ChoreLimits    = "limits" // sets due what waits there
	ChoreSilent    = "silent-targets"
	ChoreWorkflows = "workflows"
)

// Freed are the loops that have work when runs were cancelled: others may take their places, were triggered, or are
// steps of the same workflows.
var Freed = []string{pg.TickLoop, ChoreLimits, ChoreWorkflows}

// ForgetCancels removes the requests to cancel whose run has ended or is with another replica.
func (s *Claims) ForgetCancels(ctx context.Context) error {
	return pg.Wrap("forgetting cancels", pg.Exec(ctx, s.db.Chores, `
		DELETE FROM punctual.cancels c
		WHERE NOT EXISTS (
		    SELECT FROM punctual.runs_of(ARRAY[c.run_id]) r WHERE r.status = 'running' AND r.replica = c.replica)`))
}
