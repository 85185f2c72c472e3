package claim

import (
	"context"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// With the policy queue all runs of a job wait at its gate, and pass it one at a time, the oldest first.

// readFirst finds the oldest waiting run of each job with the policy queue. It sends nothing if there is no such job.
func (c *readyClaim) readFirst(ctx context.Context) error {
	var jobs []uuid.UUID
	for _, w := range c.waiting {
		if job := c.found.Jobs[w.key]; job != nil && job.ConcurrencyPolicy == domain.PolicyQueue {
			jobs = append(jobs, job.ID)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	first, err := pg.Map[uuid.UUID, uuid.UUID](ctx, c.conn, `
		SELECT DISTINCT ON (job_id) job_id, run_id
		FROM punctual.ready
		WHERE job_id = ANY($1::uuid[]) AND lane >= 0
		ORDER BY job_id, run_id`, jobs)
	c.first = first
	return pg.Wrap("looking for the oldest runs of jobs", err)
}

// waitsAtGate reports whether a run of a job with a gate waits there: another run holds the gate, or under the policy
// queue an older run waits.
func (c *readyClaim) waitsAtGate(w waitingRun, job *domain.Job, holders []uuid.UUID) bool {
	for _, run := range holders {
		if run == w.RunID {
			return false
		}
	}
	first, known := c.first[job.ID]
	return len(holders) > 0 || known && job.ConcurrencyPolicy == domain.PolicyQueue && pg.CompareIDs(first, w.RunID) < 0
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
	o.behind, o.waiting = append(o.behind, w.key.Job), append(o.waiting, w.RunID)
}

// countPending counts the waiting runs of jobs with the policy queue. It sends nothing if there is no such job.
func (c *dueClaim) countPending(ctx context.Context) (err error) {
	var jobs []uuid.UUID
	for _, job := range c.found.Jobs {
		if job.ConcurrencyPolicy == domain.PolicyQueue {
			jobs = append(jobs, job.ID)
		}
	}
	if len(jobs) > 0 {
		c.pending, err = Pending(ctx, c.conn, jobs...)
	}
	return err
}

// Pending counts the runs of jobs that wait, without those that have their jobs' gates.
func Pending(ctx context.Context, q pg.Querier, jobs ...uuid.UUID) (map[uuid.UUID]int, error) {
	pending, err := pg.Map[uuid.UUID, int](ctx, q, `
		SELECT y.job_id, count(*)
		FROM punctual.ready y
		LEFT JOIN punctual.exclusive x ON x.job_id = y.job_id AND x.active_run = y.run_id
		WHERE y.job_id = ANY($1::uuid[]) AND x.job_id IS NULL
		GROUP BY y.job_id`, jobs)
	return pending, pg.Wrap("counting the waiting runs of jobs", err)
}
