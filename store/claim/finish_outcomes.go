package claim

import (
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

// endReported prepares runs ($1) for outcomes that their targets have reported, and that the fence ($2) will let
// through: the deadline of a target goes, and a request to cancel a run that has succeeded ($3) came too late.
var endReported = `
WITH mine AS MATERIALIZED (
    SELECT r.id, u.succeeded
    FROM punctual.runs r
    JOIN ` + reported.Unnest("u") + `
      ON r.id = u.id AND r.fence = u.fence
    WHERE r.id = ANY($1::uuid[]) AND r.status = 'running'),
gone AS (
    DELETE FROM punctual.ready y USING mine m WHERE y.run_id = m.id)
UPDATE punctual.runs r SET reason = NULL
FROM mine m
WHERE r.id = m.id AND r.id = ANY($1::uuid[]) AND m.succeeded AND r.reason IN ('cancelled_by_user', 'replaced')`

var reported = pg.Columns[*domain.Outcome]{
	pg.Col("id", "uuid", func(o *domain.Outcome) uuid.UUID { return o.RunID }),
	pg.Col("fence", "bigint", func(o *domain.Outcome) int64 { return o.Fence }),
	pg.Col("succeeded", "bool", func(o *domain.Outcome) bool { return o.Verdict == domain.Succeed }),
}

// finishSucceeded writes successes. The ids are given twice: as an array, which prunes to their partitions and is
// looked up in the primary key, and as the column that is joined. The coalesce hides the condition from the planner's
// statistics. By them no run of the day is running, or there are none, and the planner would compare each id with each
// row. (50,000 runs of a burst: 1.8 s of Postgres's time in this statement; together with pg.ByIndex, 0.3 s.) It is
// fenced: an attempt that was superseded finds no row. A cancel that was asked for wins; its attempt is then on record
// like any other that was cancelled.
var finishSucceeded = `
WITH ended AS (
    UPDATE {runs} r
    SET status = CASE WHEN r.reason IN ('cancelled_by_user', 'replaced') THEN 'cancelled' ELSE 'succeeded' END,
        reason = CASE WHEN r.reason IN ('cancelled_by_user', 'replaced') THEN r.reason END,
        started_at = u.started_at, finished_at = u.finished_at, http_status = nullif(u.http_status, 0), error = NULL
    FROM ` + successes.Unnest("u") + `
    WHERE r.id = ANY($1::uuid[])
      AND r.id = u.id
      AND r.fence = u.fence
      AND coalesce(r.status = 'running', false)
    RETURNING r.id, r.fence, r.attempt, r.http_status, r.replica, r.started_at, r.finished_at, r.status, r.reason),
cancelled AS (
    INSERT INTO punctual.attempts (
        run_id, fence, number, http_status, replica, started_at, finished_at, outcome, reason)
    SELECT id, fence, attempt, http_status, replica, started_at, finished_at, 'cancelled', reason
    FROM ended
    WHERE status = 'cancelled')
SELECT id FROM ended`

// finishOthers writes the outcomes of unsuccessful attempts. Everything that follows from one follows in the same
// statement, for the rows that the fence let through: the attempt's record, the next attempt, the dead letter.
//
// A run that was not sent this time keeps the start of its last attempt, or has none. A run that expires before its
// first attempt counts is dead all the same when an interrupted attempt was sent. No attempt starts before the run is
// due, even when the database's clock was set back meanwhile. A run that would go on ends with its attempt when its job
// was deleted. For every other run job is null, and its job is not even looked up.
var finishOthers = `
WITH ended AS (
    UPDATE punctual.runs r
    SET status = CASE WHEN r.reason IN ('cancelled_by_user', 'replaced') OR d.deleted THEN 'cancelled'
                      WHEN u.status = 'skipped' AND EXISTS (SELECT FROM punctual.attempts a
                                                     WHERE a.run_id = r.id AND a.run_id = ANY($1::uuid[]))
                      THEN 'dead'
                      ELSE u.status END,
        reason = CASE WHEN r.reason IN ('cancelled_by_user', 'replaced') THEN r.reason
                      WHEN d.deleted THEN 'job_deleted'
                      ELSE u.reason END,
        finished_at = CASE WHEN u.final OR r.reason IN ('cancelled_by_user', 'replaced') OR d.deleted
                           THEN u.finished_at END,
        next_attempt_at = CASE WHEN (u.status = 'retrying'
                                     OR u.status = 'pending' AND u.retry_in > '0' AND u.held_by IS NULL)
                                    AND r.reason IS DISTINCT FROM 'cancelled_by_user'
                                    AND r.reason IS DISTINCT FROM 'replaced'
                                    AND d.deleted IS NULL
                               THEN now() + u.retry_in END,
        started_at = coalesce(
            u.started_at, (SELECT max(a.started_at) FROM punctual.attempts a
                           WHERE a.run_id = r.id AND a.run_id = ANY($1::uuid[]))),
        error = u.error, http_status = u.http_status,
        attempt = CASE WHEN u.counts THEN r.attempt ELSE r.attempt - 1 END
    FROM ` + endings.Unnest("u") + `
    LEFT JOIN LATERAL (
        SELECT true AS deleted FROM punctual.jobs j WHERE j.id = u.job AND j.state = 'deleted' LIMIT 1) d ON true
    WHERE r.id = ANY($1::uuid[])
      AND r.id = u.id
      AND r.fence = u.fence
      AND coalesce(r.status = 'running', false)
    RETURNING r.id, r.job_id, r.tenant, r.lane, r.job_version, r.scheduled_for, r.due_at, r.trigger, r.fence, r.replica,
              r.caused_by,
              u.started_at, u.finished_at, u.http_status, r.status, u.reason, u.error, u.outcome, u.response,
              u.retry_in, u.number, u.held_by, u.held_since, u.held_until, u.headers, u.truncated),
recorded AS (
    INSERT INTO punctual.attempts (
        run_id, fence, number, http_status, replica, started_at, finished_at, outcome, reason, error,
        response, response_headers, response_truncated)
    SELECT id, fence, number, http_status, replica, started_at, finished_at, outcome, reason, error,
           response, headers, nullif(truncated, false)
    FROM ended
    WHERE outcome IS NOT NULL),
again AS (
    INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane, waits, waits_on, since, until)
    SELECT id, job_id, greatest(now() + retry_in, due_at), tenant,
           ` + laneInReady + `,
           CASE WHEN held_by IS NULL THEN 'turn' ELSE 'host' END, held_by, held_since, held_until
    FROM ended
    WHERE status IN ('retrying', 'pending')),
buried AS (
    INSERT INTO punctual.dead_letters (
        run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger, reason, attempts, http_status, error,
        headers, body, template, webhook_id, idempotency_key, caused_by)
    SELECT e.id, e.job_id, e.tenant, j.name, e.job_version, e.scheduled_for, e.trigger, e.reason, e.number,
           e.http_status, e.error, d.headers, d.body, d.template, d.webhook_id, d.idempotency_key, e.caused_by
    FROM ended e
    JOIN punctual.jobs j ON j.id = e.job_id
    LEFT JOIN punctual.run_data d ON d.run_id = e.id AND d.run_id = ANY($1::uuid[])
    WHERE e.status = 'dead' AND e.trigger <> 'step')
SELECT id FROM ended`

// finishAccepted writes that targets have accepted work. From here on no replica holds the run: its row in ready is the
// deadline of its target. A step that was cancelled before it waits for approval ends at once. A target may report its
// completion before its answer arrives. The run has then ended, and nothing is written.
var finishAccepted = `
WITH accepted AS (
    UPDATE {runs} r
    SET accepted_at = now(), started_at = u.started_at, http_status = nullif(u.http_status, 0), error = NULL
    FROM ` + acceptances.Unnest("u") + `
    WHERE r.id = ANY($1::uuid[])
      AND r.id = u.id
      AND r.fence = u.fence
      AND coalesce(r.status = 'running' AND r.accepted_at IS NULL, false)
    RETURNING r.id, r.job_id, r.tenant, r.lane,
              CASE WHEN u.approval AND r.reason IS NOT NULL THEN '0' ELSE u.silence END AS silence,
              r.started_at, CASE WHEN u.approval THEN 'person' ELSE 'target' END AS waits),
deadline AS (
    INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane, waits, since)
    SELECT id, job_id, now() + silence, tenant, lane, waits, started_at
    FROM accepted)
SELECT id FROM accepted`

// releaseGates frees the gates of runs that have ended. The gates are locked, and this statement sees the runs as the
// updates left them: it frees a gate only when the run it names has ended. The oldest run that waits at the gate is due
// at once, but never before its slot, even when the clock was set back. A run that replaces the ended one comes before
// everything else of its tenant that waits: the run was ended for it and for no other.
const releaseGates = `
WITH freed AS (
    UPDATE punctual.exclusive e SET active_run = NULL
    FROM {runs} r
    WHERE e.job_id = {ids}
      AND e.active_run = r.id
      AND r.id = {others}
      AND r.status IN ('succeeded', 'dead', 'skipped', 'cancelled')
    RETURNING e.job_id, CASE WHEN r.reason = 'replaced' THEN e.waiting_run END AS successor),
next AS MATERIALIZED (
    SELECT e.successor IS NOT NULL AS succeeds, coalesce(e.successor, (
        SELECT w.run_id FROM punctual.ready w
        WHERE w.job_id = e.job_id AND w.waits = 'gate' ORDER BY w.run_id LIMIT 1)) AS run_id
    FROM freed e),
due AS MATERIALIZED ( -- looked up at once, and only if there are any: each call of runs_of plans its query
    SELECT r.id, r.due_at
    FROM (SELECT array_agg(run_id) AS ids FROM next WHERE run_id IS NOT NULL HAVING count(*) > 0) n
    CROSS JOIN LATERAL punctual.runs_of(n.ids) r)
UPDATE punctual.ready y
SET waits = 'turn',
    due_at = CASE
        WHEN NOT n.succeeds OR d.due_at > now() THEN greatest(now(), d.due_at)
        ELSE least(now(), (
            SELECT o.due_at - interval '1 ms'
            FROM punctual.ready o
            WHERE o.lane = y.lane AND o.tenant = y.tenant AND o.` + Claimable + ` AND o.due_at <= now()
            ORDER BY o.due_at LIMIT 1))
        END
FROM next n
LEFT JOIN due d ON d.id = n.run_id
WHERE y.run_id = n.run_id`

const deleteLeases = `DELETE FROM punctual.claims WHERE id = ANY((SELECT $1::uuid[])::uuid[])`

// deleteEnded deletes leases ($1), except one of which an earlier run ($2) is still running. The outcome of that run
// was acknowledged, and the database has lost it since, as an asynchronous failover does. Its replica finds the lease
// that stays, and ends it. A run that was claimed again is running under another lease.
//
// If Postgres runs since before the leases were claimed ($3), it has lost nothing since, and no run is looked at: to
// look at one takes 2 µs.
const deleteEnded = `
WITH lost AS MATERIALIZED (
    SELECT r.id, r.replica, r.claimed_at
    FROM {runs} r
    WHERE r.id = ANY($2::uuid[]) AND r.status = 'running' AND r.accepted_at IS NULL)
DELETE FROM punctual.claims c
WHERE c.id = ANY((SELECT $1::uuid[])::uuid[])
  AND (pg_postmaster_start_time() = $3
       OR NOT EXISTS (SELECT FROM lost l
                      WHERE l.id = ANY(c.run_ids) AND l.replica = c.replica AND l.claimed_at = c.claimed_at))`

// queueEnd queues the end of leases. Most have no earlier runs: all their outcomes are written together.
func queueEnd(b *pgx.Batch, leases []uuid.UUID, earlier Earlier, on days.Day) {
	switch {
	case len(leases) == 0:
	case len(earlier.Runs) == 0:
		b.Queue(deleteLeases, pg.Prepared{}, leases)
	default:
		on.Queue(b, deleteEnded, leases, earlier.Runs, earlier.Started)
	}
}

// queueReported queues endReported for those of the outcomes. The gates are locked.
func queueReported(b *pgx.Batch, outcomes []domain.Outcome) {
	var ends []*domain.Outcome
	for i := range outcomes {
		if outcomes[i].Reported {
			ends = append(ends, &outcomes[i])
		}
	}
	if len(ends) == 0 {
		return
	}
	ids := pg.Column(ends, func(o *domain.Outcome) uuid.UUID { return o.RunID })
	b.Queue(lockReadyToCancel, ids)
	b.Queue(lockRunsToCancel, ids) // before the next statement, which else would not see a cancel that it waited for
	b.Queue(endReported, reported.Args(ends)...)
}

// queueOutcomes queues one statement for the successes, one for accepted work and one for the rest, each sorted by id.
func queueOutcomes(b *pgx.Batch, outcomes []domain.Outcome, on days.Day, written map[uuid.UUID]bool) {
	var ok, accepted, not []*domain.Outcome
	for i := range outcomes {
		switch o := &outcomes[i]; o.Verdict {
		case domain.Succeed:
			ok = append(ok, o)
		case domain.Await:
			accepted = append(accepted, o)
		default:
			not = append(not, o)
		}
	}
	for _, kind := range [][]*domain.Outcome{ok, accepted, not} {
		slices.SortFunc(kind, func(a, b *domain.Outcome) int { return pg.CompareIDs(a.RunID, b.RunID) })
	}
	if len(ok) > 0 {
		on.Queue(b, finishSucceeded, successes.Args(ok)...).Query(pg.IntoKeys(written, true))
	}
	if len(accepted) > 0 {
		on.Queue(b, finishAccepted, acceptances.Args(accepted)...).Query(pg.IntoKeys(written, true))
	}
	if len(not) > 0 {
		queueOthers(b, not, written)
	}
	queueKept(b, ok, accepted)
}

func queueOthers(b *pgx.Batch, outcomes []*domain.Outcome, written map[uuid.UUID]bool) {
	all, rows := make([]ending, len(outcomes)), make([]*ending, len(outcomes))
	for i, o := range outcomes {
		all[i] = ending{o, o.End()}
		rows[i] = &all[i]
	}
	b.Queue(finishOthers, endings.Args(rows)...).Query(pg.IntoKeys(written, true))
}
