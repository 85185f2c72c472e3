package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// A workflow's run is like one whose target has accepted it: no replica holds it, and its row in ready is its deadline.
// Until it ends it has a row in workflows. Whatever ends the run of a step marks that row as due, in the same
// transaction. What follows is decided under the row's lock, by the runs as the next statement reads them: so two steps
// that end together cannot each find the other unfinished. A finish decides within its own transaction, and the chore
// AdvanceWorkflows does it for all others.
//
// The row is locked after the runs of steps. So nothing that has locked it ends a run: the runs of a workflow that was
// cancelled are cancelled in a transaction of their own, and its own run is set due and ended with the overdue ones,
// whose claim takes gates in their order.

// The chores of workflows.
const (
	ChoreWorkflows = "workflows"
	ChoreSilent    = "silent-targets"
)

// workflowBatch is how many workflows one transaction of the chore looks at.
const workflowBatch = 100

// mostEntered is how many runs of steps one transaction makes, unless one workflow has more. The other workflows it
// leaves to the chore, so that outcomes do not wait for what follows from them.
const mostEntered = 500

// lockedPause is how long the chore waits for rows that others have locked.
const lockedPause = 100 * time.Millisecond

// A workflow that is idle for longer is looked at nonetheless: nothing in Punctual leaves one behind, but a restore
// may.
const idleWorkflow = `interval '1 minute'`

// WorkflowsDue is true if a workflow is to be looked at.
const WorkflowsDue = `EXISTS (SELECT FROM punctual.workflows WHERE due)
    OR EXISTS (SELECT FROM punctual.workflows WHERE looked_at < now() - ` + idleWorkflow + `)`

const (
	// insertWorkflows begins workflows. The transaction that does so also decides what follows.
	insertWorkflows = `
INSERT INTO punctual.workflows (run_id, tenant, due)
SELECT r.id, r.tenant, false FROM {runs} r
WHERE r.id = {ids} AND r.status = 'running' AND r.accepted_at IS NOT NULL
ORDER BY r.id
ON CONFLICT DO NOTHING`
	touchWorkflows = `
UPDATE punctual.workflows w SET due = true
FROM (SELECT run_id FROM punctual.workflows WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE) u
WHERE w.run_id = u.run_id`
	lockWorkflowsOf  = `SELECT FROM punctual.workflows WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE`
	touchWorkflowsOf = `
UPDATE punctual.workflows w SET due = true
FROM (SELECT run_id FROM punctual.workflows
      WHERE run_id = ANY($1::uuid[]) OR run_id = ANY(ARRAY(
          SELECT r.parent_run FROM punctual.runs r WHERE r.id = ANY($1::uuid[]) AND r.parent_run IS NOT NULL))
      ORDER BY run_id FOR NO KEY UPDATE) u
WHERE w.run_id = u.run_id`
	// findWorkflows finds those whose turn it is, but for those that rest ($2).
	findWorkflows = `
(SELECT run_id FROM punctual.workflows WHERE due AND run_id <> ALL($2::uuid[]) ORDER BY looked_at LIMIT $1)
UNION
(SELECT run_id FROM punctual.workflows
 WHERE looked_at < now() - ` + idleWorkflow + ` AND run_id <> ALL($2::uuid[]) LIMIT $1)`
	lockWorkflows = `
SELECT run_id FROM punctual.workflows WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE SKIP LOCKED`
)

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

const readSteps = `
SELECT r.id, r.status, coalesce(r.reason, ''), coalesce(r.error, ''),
       r.caused_by, r.finished_at
FROM {runs} r
WHERE r.id = {ids}`

