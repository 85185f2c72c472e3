package claim

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// TakenStep is a step that a rerun takes as succeeded: it has kept it, or a caller has set it.
type TakenStep struct {
	Step     string
	KeptFrom *uuid.UUID      // the run whose result it keeps; nil: it was set
	Result   json.RawMessage // of a step that was set; nil: none
	Note     string          // why it was set
	By       string          // who set it, in words

	id uuid.UUID // of its run
}

var takenSteps = pg.Columns[TakenStep]{
	pg.Col("id", "uuid", func(s TakenStep) uuid.UUID { return s.id }),
	pg.Col("step", "text", func(s TakenStep) string { return s.Step }),
	pg.Col("kept_from", "uuid", func(s TakenStep) *uuid.UUID { return s.KeptFrom }),
	pg.Col("triggered_by", "text", func(s TakenStep) *string { return pg.OrNull(s.By) }),
}

var takenResults = pg.Columns[TakenStep]{
	pg.Col("id", "uuid", func(s TakenStep) uuid.UUID { return s.id }),
	pg.Col("kept_from", "uuid", func(s TakenStep) *uuid.UUID { return s.KeptFrom }),
	pg.Col("result", "text", func(s TakenStep) seal.JSON { return seal.JSON(s.Result) }),
	pg.Col("note", "text", func(s TakenStep) *string { return pg.OrNull(s.Note) }),
}

// insertTakenSteps makes runs that no replica has sent: they have no attempt, and never started.
var insertTakenSteps = days.AnyDay.Of(inserting(`id, job_id, parent_run, step, rerun_of, triggered_by, scheduled_for,
                           due_at, created_at, finished_at, tenant, job_version, lane, trigger, status`, `
SELECT u.id, p.job_id, p.id, u.step, u.kept_from, u.triggered_by, p.scheduled_for, p.due_at, made.at, made.at,
       p.tenant, p.job_version, p.lane, 'step', 'succeeded'
FROM `+takenSteps.Unnest("u")+`
JOIN punctual.runs p ON p.id = `+takenSteps.Arg(1)+`
CROSS JOIN (SELECT `+takenSteps.Arg(2)+`::timestamptz AS at) made
ORDER BY u.id`))

// insertTakenResults is a statement of its own because a policy of run_data looks for the run.
var insertTakenResults = `
INSERT INTO punctual.run_data (run_id, result, note)
SELECT u.id, coalesce(u.result::json, d.result), u.note
FROM ` + takenResults.Unnest("u") + `
LEFT JOIN punctual.run_data d ON d.run_id = u.kept_from AND d.run_id = ANY($2::uuid[])
WHERE coalesce(u.result, d.result::text, u.note) IS NOT NULL`

// QueueTakenSteps makes the runs of steps of a workflow's new run that are not to be sent. It comes after the
// statements that make that run, in its transaction: so the workflow finds them when it begins.
func QueueTakenSteps(b *pgx.Batch, now time.Time, workflow uuid.UUID, steps []TakenStep) {
	if len(steps) == 0 {
		return
	}
	for i, s := range steps {
		steps[i].id = domain.StepRunID(workflow, s.Step)
	}
	b.Queue(insertTakenSteps, append(takenSteps.Args(steps), workflow, now)...)
	b.Queue(insertTakenResults, takenResults.Args(steps)...)
}
