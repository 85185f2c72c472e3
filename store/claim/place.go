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

var placeColumns = pg.Columns[Place]{
	pg.Col("job_id", "uuid", func(p Place) uuid.UUID { return p.Job }),
	pg.Col("version", "integer", func(p Place) int32 { return p.Version }),
	pg.Col("lane", "smallint", func(p Place) int16 { return p.Lane }),
	pg.Col("enabled", "bool", func(p Place) bool { return p.Enabled }),
	pg.Col("scheduled_for", "timestamptz", func(p Place) *time.Time { return p.ScheduledFor }),
	pg.Col("next_run_at", "timestamptz", func(p Place) *time.Time { return p.NextRunAt }),
	pg.Col("completed_at", "timestamptz", func(p Place) *time.Time { return p.CompletedAt }),
}

var writePlaces = `
UPDATE punctual.schedules s
SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at, version = u.version, lane = u.lane,
    enabled = u.enabled, completed_at = u.completed_at
FROM ` + placeColumns.Unnest("u") + `
WHERE s.job_id = u.job_id`

// QueuePlaces writes when jobs fire next. The caller has locked the jobs' rows in schedules.
func QueuePlaces(b *pgx.Batch, places ...Place) { b.Queue(writePlaces, placeColumns.Args(places)...) }

// Move is a next slot that was computed anew.
type Move struct {
	Job                     uuid.UUID
	ScheduledFor, NextRunAt time.Time
}

var moveColumns = pg.Columns[Move]{
	pg.Col("job_id", "uuid", func(m Move) uuid.UUID { return m.Job }),
	pg.Col("scheduled_for", "timestamptz", func(m Move) time.Time { return m.ScheduledFor }),
	pg.Col("next_run_at", "timestamptz", func(m Move) time.Time { return m.NextRunAt }),
}

// WriteMoves writes next slots that were computed anew. The caller has locked the jobs' rows in schedules.
func WriteMoves(ctx context.Context, tx *pg.Tx, moves []Move) error {
	return pg.Exec(ctx, tx, `
		UPDATE punctual.schedules s
		SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at
		FROM `+moveColumns.Unnest("u")+`
		WHERE s.job_id = u.job_id`, moveColumns.Args(moves)...)
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
	return pg.All(ctx, tx, pgx.RowToStructByPos[Completion], `
		SELECT id, completed_at, job_ids, versions FROM punctual.completions WHERE look_at <= now()
		ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED`, most)
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

// Forget removes jobs that are deleted from the list of completed ones. The caller has locked their rows in schedules.
func Forget(ctx context.Context, tx *pg.Tx, jobs []uuid.UUID) error {
	return pg.Exec(ctx, tx, `
		UPDATE punctual.schedules s
		SET completed_at = NULL
		FROM punctual.jobs j
		WHERE s.job_id = ANY($1::uuid[]) AND j.id = s.job_id AND j.state = 'deleted'`, jobs)
}

// QueueGate creates the gate of a job unless it has one.
func QueueGate(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`INSERT INTO punctual.exclusive (job_id) VALUES ($1) ON CONFLICT DO NOTHING`, job)
}
