package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
