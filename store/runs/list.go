package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/claim"
	"punctual/store/names"
	"punctual/store/pg"
)

// ClockSlack is how far the time in a run's id may lie before its slot: a skip carries the time at which its
// transaction began, and after a failover the database's clock may be another one.
const ClockSlack = time.Hour

// runCursor is the list that a cursor of runs belongs to.
const runCursor byte = 'r'

// ListRuns returns the runs and skips that the filter selects, newest first by id, and the cursor of the next page,
// which is empty on the last page.
func (s *Runs) ListRuns(
	ctx context.Context, tenant int32, f Filter,
) (runs []Record, nextCursor string, err error) {
	var c pg.Conditions
	q := s.db.Reader(ctx, tenant)
	c.Add(`r.tenant = ?`, tenant)
	if err := c.Page(f.Page, runCursor, `r.id < ?`); err != nil {
		return nil, "", err
	}
	if f.Job != "" {
		job, err := names.Find(ctx, q, tenant, f.Job)
		if err != nil {
			return nil, "", err
		}
		// names.Find does not look up an id, so the second condition excludes deleted jobs.
		c.Add(`r.job_id = ? AND j.state <> 'deleted'`, job)
	}
	if f.JobID != nil {
		c.Add(`r.job_id = ?`, *f.JobID)
	}
	switch f.Status {
	case "":
	case scheduler.StatusSucceeded:
		// Most runs have succeeded. With this condition the planner expects so too, even for a day without statistics.
		c.Add(`r.status <> ALL(?::text[])`,
			texts(slices.DeleteFunc(scheduler.Statuses(), func(s scheduler.Status) bool { return s == f.Status })))
	default:
		c.Add(`r.status = ?`, f.Status)
	}
	if f.Reason != "" {
		c.Add(`r.reason = ?`, f.Reason)
	}
	if f.Trigger != "" {
		c.Add(`r.trigger = ?`, f.Trigger)
	} else {
		c.Add(`NOT ` + claim.IsNotice) // notices are not runs of their jobs
	}
	if f.Late != nil {
		c.Add(`r.late = ?`, *f.Late)
	}
	if err := names.SelectLabels(&c, f.Labels); err != nil {
		return nil, "", err
	}
	if f.From != nil {
		// The id of a slot's run holds the time of the slot. All other ids hold the time at which they were made, which is
		// later. So ids have a lower bound, which prunes partitions, and no upper one.
		c.Add(`r.id >= ?`, scheduler.FirstRunID(f.From.Add(-ClockSlack)))
		c.Add(`coalesce(r.skipped_last, r.scheduled_for) >= ?`, *f.From)
	}
	if f.To != nil {
		c.Add(`coalesce(r.skipped_first, r.scheduled_for) < ?`, *f.To)
	}
	if from := f.candidates(&c, tenant); from != "" {
		if err := c.Candidates(ctx, s.db, `r.tenant`, tenant, `r.id`, from, f.Page); err != nil {
			return nil, "", fmt.Errorf("listing runs: %w", err)
		}
	}
	runs, err = Query(ctx, q, c.Where()+fmt.Sprintf(` ORDER BY r.id DESC LIMIT %d`, f.Size()+1), c.Args...)
	if err != nil {
		return nil, "", err
	}
	runs, nextCursor = pg.Cut(runs, f.Page, runCursor, func(r Record) uuid.UUID { return r.ID })
	return runs, nextCursor, nil
}

// candidates returns the tables in which to look for the page's rows first. It returns nothing if the conditions find
// them by the indexes on a job, a reason, a trigger or a tenant. These indexes begin with the value that is asked for
// and go on with the id, so a page costs as much as it is long, whatever else there is. No index has the status,
// because the status of each run changes: runs of most states are found by their reasons, or by their rows in ready.
func (f Filter) candidates(c *pg.Conditions, tenant int32) string {
	const jobs = ` LEFT JOIN punctual.jobs j ON j.id = r.job_id`
	switch {
	case f.Status == scheduler.StatusRunning:
		// Replicas send few runs at a time. Runs that targets work on wait in ready for their deadline.
		c.Args = append(c.Args, tenant)
		return fmt.Sprintf(`(
				SELECT unnest(run_ids) AS id FROM punctual.claims
				UNION
				SELECT run_id FROM punctual.ready WHERE tenant = $%d) u
			CROSS JOIN LATERAL (SELECT * FROM punctual.runs r WHERE r.id = u.id OFFSET 0) r`, len(c.Args)) + jobs // one by one
	case f.Status != "" && !f.Status.Final():
		c.Add(`y.tenant = ?`, tenant)
		return `punctual.ready y JOIN punctual.runs r ON r.id = y.run_id AND r.job_id = y.job_id` + jobs
	case f.Status != "" && f.Status != scheduler.StatusSucceeded && f.Reason == "":
		c.Args = append(c.Args, texts(scheduler.ReasonsOf(f.Status)))
		limit := f.Size() + 1
		inner := fmt.Sprintf(`unnest($%d::text[]) v(reason)
			CROSS JOIN LATERAL (
				SELECT r.* FROM punctual.runs r`+jobs+c.Where()+` AND r.reason = v.reason
				ORDER BY r.id DESC LIMIT %d) r`, len(c.Args), limit)
		*c = pg.Conditions{Args: c.Args} // the inner statement has the others
		return inner
	case len(f.Labels) > 0:
		return runTables
	}
	return ""
}

func texts[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = string(v)
	}
	return all
}
