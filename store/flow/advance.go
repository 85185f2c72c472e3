package flow

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/claim"
	"punctual/store/pg"
	"punctual/store/seal"
)

// mostEntered is how many runs of steps one transaction makes, unless one workflow has more. The other workflows it
// leaves to the chore, so that outcomes do not wait for what follows from them.
const mostEntered = 500

// advanced is what became of workflows in a transaction.
type advanced struct {
	entered bool                     // the run of a step waits
	ended   bool                     // a workflow's run is due
	again   bool                     // there is more to do
	locked  []uuid.UUID              // workflows that have ended, and whose runs others have locked
	cancel  map[toCancel][]uuid.UUID // runs to cancel
	helped  []uuid.UUID              // idle workflows for which there was something to do
}

// add adds what became of further workflows.
func (a *advanced) add(of advanced) {
	a.entered, a.ended, a.again = a.entered || of.entered, a.ended || of.ended, a.again || of.again
	a.locked, a.helped = append(a.locked, of.locked...), append(a.helped, of.helped...)
	for why, runs := range of.cancel {
		a.cancel[why] = append(a.cancel[why], runs...)
	}
}

// toCancel says of which job runs are to be cancelled, and why.
type toCancel struct {
	job    uuid.UUID
	reason domain.Reason
}

// asks names whoever has work once the transaction has committed.
func (a *advanced) asks() (chores []string) {
	if a.entered {
		chores = append(chores, pg.TickLoop)
	}
	if a.ended {
		chores = append(chores, claim.ChoreSilent)
	}
	if a.again || len(a.locked) > 0 {
		chores = append(chores, claim.ChoreWorkflows)
	}
	return chores
}

// stepRow is a new run of a step. One that is skipped has a reason.
type stepRow struct {
	of       *workflow
	name     string
	causedBy uuid.UUID
	reason   domain.Reason
	error    string
}

var stepColumns = pg.Columns[stepRow]{
	pg.Col("id", "uuid", func(r stepRow) uuid.UUID { return domain.StepRunID(r.of.id, r.name) }),
	pg.Col("workflow", "uuid", func(r stepRow) uuid.UUID { return r.of.id }),
	pg.Col("step", "text", func(r stepRow) string { return r.name }),
	pg.Col("queue", "text", func(r stepRow) string { return r.of.job.Step(r.name).Queue }),
	pg.Col("priority", "smallint", func(r stepRow) int16 { return r.of.job.Step(r.name).Priority.Lane(0) }),
	pg.Col("caused_by", "uuid", func(r stepRow) *uuid.UUID { return pg.OrNull(r.causedBy) }),
	pg.Col("reason", "text", func(r stepRow) *string { return pg.OrNull(string(r.reason)) }),
	pg.Col("error", "text", func(r stepRow) *seal.Quoting {
		return pg.OrNull(seal.Quoting{Text: pg.Storable(r.error), Quotes: r.error != ""})
	}),
}

// enterSteps makes the runs of steps: those that start, and those that are skipped, which have a reason.
var enterSteps = `
WITH ` + claim.Entering(`id, job_id, parent_run, step, caused_by, scheduled_for, due_at, tenant, job_version, lane,
                               trigger, status, reason, error, finished_at`, `
    SELECT u.id, r.job_id, r.id, u.step, u.caused_by, r.scheduled_for, now(), r.tenant, r.job_version,
           coalesce((SELECT q.id FROM punctual.queues q WHERE q.name = u.queue) * 4 + u.priority, r.lane), 'step',
           CASE WHEN u.caused_by IS NULL THEN 'pending' ELSE 'skipped' END, u.reason, u.error,
           CASE WHEN u.caused_by IS NOT NULL THEN now() END
    FROM `+stepColumns.Unnest("u")+`
    JOIN {runs} r ON r.id = u.workflow
    WHERE r.id = {others}
    ORDER BY u.id`)

const (
	// settleWorkflows marks workflows as looked at. It sets those that have ended ($2) due, and returns them, unless they
	// were due: a frozen tenant's are for as long as it is frozen. It leaves a row of ready alone that another transaction
	// has locked, and returns that, too: then the workflow is looked at again.
	settleWorkflows = `
WITH ` + claim.ComeDue + `,
looked AS (
    UPDATE punctual.workflows w
    SET looked_at = now(), due = coalesce(w.run_id = ANY((SELECT $2::uuid[])::uuid[]), false)
                                 AND w.run_id NOT IN (SELECT run_id FROM free)
    WHERE run_id = ANY((SELECT $1::uuid[])::uuid[]) OR run_id = ANY((SELECT $2::uuid[])::uuid[])
    RETURNING w.run_id, w.due)
SELECT run_id, due FROM looked WHERE due OR run_id IN (SELECT run_id FROM ended)`
	leaveWorkflows = `
UPDATE punctual.workflows SET due = true WHERE run_id = ANY((SELECT $1::uuid[])::uuid[]) AND NOT due`
	forgetWorkflows = `DELETE FROM punctual.workflows WHERE run_id = ANY($1::uuid[])`
)

