package flow

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
)

// Follower lets workflows go on whose steps end.
var Follower = claim.Follows(func() claim.Following { return &following{} })

const (
	// insertWorkflows begins workflows. The transaction that does so also decides what follows.
	insertWorkflows = `
INSERT INTO punctual.workflows (run_id, tenant, due)
SELECT r.id, r.tenant, false FROM {runs} r
WHERE r.id = {ids} AND r.status = 'running' AND r.accepted_at IS NOT NULL
ORDER BY r.id
ON CONFLICT DO NOTHING`
	lockWorkflowsOf = `SELECT FROM punctual.workflows WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE`
)

// following is what follows in one transaction. It implements claim.Following.
type following struct {
	claim.Nothing
	of     concerned
	became advanced
}

// Continues implements claim.Following.
func (f *following) Continues(outcomes []domain.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o domain.Outcome) bool { return o.Step != "" || o.Job.IsWorkflow() })
}

// QueueEnds implements claim.Following.
func (f *following) QueueEnds(_ *pgx.Batch, outcomes []domain.Outcome, on days.Day) {
	f.of, f.became = workflowsOf(outcomes), advanced{}
	if on == days.AnyDay { // or the table of a day is missing
		f.of.on = days.AnyDay
	}
}

// Continue implements claim.Following.
func (f *following) Continue(ctx context.Context, q pg.Querier, b *pgx.Batch) error {
	if len(f.of.runs) == 0 {
		return nil
	}
	if len(f.of.begun) > 0 {
		f.of.on.Queue(b, insertWorkflows, f.of.begun)
	}
	b.Queue(lockWorkflowsOf, pg.Prepared{}, f.of.runs)
	live, err := f.of.read(ctx, q, b)
	if err != nil {
		return err
	}
	*b = pgx.Batch{}
	return f.of.advance(ctx, q, b, live, &f.became)
}

// Leave implements claim.Following.
func (f *following) Leave(b *pgx.Batch) {
	if len(f.of.runs) > 0 {
		b.Queue(lockWorkflowsOf, pg.Prepared{}, f.of.runs)
		b.Queue(leaveWorkflows, f.of.runs)
		f.became.again = true
	}
}

// Asks implements claim.Following.
func (f *following) Asks() []string { return f.became.asks() }

// Overdue is a claim.Overdue.
func Overdue(
	ctx context.Context, q pg.Querier, runs []domain.Outcome, now time.Time,
) (map[uuid.UUID]domain.Outcome, error) {
	c := concerned{jobs: map[uuid.UUID]*domain.Job{}}
	for _, o := range runs {
		c.runs, c.jobs[o.RunID] = append(c.runs, o.RunID), o.Job
	}
	c.on = days.Common(c.runs...)
	live, err := c.read(ctx, q, new(pgx.Batch))
	if err != nil {
		return nil, err
	}
	of, judged := byRun(live), make(map[uuid.UUID]domain.Outcome, len(runs))
	for _, o := range runs {
		judged[o.RunID] = of[o.RunID].overdue(o, now)
	}
	return judged, nil
}

// concerned are workflows about which a transaction decides.
type concerned struct {
	runs  []uuid.UUID
	begun []uuid.UUID               // those of them that begin
	parts map[uuid.UUID]part        // of those of which nothing but steps ends, what decides about them, by run
	jobs  map[uuid.UUID]*domain.Job // by run
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
