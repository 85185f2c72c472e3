package claim

import (
	"context"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
)

// gates are the gates of the runs' jobs. It is a subject.
type gates struct {
	*lockedRuns
	of    map[uuid.UUID]Gate // by job
	taken []jobRun           // those that are taken, each by the run that starts
}

func newGates(l *lockedRuns) *gates { return &gates{lockedRuns: l, of: map[uuid.UUID]Gate{}} }

// read finds out which gates are held, and by whom.
func (g *gates) read(ctx context.Context) error {
	g.claims.later.learn(g.of)
	if err := mendGates(ctx, g.conn, g.found.Jobs, g.of, g.lacking()...); err != nil {
		return err
	}
	g.passThoseOfSteps()
	return g.claims.freeEndedGates(ctx, g.conn, g.of, g.now)
}

// lacking are the jobs of which missed slots wait, and that have no gate because their runs may overlap.
func (g *gates) lacking() (jobs []uuid.UUID) {
	for _, r := range g.runs {
		_, there := g.of[r.key.Job]
		if r.Job != nil && !there && r.Job.LinesUp() && r.Job.CatchesUp(r.Trigger) {
			jobs = append(jobs, r.Job.ID)
		}
	}
	return jobs
}

// passThoseOfSteps leaves alone the gates of jobs of which only steps wait: they are under the gate that their workflow
// has.
func (g *gates) passThoseOfSteps() {
	whole := map[uuid.UUID]bool{}
	for _, r := range g.runs {
		if r.Step == "" {
			whole[r.key.Job] = true
		}
	}
	maps.DeleteFunc(g.of, func(job uuid.UUID, _ Gate) bool { return !whole[job] })
}

// decide puts off a run whose gate another transaction has locked, or has just made. It asks whether the job has a gate
// now.
func (g *gates) decide(r *waitingRun) verdict {
	is, there := g.of[r.Job.ID]
	catchesUp := r.Job.CatchesUp(r.Trigger)
	r.Gated = r.Step == "" && // a step is under the gate that its workflow has
		(is.gated || catchesUp || is.active == r.RunID)
	if r.Gated && is.busy || !there && (catchesUp || r.Job.ConcurrencyPolicy != jobspec.PolicyAllow) {
		return again(g.claims.later.in(r.Job.ID))
	}
	return goesOn
}

// take gives a run that starts the gate of its job.
func (g *gates) take(r *waitingRun) {
	is := g.of[r.Job.ID]
	if !r.Gated || len(is.Holders()) > 0 {
		return
	}
	if is.active = r.RunID; is.Waiting == r.RunID {
		is.Waiting = uuid.Nil
	}
	g.of[r.Job.ID] = is
	g.taken = append(g.taken, jobRun{r.Job.ID, r.RunID})
}

func (g *gates) write(_ context.Context, b *pgx.Batch) error {
	queueTakeGates(b, g.taken, false)
	return nil
}
