package claim

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Place is when a job fires next: its row in schedules.
type Place struct {
	Job                     uuid.UUID
	Version                 int32
	Lane                    int16
	Enabled                 bool
	ScheduledFor, NextRunAt *time.Time // nil: no slot is left
	CompletedAt             *time.Time // when its last slot was claimed
}

// QueuePlaces writes when jobs fire next. The caller has locked the jobs' rows in schedules.
func QueuePlaces(b *pgx.Batch, places ...Place) {
	n := len(places)
	jobs, versions, lanes, enabled := make([]uuid.UUID, n), make([]int32, n), make([]int16, n), make([]bool, n)
	slots, due, completed := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	for i, p := range places {
		jobs[i], versions[i], lanes[i], enabled[i] = p.Job, p.Version, p.Lane, p.Enabled
		slots[i], due[i], completed[i] = p.ScheduledFor, p.NextRunAt, p.CompletedAt
	}
	b.Queue(`
		UPDATE punctual.schedules s
		SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at, version = u.version, lane = u.lane,
		    enabled = u.enabled, completed_at = u.completed_at
		FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bool[], $5::timestamptz[], $6::timestamptz[],
		            $7::timestamptz[]) AS u(job_id, version, lane, enabled, scheduled_for, next_run_at, completed_at)
		WHERE s.job_id = u.job_id`, jobs, versions, lanes, enabled, slots, due, completed)
}

// Move is a next slot that was computed anew.
type Move struct {
	Job                     uuid.UUID
	ScheduledFor, NextRunAt time.Time
}

// QueueMoves writes next slots that were computed anew. The caller has locked the jobs' rows in schedules.
func QueueMoves(b *pgx.Batch, moves []Move) {
	n := len(moves)
	jobs, slots, due := make([]uuid.UUID, n), make([]time.Time, n), make([]time.Time, n)
	for i, m := range moves {
		jobs[i], slots[i], due[i] = m.Job, m.ScheduledFor, m.NextRunAt
	}
	b.Queue(`
		UPDATE punctual.schedules s
		SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at
		FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS u(job_id, scheduled_for, next_run_at)
		WHERE s.job_id = u.job_id`, jobs, slots, due)
}

// restoreCompleted writes the rows of completed one-shots ($1) of a tenant ($2; 0: any), which their claims have
// deleted. The lock keeps a job from being forgotten meanwhile.
const restoreCompleted = `
INSERT INTO punctual.schedules (job_id, tenant, version, lane, enabled, completed_at)
SELECT j.id, j.tenant, j.version, punctual.lane_of(j.queue, v.definition), false,
       coalesce(punctual.slot_claimed_at(j.id), now())
FROM (SELECT j.id, j.tenant, j.version, j.queue FROM punctual.jobs j
      WHERE j.id = ANY($1::uuid[]) AND j.state = 'active' AND j.kind IN ('at', 'delay')
        AND ($2::integer = 0 OR j.tenant = $2::integer)
        AND NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id)
      ORDER BY j.id FOR KEY SHARE) j
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
ORDER BY j.id
ON CONFLICT DO NOTHING`

// QueueRestore gives completed one-shots their rows in schedules again. A transaction that changes jobs does this
// before it locks the rows.
func QueueRestore(b *pgx.Batch, tenant int32, jobs []uuid.UUID) {
	b.Queue(restoreCompleted, pg.Prepared{}, jobs, tenant)
}

// Completion is which one-shots a claim has completed.
type Completion struct {
	ID       int64
	At       time.Time
	Jobs     []uuid.UUID
	Versions []int32
}

// LockCompletions locks the next completions to look at, the oldest first, up to a number. It passes over those that
// another replica looks at.
func LockCompletions(ctx context.Context, tx *pg.Tx, most int) ([]Completion, error) {
	return pgx.CollectRows(pg.Query(ctx, tx, `
		SELECT id, completed_at, job_ids, versions FROM punctual.completions WHERE look_at <= now()
		ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED`, most), pgx.RowToStructByPos[Completion])
}

// QueueCompletionsSeen removes completions all of whose jobs were forgotten or changed since. The others are looked at
// again later. A job that has a row in schedules again is no longer a matter of these.
func QueueCompletionsSeen(b *pgx.Batch, seen []int64, later time.Duration) {
	b.Queue(`
		DELETE FROM punctual.completions c
		WHERE c.id = ANY($1::bigint[]) AND NOT EXISTS (
		    SELECT FROM unnest(c.job_ids, c.versions) u(id, version)
		    JOIN punctual.jobs j ON j.id = u.id AND j.version = u.version
		    WHERE j.state = 'active' AND NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id))`, seen)
	b.Queue(`UPDATE punctual.completions SET look_at = now() + $2::interval WHERE id = ANY($1::bigint[])`, seen, later)
}

// QueueForget removes jobs that are deleted from the list of completed ones. The caller has locked their rows in
// schedules.
func QueueForget(b *pgx.Batch, jobs []uuid.UUID) {
	b.Queue(`
		UPDATE punctual.schedules s
		SET completed_at = NULL
		FROM punctual.jobs j
		WHERE s.job_id = ANY($1::uuid[]) AND j.id = s.job_id AND j.state = 'deleted'`, jobs)
}

// QueueGate creates the gate of a job unless it has one.
func QueueGate(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`INSERT INTO punctual.exclusive (job_id) VALUES ($1) ON CONFLICT DO NOTHING`, job)
}