const (
	// settleWorkflows marks workflows as looked at. It sets those that have ended ($2) due, and returns them, unless they
	// were due: a frozen tenant's are for as long as it is frozen. It leaves a row of ready alone that another transaction
	// has locked, and returns that, too: then the workflow is looked at again.
	settleWorkflows = `
WITH free AS (
    SELECT run_id, due_at <= now() AS known FROM punctual.ready
    WHERE run_id = ANY((SELECT $2::uuid[])::uuid[]) ORDER BY run_id FOR UPDATE SKIP LOCKED),
ended AS (
    UPDATE punctual.ready y SET due_at = now() FROM free f WHERE y.run_id = f.run_id AND NOT f.known
    RETURNING y.run_id),
looked AS (
    UPDATE punctual.workflows w
    SET looked_at = now(), due = coalesce(w.run_id = ANY((SELECT $2::uuid[])::uuid[]), false)
                                 AND w.run_id NOT IN (SELECT run_id FROM free)
    WHERE run_id = ANY((SELECT $1::uuid[])::uuid[]) OR run_id = ANY((SELECT $2::uuid[])::uuid[])
    RETURNING w.run_id, w.due)
SELECT run_id, due FROM looked WHERE due OR run_id IN (SELECT run_id FROM ended)`
	leaveWorkflows = `UPDATE punctual.workflows SET due = true WHERE run_id = ANY((SELECT $1::uuid[])::uuid[]) AND NOT due`
	// nameLate gives steps that were cancelled because the time of their workflow was up that for a reason. The
	// statement that ended them knows of no workflow. It comes after the lock of workflows, so it waits for nobody.
	nameLate = `
WITH free AS MATERIALIZED (
    SELECT r.id FROM punctual.runs r
    WHERE r.id = ANY($1::uuid[]) AND r.status = 'cancelled' AND r.reason = 'cancelled_by_user'
    FOR NO KEY UPDATE SKIP LOCKED),
late AS (
    UPDATE punctual.runs r SET reason = 'timeout', error = $2
    FROM free f WHERE r.id = ANY($1::uuid[]) AND r.id = f.id
    RETURNING r.id, r.fence)
UPDATE punctual.attempts a SET reason = 'timeout', error = $2
FROM late l WHERE a.run_id = ANY($1::uuid[]) AND a.run_id = l.id AND a.fence = l.fence AND a.outcome = 'cancelled'`
	forgetWorkflows = `DELETE FROM punctual.workflows WHERE run_id = ANY($1::uuid[])`
)

// ofWorkflow reports whether an outcome is of a workflow's run or of a step's.
func ofWorkflow(o domain.Outcome) bool { return o.Step != "" || o.Job.IsWorkflow() }

// stepsFollowing lets workflows go on whose steps end. It implements Following.
type stepsFollowing struct {
	Nothing
	claims *Claims
	of     concerned
	became advanced
}

// Continues implements Following.
func (f *stepsFollowing) Continues(outcomes []domain.Outcome) bool {
	return slices.ContainsFunc(outcomes, ofWorkflow)
}

// QueueEnds implements Following.
func (f *stepsFollowing) QueueEnds(_ *pgx.Batch, outcomes []domain.Outcome, on days.Day) {
	f.of, f.became = workflowsOf(outcomes), advanced{}
	if on == days.AnyDay { // or the table of a day is missing
		f.of.on = days.AnyDay
	}
}

// Continue implements Following.
func (f *stepsFollowing) Continue(ctx context.Context, q pg.Querier, b *pgx.Batch) error {
	if len(f.of.runs) == 0 {
		return nil
	}
	f.of.queueLock(b)
	return f.claims.advance(ctx, q, b, f.of, &f.became)
}

// Leave implements Following.
func (f *stepsFollowing) Leave(b *pgx.Batch) {
	if len(f.of.runs) > 0 {
		b.Queue(touchWorkflows, f.of.runs)
		f.became.again = true
	}
}

// Asks implements Following.
func (f *stepsFollowing) Asks() []string { return f.became.asks() }

// concerned are workflows about which a transaction decides.
type concerned struct {
	runs  []uuid.UUID
	begun []uuid.UUID               // those of them that begin
	parts map[uuid.UUID]part        // of those of which nothing but steps ends, what decides about them, by run
	jobs  map[uuid.UUID]*domain.Job // by run; nil: they are not known
	on    days.Day                  // of their runs, and so of those of their steps
}

// part is the part of a workflow that decides what follows when steps end.
type part struct {
	jobspec.Definition
	last bool // it decides, too, whether all have ended
}