// advance lets workflows continue whose rows are locked: it makes the runs of steps that may start, and sets workflows
// due whose steps have ended. It leaves in b what is to be sent then. What became of the workflows is in a once that is
// sent.
func (c concerned) advance(ctx context.Context, q pg.Querier, b *pgx.Batch, live []*workflow, a *advanced) error {
	if len(live) == 0 {
		return nil
	}
	failpoint.At(failpoint.WorkflowLocked)
	nexts, err := c.decide(ctx, q, live)
	if err != nil {
		return err
	}
	a.cancel = map[toCancel][]uuid.UUID{}
	var settled, ended, over, left, late []uuid.UUID
	var untold []uuid.UUID // have ended, and nobody has marked them
	var rows []stepRow
	for _, w := range live {
		next := nexts[w.id]
		if follow := len(next.Enter) + len(next.Skip); len(rows) > 0 && follow > 0 && len(rows)+follow > mostEntered {
			left, a.again = append(left, w.id), true
			continue
		}
		a.entered = a.entered || len(next.Enter) > 0
		for _, step := range next.Enter {
			rows = append(rows, stepRow{of: w, name: step.Name})
		}
		for _, skip := range next.Skip {
			rows = append(rows, stepRow{w, skip.Step.Name, skip.CausedBy, skip.Reason, skip.Error})
		}
		late = append(late, w.lateSteps()...)
		cancel := w.toCancel()
		switch {
		case len(cancel) > 0:
			why := toCancel{w.key.Job, w.cancelReason()}
			a.cancel[why], left, a.again = append(a.cancel[why], cancel...), append(left, w.id), true
		case next.Ended && w.status != domain.StatusRunning:
			over = append(over, w.id)
		case next.Ended:
			if ended = append(ended, w.id); !w.due {
				untold = append(untold, w.id)
			}
		case w.marked || w.old:
			settled = append(settled, w.id)
		}
		if !w.due && (len(next.Enter)+len(next.Skip)+len(cancel) > 0 || next.Ended && w.status != domain.StatusRunning) {
			a.helped = append(a.helped, w.id)
		}
	}
	a.ended = len(ended) > 0
	failpoint.At(failpoint.WorkflowDecided)
	if len(rows) > 0 {
		c.on.Queue(b, enterSteps, stepColumns.Args(rows)...)
	}
	if len(settled)+len(ended) > 0 {
		b.Queue(settleWorkflows, pg.Prepared{}, settled, ended).Query(func(rows pgx.Rows) error {
			return pg.Each2(rows, func(id uuid.UUID, locked bool) {
				switch {
				case locked:
					a.locked = append(a.locked, id)
				case slices.Contains(untold, id):
					a.helped = append(a.helped, id)
				}
			})
		})
	}
	if len(left) > 0 {
		b.Queue(leaveWorkflows, left)
	}
	if len(late) > 0 {
		claim.QueueLate(b, late)
	}
	if len(over) > 0 {
		b.Queue(forgetWorkflows, over)
	}
	return nil
}

// decide returns what follows in workflows. Where that does not follow from the steps next to those that end, or
// something else has happened, it reads all.
func (c concerned) decide(ctx context.Context, q pg.Querier, live []*workflow) (map[uuid.UUID]domain.Advance, error) {
	nexts := make(map[uuid.UUID]domain.Advance, len(live))
	rest := concerned{jobs: map[uuid.UUID]*domain.Job{}, on: c.on}
	for _, w := range live {
		part, is := c.parts[w.id]
		if !is {
			nexts[w.id] = w.advance()
			continue
		}
		next := domain.AdvanceSteps(part.Definition, w.id, w.runs, false)
		if nexts[w.id] = next; next.Ended && (!part.last || w.rerun) || len(next.Skip) > 0 || w.marked ||
			w.status != domain.StatusRunning || w.reason != "" {
			rest.jobs[w.id] = w.job
		}
	}
	if len(rest.jobs) == 0 {
		return nexts, nil
	}
	var b pgx.Batch
	rest.queueSteps(&b, &live)
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return nil, pg.Wrap("reading the runs of steps", err)
	}
	for _, w := range live {
		if rest.jobs[w.id] != nil {
			nexts[w.id] = w.advance()
		}
	}
	return nexts, nil
}
