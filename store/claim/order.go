package claim

import (
	"context"
	"maps"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

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
	// Under allow only runs of missed slots wait at the gate. The others are looked up all at once.
	pending, err := pg.Map[uuid.UUID, int](ctx, c.conn, `
		WITH waiting AS MATERIALIZED (
		    SELECT y.job_id, y.run_id, y.waits FROM punctual.ready y
		    WHERE y.job_id = ANY($1::uuid[]) AND NOT `+isDeadline+`)
		SELECT job_id, count(*)
		FROM (SELECT job_id FROM waiting WHERE waits = 'gate'
		      UNION ALL
		      SELECT r.job_id
		      FROM punctual.runs_of(ARRAY(SELECT run_id FROM waiting WHERE waits <> 'gate')) r
		      WHERE r.trigger = 'catchup') all_of_them
		GROUP BY job_id`, jobs)
	maps.Copy(c.pending, pending)
	return pg.Wrap("counting the missed slots that wait", err)
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
		WHERE y.job_id = ANY($1::uuid[]) AND x.job_id IS NULL AND y.run_id <> ALL(ARRAY(
		    SELECT r.id
		    FROM punctual.runs_of(ARRAY(SELECT run_id FROM punctual.ready WHERE job_id = ANY($2::uuid[]))) r
		    WHERE r.step IS NOT NULL))
		GROUP BY y.job_id`, ids, workflows)
	return pending, pg.Wrap("counting the waiting runs of jobs", err)
}
