package claim

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"punctual/scheduler/domain"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// runRow is a run as claims, recoveries and the calls of targets read it.
type runRow struct {
	domain.Assignment // without what its definition says
	key               definitions.Version
	tenant            int32
	started           time.Time // of its last attempt, or now
}

// runPlaces are the columns of a run r that make a runRow. Its trace is not among them: see ofTrace.
var runPlaces = pg.Places[runRow]{
	pg.Place("r.id", func(r *runRow) any { return &r.RunID }),
	pg.Place("r.job_id", func(r *runRow) any { return &r.key.Job }),
	pg.Place("r.job_version", func(r *runRow) any { return &r.key.Version }),
	pg.Place("r.tenant", func(r *runRow) any { return &r.tenant }),
	pg.Place("r.lane", func(r *runRow) any { return &r.Lane }),
	pg.Place("r.trigger", func(r *runRow) any { return &r.Trigger }),
	pg.Place("r.scheduled_for", func(r *runRow) any { return &r.ScheduledFor }),
	pg.Place("r.due_at", func(r *runRow) any { return &r.DueAt }),
	pg.Place("r.late", func(r *runRow) any { return &r.Late }),
	pg.Place("r.attempt", func(r *runRow) any { return &r.Attempt }),
	pg.Place("coalesce(r.fence, 0)", func(r *runRow) any { return &r.Fence }),
	pg.Place("coalesce(r.step, '')", func(r *runRow) any { return &r.key.Step }),
	pg.Place("r.parent_run", func(r *runRow) any { return &r.Workflow }),
	pg.Place("r.accepted_at", func(r *runRow) any { return (*zeronull.Timestamptz)(&r.AcceptedAt) }),
	pg.Place("coalesce(r.started_at, now())", func(r *runRow) any { return &r.started }),
}

// ofTrace is SQL for the trace context that a run continues, whose row in run_data is d. A dated run, which has a key,
// only links to it.
const ofTrace = `CASE WHEN d.key IS NULL THEN coalesce(d.traceparent, '') ELSE '' END`

// places returns where a run and further columns are scanned to.
func (r *runRow) places(further ...any) []any { return append(runPlaces.Of(r), further...) }
