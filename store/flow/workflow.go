package flow

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// A workflow that is idle for longer is looked at nonetheless: nothing in Punctual leaves one behind, but a restore
// may.
const idleWorkflow = `interval '1 minute'`

// workflow is a live workflow whose row is locked.
type workflow struct {
	id      uuid.UUID
	due     bool // something has happened to it that is not looked at yet
	marked  bool // its row says so
	old     bool // it was last looked at long ago
	key     definitions.Version
	tenant  int32
	status  domain.Status
	reason  domain.Reason // until it ends: why it is to be cancelled, or timeout; empty: it goes on
	rerun   bool          // steps may have been taken as succeeded before those that come before them
	now     time.Time
	started time.Time
	job     *domain.Job
	runs    map[string]domain.StepRun
}

// halted reports whether no further step may start, because the workflow has ended or is to be cancelled.
func (w *workflow) halted() bool {
	return w.status != domain.StatusRunning || w.reason != "" && !w.late()
}

// late reports whether the workflow's max_duration has passed, and nothing but steps that clean up may run.
func (w *workflow) late() bool {
	return w.status == domain.StatusRunning && w.reason == domain.ReasonTimeout
}

// advance returns what follows in the workflow.
func (w *workflow) advance() domain.Advance {
	if w.late() {
		return domain.CleanUpSteps(w.job.Definition, w.id, w.runs)
	}
	return domain.AdvanceSteps(w.job.Definition, w.id, w.runs, w.halted())
}

// cancelReason is why steps of the workflow are cancelled.
func (w *workflow) cancelReason() domain.Reason {
	if w.reason == domain.ReasonTimeout || w.reason == domain.ReasonJobDeleted {
		return w.reason
	}
	return domain.ReasonCancelled
}

// askedToEnd are the reasons of runs of steps that were asked to end.
var askedToEnd = []domain.Reason{domain.ReasonCancelled, domain.ReasonReplaced, domain.ReasonJobDeleted}

// toCancel are the runs of steps that have not ended although their workflow is halted or late, and were not asked to
// end. As with other jobs, requests that are out when the job is deleted are left to end.
func (w *workflow) toCancel() (runs []uuid.UUID) {
	for _, s := range w.job.Steps {
		r, has := w.runs[s.Name]
		goesOn := !w.halted() && !w.late() || w.late() && s.CleansUp() ||
			w.reason == domain.ReasonJobDeleted && s.Approval == nil
		if has && !goesOn && !r.Status.Final() && !slices.Contains(askedToEnd, r.Reason) {
			runs = append(runs, r.ID)
		}
	}
	return runs
}

// lateSteps are the runs of steps that were asked to end because the workflow's time was up, and have.
func (w *workflow) lateSteps() (runs []uuid.UUID) {
	for _, r := range w.runs {
		if w.reason == domain.ReasonTimeout && r.Status == domain.StatusCancelled && r.Reason == domain.ReasonCancelled &&
			!r.FinishedAt.Before(w.started.Add(w.job.MaxDuration.Value())) {
			runs = append(runs, r.ID)
		}
	}
	return runs
}

// overdue judges the workflow's run, which is due at an instant: its steps have ended, or its time is up. When its
// max_duration has passed, steps that clean up have a while of their own. A nil workflow has lost its row.
func (w *workflow) overdue(o domain.Outcome, now time.Time) domain.Outcome {
	deadline := o.StartedAt.Add(o.Job.MaxDuration.Value())
	switch {
	case w != nil && w.late():
		return domain.JudgeSilent(o.Assignment, 0, o.StartedAt, jobspec.Later(now, deadline))
	case w != nil && w.advance().Ended:
		return domain.JudgeSteps(o.Assignment, w.runs, w.reason, o.StartedAt, now)
	case now.Before(deadline):
		o.Verdict, o.RetryIn = domain.Await, deadline.Sub(now)
	case w != nil && !w.halted() && domain.MayCleanUp(o.Job.Definition, w.runs):
		o.Verdict, o.RetryIn, o.Reason = domain.Await, o.Job.CleanUpGrace(), domain.ReasonTimeout
	default:
		return domain.JudgeSilent(o.Assignment, 0, o.StartedAt, now)
	}
	return o
}