// workflowsOf returns the workflows about which outcomes decide something.
func workflowsOf(outcomes []domain.Outcome) (c concerned) {
	var ended map[uuid.UUID][]string // steps, by run
	for _, o := range outcomes {
		run, job := o.RunID, o.Job
		if o.Step != "" {
			run, job = o.Workflow, o.Job.Whole
		}
		if !job.IsWorkflow() {
			continue
		}
		if c.jobs == nil {
			c.jobs, c.parts = map[uuid.UUID]*domain.Job{}, map[uuid.UUID]part{}
			ended = map[uuid.UUID][]string{}
		}
		if c.jobs[run] == nil {
			c.runs, c.jobs[run] = append(c.runs, run), job
		}
		switch {
		case o.Step != "":
			ended[run] = append(ended[run], o.Step)
		case o.Verdict == domain.Await:
			c.begun = append(c.begun, run)
		}
	}
	for run, steps := range ended {
		decides, last := c.jobs[run].After(steps)
		c.parts[run] = part{decides, last}
	}
	c.on = days.Common(c.runs...)
	return c
}

// queueLock begins workflows, and locks the rows of the others. It comes after the statements that end runs.
func (c concerned) queueLock(b *pgx.Batch) {
	if len(c.begun) > 0 {
		c.on.Queue(b, insertWorkflows, c.begun)
	}
	b.Queue(lockWorkflowsOf, pg.Prepared{}, c.runs)
}

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

// stepRow is a new run of a step.
type stepRow struct {
	of   *workflow
	name string
	job  *domain.Job
	skip *domain.SkippedStep // nil: it starts
}

func newStep(w *workflow, step jobspec.Step, skip *domain.SkippedStep) stepRow {
	return stepRow{w, step.Name, w.job.Step(step.Name), skip}
}

// skipped returns what a column says of a skipped step, and nil for one that starts.
func skipped[T any](of func(*domain.SkippedStep) *T) func(stepRow) *T {
	return func(r stepRow) *T {
		if r.skip == nil {
			return nil
		}
		return of(r.skip)
	}
}

var stepColumns = pg.Columns[stepRow]{
	pg.Col("id", "uuid", func(r stepRow) uuid.UUID { return domain.StepRunID(r.of.id, r.name) }),
	pg.Col("workflow", "uuid", func(r stepRow) uuid.UUID { return r.of.id }),
	pg.Col("step", "text", func(r stepRow) string { return r.name }),
	pg.Col("queue", "text", func(r stepRow) string { return r.job.Queue }),
	pg.Col("priority", "smallint", func(r stepRow) int16 { return r.job.Priority.Lane(0) }),
	pg.Col("caused_by", "uuid", skipped(func(s *domain.SkippedStep) *uuid.UUID { return &s.CausedBy })),
	pg.Col("reason", "text", skipped(func(s *domain.SkippedStep) *string { return (*string)(&s.Reason) })),
	pg.Col("error", "text", skipped(func(s *domain.SkippedStep) *seal.Quoting { return quoting(s.Error) })),
}

// enterSteps makes the runs of steps: those that start, and those that are skipped, which have a reason.
var enterSteps = `
WITH ` + entering(`id, job_id, parent_run, step, caused_by, scheduled_for, due_at, tenant, job_version, lane,
                               trigger, status, reason, error, finished_at`, `
    SELECT u.id, r.job_id, r.id, u.step, u.caused_by, r.scheduled_for, now(), r.tenant, r.job_version,
           coalesce((SELECT q.id FROM punctual.queues q WHERE q.name = u.queue) * 4 + u.priority, r.lane), 'step',
           CASE WHEN u.caused_by IS NULL THEN 'pending' ELSE 'skipped' END, u.reason, u.error,
           CASE WHEN u.caused_by IS NOT NULL THEN now() END
    FROM `+stepColumns.Unnest("u")+`
    JOIN {runs} r ON r.id = u.workflow
    WHERE r.id = {others}
    ORDER BY u.id`)

