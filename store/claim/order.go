package claim

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// With the policy queue all runs of a job wait at its gate, and pass it one at a time, the oldest first. So do the runs
// of missed slots under fire_all, whatever the policy. Under allow they alone pass the gate, which is open to all
// others.

// line is how the runs of a job stand that go in order: with the policy queue all, and else those of missed slots.
type line struct {
	first  uuid.UUID   // the oldest that waits; uuid.Nil: none, but for dated runs that come by this claim
	parked []uuid.UUID // those of this claim that waited at the gate before
	length int         // how many wait at the gate
}

// inLine reports whether runs of a job with the trigger go in order.
func inLine(job *domain.Job, trigger domain.Trigger) bool {
	return job.ConcurrencyPolicy == jobspec.PolicyQueue || job.CatchesUp(trigger)
}

// readLines reads the lines of jobs with the policy queue, and of those whose missed slots wait. It sends nothing if
// there is no such job.
func (c *readyClaim) readLines(ctx context.Context) error {
	jobs, workflows, catchUps := []uuid.UUID(nil), []uuid.UUID{}, []uuid.UUID{}
	for _, w := range c.waiting {
		job := c.found.Job(w.key)
		if job == nil || !inLine(job, w.Trigger) {
			continue
		}
		jobs, c.lines[job.ID] = append(jobs, job.ID), &line{}
		if job.IsWorkflow() {
			workflows = append(workflows, job.ID)
		}
		if job.ConcurrencyPolicy != jobspec.PolicyQueue {
			catchUps = append(catchUps, job.ID)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	rows := pg.Query(ctx, c.conn, `
		SELECT job_id, (array_agg(run_id ORDER BY run_id))[1], count(*) FILTER (WHERE waits = 'gate'),
		       coalesce(array_agg(run_id) FILTER (WHERE waits = 'gate' AND run_id = ANY($2::uuid[])), '{}')
		FROM punctual.ready y
		WHERE job_id = ANY($1::uuid[]) AND NOT `+isDeadline+` AND `+notOfStep(`$3`)+`
		  AND (job_id <> ALL($4::uuid[]) OR EXISTS (
		      SELECT FROM punctual.runs_of(ARRAY[y.run_id]) r WHERE r.trigger = 'catchup' AND r.fence IS NULL))
		GROUP BY job_id`, jobs, c.ids, workflows, catchUps)
	var job uuid.UUID
	var l line
	err := pg.Each(rows, []any{&job, &l.first, &l.length, &l.parked}, func() {
		c.lines[job] = &line{l.first, slices.Clone(l.parked), l.length}
	})
	return pg.Wrap("reading the lines of jobs", err)
}

// lackingGates are the jobs of which missed slots wait, and that have no gate because their runs may overlap.
func (c *readyClaim) lackingGates() (jobs []uuid.UUID) {
	for _, w := range c.waiting {
		_, there := c.gates[w.key.Job]
		if job := c.found.Job(w.key); job != nil && !there && job.LinesUp() && job.CatchesUp(w.Trigger) {
			jobs = append(jobs, job.ID)
		}
	}
	return jobs
}

// waitsAtGate reports whether a run of a job with a gate waits there: another run holds the gate, or an older one of
// those that go in order waits.
func (c *readyClaim) waitsAtGate(w waitingRun, job *domain.Job, holders []uuid.UUID) bool {
	if slices.Contains(holders, w.RunID) {
		return false
	}
	l := c.lines[job.ID]
	return len(holders) > 0 || inLine(job, w.Trigger) && l.first != uuid.Nil && pg.CompareIDs(l.first, w.RunID) < 0
}

// parkOrSkip leaves a run at its job's gate. Under the policy queue only so many may wait there. A run that an event,
// a chain or an instant has made may be one too many: it is skipped. Work that a person has asked for slot by slot, as
// replays and backfills, is bounded where it is made.
func (c *readyClaim) parkOrSkip(w waitingRun, job *domain.Job) {
	l := c.lines[job.ID]
	if job.ConcurrencyPolicy == jobspec.PolicyQueue && !slices.Contains(l.parked, w.RunID) {
		if l.length >= job.MaxPendingRuns && w.Fence == 0 && !w.Trigger.Ordered() {
			c.drops(w)
			c.overlaps.beyond = append(c.overlaps.beyond, w.RunID)
			return
		}
		l.length++
	}
	c.park(w.RunID, domain.WaitGate, "")
}

// waitsUngated makes a run that its gate has just let in, and that a limit keeps from starting, the waiting run of its
// job: the policy decides about further runs as if it waited at the gate.
func (c *readyClaim) waitsUngated(w waitingRun) {
	if w.policy == "" {
		return
	}
	g, o := c.gates[w.key.Job], &c.overlaps
	g.Waiting, g.waitsFor = w.RunID, waitingFacts{}
	c.gates[w.key.Job] = g
	o.behind = append(o.behind, jobRun{w.key.Job, w.RunID})
}

// countPending counts the waiting runs of jobs with the policy queue, and those of missed slots that go in order. It
// sends nothing if there is no such job.
func (c *dueClaim) countPending(ctx context.Context) error {
	if err := c.countCatchUps(ctx); err != nil {
		return err
	}
	var jobs []*domain.Job
	for _, job := range c.found.Jobs {
		if job.ConcurrencyPolicy == jobspec.PolicyQueue {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) > 0 {
		pending, err := Pending(ctx, c.conn, jobs...)
		maps.Copy(c.pending, pending)
		return err
	}
	return nil
}

// countCatchUps counts the runs of missed slots that wait, of jobs with another one.
func (c *dueClaim) countCatchUps(ctx context.Context) error {
	var jobs []uuid.UUID
	for _, r := range c.rows {
		job := c.found.Jobs[r.key]
		if job != nil && job.LinesUp() && r.scheduledFor.Before(c.now.Add(-job.Missed.Tolerance.Value())) {
			jobs = append(jobs, job.ID)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	pending, err := pg.Map[uuid.UUID, int](ctx, c.conn, `
		SELECT y.job_id, count(*)
		FROM punctual.ready y, punctual.runs_of(ARRAY[y.run_id]) r
		WHERE y.job_id = ANY($1::uuid[]) AND NOT `+isDeadline+` AND r.trigger = 'catchup'
		GROUP BY y.job_id`, jobs)
	maps.Copy(c.pending, pending)
	return pg.Wrap("counting the missed slots that wait", err)
}

// notOfStep is SQL for: a row y of ready is not the run of a step, if its job is one of an array. Only the runs of
// these jobs are looked up.
func notOfStep(jobs string) string {
	return `NOT (y.job_id = ANY(` + jobs + `::uuid[])
		         AND EXISTS (SELECT FROM punctual.runs_of(ARRAY[y.run_id]) r WHERE r.step IS NOT NULL))`
}

// Pending counts the runs of jobs that wait, without those that have their jobs' gates, and without steps.
func Pending(ctx context.Context, q pg.Querier, jobs ...*domain.Job) (map[uuid.UUID]int, error) {
	ids, workflows := []uuid.UUID{}, []uuid.UUID{}
	for _, job := range jobs {
		if ids = append(ids, job.ID); job.IsWorkflow() {
			workflows = append(workflows, job.ID)
		}
	}
	pending, err := pg.Map[uuid.UUID, int](ctx, q, `
		SELECT y.job_id, count(*)
		FROM punctual.ready y
		LEFT JOIN punctual.exclusive x ON x.job_id = y.job_id AND x.active_run = y.run_id
		WHERE y.job_id = ANY($1::uuid[]) AND x.job_id IS NULL AND `+notOfStep(`$2`)+`
		GROUP BY y.job_id`, ids, workflows)
	return pending, pg.Wrap("counting the waiting runs of jobs", err)
}
