package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
)

// OfEvent is SQL for a column of the event that caused run r; null: none did.
func OfEvent(column string) string {
	return `CASE WHEN r.caused_by IS NOT NULL THEN (
           SELECT e.` + column + ` FROM punctual.events e WHERE e.id = r.caused_by) END`
}

// Unmade is a run that is not made, and the reason. A recorded skip stands in its place, under its id.
type Unmade struct {
	Entry
	Reason domain.Reason
}

const insertUnmade = `
INSERT INTO punctual.runs (id, job_id, caused_by, scheduled_for, due_at, created_at, finished_at, tenant, job_version,
                           lane, status, trigger, reason)
SELECT u.id, u.job_id, u.caused_by, u.scheduled_for, u.due_at, $1, greatest($1, u.due_at), j.tenant, j.version,
       coalesce(s.lane, (SELECT punctual.lane_of(j.queue, v.definition) FROM punctual.job_versions v
                         WHERE v.job_id = j.id AND v.version = j.version)),
       'skipped', u.trigger, u.reason
FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::timestamptz[], $6::timestamptz[], $7::text[], $8::text[])
     AS u(id, job_id, caused_by, scheduled_for, due_at, trigger, reason)
JOIN punctual.jobs j ON j.id = u.job_id
LEFT JOIN punctual.schedules s ON s.job_id = u.job_id
ORDER BY u.id
ON CONFLICT DO NOTHING`

// QueueUnmade records runs that are not made. A run that exists already stays as it is.
func QueueUnmade(b *pgx.Batch, now time.Time, unmade ...Unmade) {
	if len(unmade) == 0 {
		return
	}
	var ids, jobs []uuid.UUID
	var causes []*uuid.UUID
	var slots, due []time.Time
	var triggers, reasons []string
	for _, u := range unmade {
		ids, jobs, causes = append(ids, u.ID), append(jobs, u.Job), append(causes, u.CausedBy)
		slots, due = append(slots, u.ScheduledFor), append(due, u.DueAt)
		triggers, reasons = append(triggers, string(u.Trigger)), append(reasons, string(u.Reason))
	}
	b.Queue(insertUnmade, now, ids, jobs, causes, slots, due, triggers, reasons)
}
