package claim

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
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
}

// insertTakenSteps makes runs that no replica has sent: they have no attempt, and never started.
var insertTakenSteps = AnyDay.of(inserting(`id, job_id, parent_run, step, rerun_of, triggered_by, scheduled_for, due_at,
                           created_at, finished_at, tenant, job_version, lane, trigger, status`, `
SELECT u.id, p.job_id, p.id, u.step, u.kept_from, u.triggered_by, p.scheduled_for, p.due_at, $1::timestamptz,
       $1::timestamptz, p.tenant, p.job_version, p.lane, 'step', 'succeeded'
FROM unnest($3::uuid[], $4::text[], $5::uuid[], $6::text[]) AS u(id, step, kept_from, triggered_by)
JOIN punctual.runs p ON p.id = $2
ORDER BY u.id`))

// insertTakenResults is a statement of its own because a policy of run_data looks for the run.
const insertTakenResults = `
INSERT INTO punctual.run_data (run_id, result, note)
SELECT u.id, coalesce(u.result::json, d.result), u.note
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS u(id, kept_from, result, note)
LEFT JOIN punctual.run_data d ON d.run_id = u.kept_from AND d.run_id = ANY($2::uuid[])
WHERE coalesce(u.result, d.result::text, u.note) IS NOT NULL`

// QueueTakenSteps makes the runs of steps of a workflow's new run that are not to be sent. It comes after the
// statements that make that run, in its transaction: so the workflow finds them when it begins.
func QueueTakenSteps(b *pgx.Batch, now time.Time, workflow uuid.UUID, steps []TakenStep) {
	if len(steps) == 0 {
		return
	}
	var ids []uuid.UUID
	var names []string
	var from []*uuid.UUID
	var by, notes []*string
	var results []seal.JSON
	for _, s := range steps {
		ids, names = append(ids, domain.StepRunID(workflow, s.Step)), append(names, s.Step)
		from, by = append(from, s.KeptFrom), append(by, pg.OrNull(s.By))
		results, notes = append(results, seal.JSON(s.Result)), append(notes, pg.OrNull(s.Note))
	}
	b.Queue(insertTakenSteps, now, workflow, ids, names, from, by)
	b.Queue(insertTakenResults, ids, from, results, notes)
}