func byRun(all []*workflow) map[uuid.UUID]*workflow {
	of := make(map[uuid.UUID]*workflow, len(all))
	for _, w := range all {
		of[w.id] = w
	}
	return of
}

// readWorkflows reads workflows, whose rows are locked. Rows are looked up one by one (OFFSET 0): the plan lasts, and
// the tables grow.
const readWorkflows = `
SELECT w.run_id, w.due, w.looked_at < now() - ` + idleWorkflow + ` / 2, r.job_id, r.job_version, r.tenant, r.status,
       coalesce(CASE WHEN r.status <> 'running' OR r.reason <> 'timeout' THEN r.reason END,
                CASE WHEN j.id IS NULL OR j.state = 'deleted' THEN 'job_deleted' END, r.reason, ''),
       r.rerun_of IS NOT NULL, now(), coalesce(r.started_at, now())
FROM punctual.workflows w
CROSS JOIN LATERAL (SELECT * FROM {runs} r WHERE r.id = w.run_id{prune r} OFFSET 0) r
LEFT JOIN LATERAL (SELECT * FROM punctual.jobs j WHERE j.id = r.job_id OFFSET 0) j ON true
WHERE w.run_id = {ids}
ORDER BY w.run_id`

// queueWorkflows reads workflows, whose rows are locked. They are there once the batch is read.
func (c concerned) queueWorkflows(b *pgx.Batch, all *[]*workflow) {
	b.Queue(pg.ByIndex)
	c.on.Queue(b, readWorkflows, c.runs).Query(pg.Into(all, func(row pgx.CollectableRow) (*workflow, error) {
		w := &workflow{runs: map[string]domain.StepRun{}}
		err := row.Scan(&w.id, &w.marked, &w.old, &w.key.Job, &w.key.Version, &w.tenant, &w.status, &w.reason,
			&w.rerun, &w.now, &w.started)
		return w, err
	}))
}

// read reads live workflows, whose rows are locked, with the runs of their steps. It sends b first.
func (c concerned) read(ctx context.Context, q pg.Querier, b *pgx.Batch) (all []*workflow, err error) {
	c.queueWorkflows(b, &all)
	c.queueSteps(b, &all)
	err = q.SendBatch(ctx, b).Close()
	for _, w := range all {
		w.job, w.due = c.jobs[w.id], true
	}
	return all, pg.Wrap("reading workflows", err)
}

// queueSteps reads the runs of steps of live workflows: of all, or of those that decide what follows.
func (c concerned) queueSteps(b *pgx.Batch, live *[]*workflow) {
	type place struct {
		workflow uuid.UUID
		step     string
	}
	places := map[uuid.UUID]place{}
	var ids []uuid.UUID
	for run, job := range c.jobs {
		steps := job.Steps
		if part, is := c.parts[run]; is {
			steps = part.Steps
		}
		for i := range steps { // they are large
			id := domain.StepRunID(run, steps[i].Name)
			ids, places[id] = append(ids, id), place{run, steps[i].Name}
		}
	}
	c.on.Queue(b, `
		SELECT r.id, r.status, coalesce(r.reason, ''), coalesce(r.error, ''), r.caused_by, r.finished_at
		FROM {runs} r WHERE r.id = {ids}`, ids).Query(func(rows pgx.Rows) error {
		of := byRun(*live)
		var r domain.StepRun
		var finished *time.Time
		return pg.Each(rows, []any{&r.ID, &r.Status, &r.Reason, (*seal.Shown)(&r.Error), &r.CausedBy, &finished}, func() {
			r.FinishedAt = pg.OrZero(finished)
			if at := places[r.ID]; of[at.workflow] != nil {
				of[at.workflow].runs[at.step] = r
			}
			r = domain.StepRun{}
		})
	})
}