// readLive reads live workflows, whose rows are locked, with the runs of their steps. It sends b first.
func (s *Claims) readLive(ctx context.Context, q pg.Querier, b *pgx.Batch, of concerned) (all []*workflow, err error) {
	if len(of.runs) == 0 {
		return nil, nil
	}
	b.Queue(pg.ByIndex)
	scan := func(row pgx.CollectableRow) (*workflow, error) {
		w := &workflow{runs: map[string]domain.StepRun{}}
		err := row.Scan(&w.id, &w.marked, &w.old, &w.key.Job, &w.key.Version, &w.tenant, &w.status, &w.reason,
			&w.rerun, &w.now, &w.started)
		w.due = w.marked || of.jobs != nil
		return w, err
	}
	of.on.Queue(b, readWorkflows, of.runs).Query(pg.Into(&all, scan))
	if of.jobs != nil {
		steps := of.queueSteps(b)
		err := q.SendBatch(ctx, b).Close()
		for _, w := range all {
			w.job = of.jobs[w.id]
		}
		steps.fill(all)
		return all, pg.Wrap("reading workflows", err)
	}
	if err := q.SendBatch(ctx, b).Close(); err != nil || len(all) == 0 {
		return nil, pg.Wrap("reading workflows", err)
	}
	found, err := s.definitions.Read(ctx, q, definitions.Of(all, func(w *workflow) (definitions.Version, int32) {
		return w.key, w.tenant
	}))
	if err != nil {
		return nil, err
	}
	var unread []uuid.UUID
	of.jobs = make(map[uuid.UUID]*domain.Job, len(all))
	all = slices.DeleteFunc(all, func(w *workflow) bool {
		if w.job = found.Job(w.key); w.job != nil {
			of.jobs[w.id] = w.job
			return false
		}
		unread = append(unread, w.id) // it goes to the end of the line, and stays due
		s.options.Log.Error("a workflow cannot continue with this version of Punctual; it is left to a version that can",
			"run", w.id, "job", w.key.Job, "version", w.key.Version, "error", found.Why(w.key))
		return true
	})
	var more pgx.Batch
	if len(unread) > 0 {
		more.Queue(`UPDATE punctual.workflows SET looked_at = now() WHERE run_id = ANY($1::uuid[])`, unread)
	}
	steps := of.queueSteps(&more)
	err = q.SendBatch(ctx, &more).Close()
	steps.fill(all)
	return all, pg.Wrap("reading the runs of steps", err)
}

// stepRuns are runs of steps, by id, and whose they are.
type stepRuns struct {
	places map[uuid.UUID]stepPlace
	found  []domain.StepRun
}

// stepPlace is a step of a workflow.
type stepPlace struct {
	workflow uuid.UUID
	step     string
}

// queueSteps reads the runs of steps: of all, or of those that decide what follows. They are there once the batch is
// read.
func (c concerned) queueSteps(b *pgx.Batch) *stepRuns {
	s := &stepRuns{places: map[uuid.UUID]stepPlace{}}
	var ids []uuid.UUID
	for run, job := range c.jobs {
		steps := job.Steps
		if part, is := c.parts[run]; is {
			steps = part.Steps
		}
		for i := range steps { // they are large
			id := domain.StepRunID(run, steps[i].Name)
			ids, s.places[id] = append(ids, id), stepPlace{run, steps[i].Name}
		}
	}
	c.on.Queue(b, readSteps, ids).Query(pg.Into(&s.found, func(row pgx.CollectableRow) (r domain.StepRun, err error) {
		var finished *time.Time
		err = row.Scan(&r.ID, &r.Status, &r.Reason, (*seal.Shown)(&r.Error), &r.CausedBy, &finished)
		r.FinishedAt = pg.OrZero(finished)
		return r, err
	}))
	return s
}

// fill gives workflows the runs of their steps.
func (s *stepRuns) fill(all []*workflow) {
	byID := make(map[uuid.UUID]*workflow, len(all))
	for _, w := range all {
		byID[w.id] = w
	}
	for _, r := range s.found {
		at := s.places[r.ID]
		if w := byID[at.workflow]; w != nil {
			w.runs[at.step] = r
		}
	}
}

// advance lets workflows continue whose rows are locked: it makes the runs of steps that may start, and sets workflows
// due whose steps have ended. It sends b first, and leaves in it what is to be sent then. What became of the workflows
// is in a once that is sent.
func (s *Claims) advance(ctx context.Context, q pg.Querier, b *pgx.Batch, of concerned, a *advanced) error {
	live, err := s.readLive(ctx, q, b, of)
	*b = pgx.Batch{}
	if err != nil || len(live) == 0 {
		return err
	}
	failpoint.At(failpoint.WorkflowLocked)
	nexts, err := of.decide(ctx, q, live)
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
			rows = append(rows, newStep(w, step, nil))
		}
		for _, skip := range next.Skip {
			rows = append(rows, newStep(w, skip.Step, &skip))
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
		of.on.Queue(b, enterSteps, stepColumns.Args(rows)...)
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
		b.Queue(nameLate, late, domain.LateStep)
	}
	if len(over) > 0 {
		b.Queue(forgetWorkflows, over)
	}
	return nil
}

