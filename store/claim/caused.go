package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
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

var unmadeColumns = pg.Columns[Unmade]{
	pg.Col("id", "uuid", func(u Unmade) uuid.UUID { return u.ID }),
	pg.Col("job_id", "uuid", func(u Unmade) uuid.UUID { return u.Job }),
	pg.Col("caused_by", "uuid", func(u Unmade) *uuid.UUID { return u.CausedBy }),
	pg.Col("scheduled_for", "timestamptz", func(u Unmade) time.Time { return u.ScheduledFor }),
	pg.Col("due_at", "timestamptz", func(u Unmade) time.Time { return u.DueAt }),
	pg.Col("trigger", "text", func(u Unmade) string { return string(u.Trigger) }),
	pg.Col("reason", "text", func(u Unmade) string { return string(u.Reason) }),
}

var insertUnmade = days.AnyDay.Of(inserting(`id, job_id, caused_by, scheduled_for, due_at, created_at, finished_at,
                           tenant, job_version, lane, status, trigger, reason`, `
SELECT u.id, u.job_id, u.caused_by, u.scheduled_for, u.due_at, u.at, greatest(u.at, u.due_at), j.tenant, j.version,
       `+laneNow+`, 'skipped', u.trigger, u.reason
FROM (SELECT *, `+unmadeColumns.Arg(1)+`::timestamptz AS at FROM `+unmadeColumns.Unnest("u")+`) u
JOIN punctual.jobs j ON j.id = u.job_id
LEFT JOIN punctual.schedules s ON s.job_id = u.job_id
ORDER BY u.id
ON CONFLICT DO NOTHING`))

// QueueUnmade records runs that are not made. A run that exists already stays as it is.
func QueueUnmade(b *pgx.Batch, now time.Time, unmade ...Unmade) {
	if len(unmade) == 0 {
		return
	}
	b.Queue(insertUnmade, append(unmadeColumns.Args(unmade), now)...)
}