// decide returns what follows in workflows. Where that does not follow from the steps next to those that end, or
// something else has happened, it reads all.
func (c concerned) decide(
	ctx context.Context, q pg.Querier, live []*workflow,
) (nexts map[uuid.UUID]domain.Advance, err error) {
	nexts = make(map[uuid.UUID]domain.Advance, len(live))
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
	steps := rest.queueSteps(&b)
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("reading the runs of steps: %w", err)
	}
	steps.fill(live)
	for _, w := range live {
		if rest.jobs[w.id] != nil {
			nexts[w.id] = w.advance()
		}
	}
	return nexts, nil
}

// asks names whoever has work once the transaction has committed.
func (a *advanced) asks() (chores []string) {
	if a.entered {
		chores = append(chores, pg.TickLoop)
	}
	if a.ended {
		chores = append(chores, ChoreSilent)
	}
	if a.again || len(a.locked) > 0 {
		chores = append(chores, ChoreWorkflows)
	}
	return chores
}

// dueWorkflows are the workflows to which something has happened.
var dueWorkflows = aside.Rows{Kind: aside.Workflow, Table: "workflows", ID: "run_id", Are: "true"}

// AdvanceWorkflows lets workflows continue to which something has happened: it starts steps, cancels those of workflows
// that were cancelled, and has workflows end whose steps have ended.
func (s *Claims) AdvanceWorkflows(ctx context.Context) (wait time.Duration, left bool, err error) {
	a := advanced{cancel: map[toCancel][]uuid.UUID{}}
	found, err := s.aside.Select(ctx, s.db.Runs, dueWorkflows, findWorkflows, workflowBatch)
	if err == nil && len(found) > 0 {
		err = s.aside.Each(ctx, aside.Workflow, found, func(ctx context.Context, some []uuid.UUID) error {
			of, err := s.advanceSome(ctx, some)
			a.add(of)
			return err
		})
	}
	if err != nil {
		return 0, false, fmt.Errorf("letting workflows continue: %w", err)
	}
	full := len(found) >= workflowBatch
	failpoint.At(failpoint.WorkflowLooked)
	more := full || a.again
	for why, runs := range a.cancel {
		err := s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			err := pg.Exec(ctx, tx, `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`, why.job)
			if err != nil {
				return err
			}
			_, err = CancelRuns(ctx, tx, runs, why.reason)
			return err
		})
		if err != nil {
			return 0, false, fmt.Errorf("cancelling steps: %w", err)
		}
		s.db.Ask(Freed...)
		s.Over(runs...)
	}
	locked := len(a.locked) > 0
	a.locked, a.again = nil, false // this chore comes again by itself
	s.db.Ask(a.asks()...)
	if len(a.helped) > 0 {
		s.takenBack.Add(int64(len(a.helped)))
		s.options.Log.Error("workflows stood still, though steps could start or had all ended; they continue",
			"count", len(a.helped), "first", a.helped[0])
	}
	if !more && locked {
		return lockedPause, true, nil
	}
	return 0, more, nil
}

// advanceSome lets workflows continue in one transaction.
func (s *Claims) advanceSome(ctx context.Context, some []uuid.UUID) (a advanced, err error) {
	err = s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		ids, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], lockWorkflows, some)
		if err != nil || len(ids) == 0 {
			return err
		}
		var b pgx.Batch
		if err := s.advance(ctx, tx, &b, concerned{runs: ids, on: days.Common(ids...)}, &a); err != nil || b.Len() == 0 {
			return err
		}
		err = tx.SendBatch(ctx, &b).Close()
		failpoint.At(failpoint.WorkflowWritten)
		return err
	})
	if err != nil {
		return advanced{}, err // what was rolled back has not happened
	}
	return a, nil
}

// CountWorkflows counts workflows that have not ended, and steps that wait for approval, each up to 10,000.
func (s *Claims) CountWorkflows(ctx context.Context) (workflows, approvals int, err error) {
	err = s.db.Chores.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM punctual.workflows LIMIT 10000) w),
		       (SELECT count(*) FROM (SELECT FROM punctual.ready WHERE waits = 'person' LIMIT 10000) y)`).
		Scan(&workflows, &approvals)
	return workflows, approvals, pg.Wrap("counting workflows", err)
}
