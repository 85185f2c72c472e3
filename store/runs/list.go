package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
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
//
// Before an instant lie two kinds of runs: those whose ids lie before it too, and those that were made later. The
// second kind has the higher ids, so a page shows it first.
func (s *Runs) ListRuns(
	ctx context.Context, tenant int32, f Filter,
) (runs []Run, nextCursor string, err error) {
	q := s.db.Reader(ctx, tenant)
	if f.Job != "" {
		id, err := names.Find(ctx, q, tenant, f.Job)
		if err != nil {
			return nil, "", err
		}
		f.job = &id
	}
	parts := []bool{false}
	if f.To != nil {
		parts = []bool{true, false}
	}
	for _, later := range parts {
		part, err := s.listPart(ctx, q, tenant, f, later, f.Size()+1-len(runs))
		if err != nil {
			return nil, "", err
		}
		if runs = append(runs, part...); len(runs) > f.Size() {
			break
		}
	}
	runs, nextCursor = pg.Cut(runs, f.Page, runCursor, func(r Run) uuid.UUID { return r.ID })
	return runs, nextCursor, nil
}

// listPart returns the first runs of a page: of those that were made later than the filter's end, or of the others.
func (s *Runs) listPart(
	ctx context.Context, q pg.Querier, tenant int32, f Filter, later bool, limit int,
) ([]Run, error) {
	var c pg.Conditions
	if err := f.conditions(&c, tenant); err != nil {
		return nil, err
	}
	var from string
	switch {
	case later:
		from = f.laterRows(&c, tenant)
	case f.To != nil:
		c.Add(`r.id < ?`, firstAfter(*f.To))
		fallthrough
	default:
		from = f.candidates(&c, tenant, limit)
	}
	query := queryInOrder
	if from != "" {
		if err := c.Candidates(ctx, s.db, `r.tenant`, tenant, `r.id`, from, limit); err != nil {
			return nil, fmt.Errorf("listing runs: %w", err)
		}
		query = Query
	}
	return query(ctx, q, c.Where()+fmt.Sprintf(` ORDER BY r.id DESC LIMIT %d`, limit), c.Args...)
}

// conditions adds what the filter says.
func (f Filter) conditions(c *pg.Conditions, tenant int32) error {
	c.Add(`r.tenant = ?`, tenant)
	if err := c.Page(f.Page, runCursor, `r.id < ?`); err != nil {
		return err
	}
	// names.Find does not look up an id, so the second condition excludes deleted jobs.
	c.AddIf(f.job != nil, `r.job_id = ? AND j.state <> 'deleted'`, f.job)
	c.AddIf(f.JobID != nil, `r.job_id = ?`, f.JobID)
	switch f.Status {
	case "":
	case domain.StatusSucceeded:
		// Most runs have succeeded. With this condition the planner expects so too, even for a day without statistics.
		c.Add(`r.status <> ALL(?::text[])`,
			pg.Texts(slices.DeleteFunc(domain.Statuses(), func(s domain.Status) bool { return s == f.Status })))
	default:
		c.Add(`r.status = ?`, f.Status)
	}
	c.AddIf(f.Reason != "", `r.reason = ?`, f.Reason)
	c.AddIf(f.Trigger != "", `r.trigger = ?`, f.Trigger)
	c.AddIf(f.Trigger == "", `NOT `+claim.IsNotice) // notices are not runs of their jobs
	c.AddIf(f.Late != nil, `r.late = ?`, f.Late)
	if err := names.SelectLabels(c, f.Labels); err != nil {
		return err
	}
	if f.From != nil {
		// No id lies long before its slot. The lower bound prunes partitions.
		c.Add(`r.id >= ?`, domain.FirstRunID(f.From.Add(-ClockSlack)))
		c.Add(`coalesce(r.skipped_last, r.scheduled_for) >= ?`, *f.From)
	}
	c.AddIf(f.To != nil, `coalesce(r.skipped_first, r.scheduled_for) < ?`, f.To)
	return nil
}

// queryInOrder is Query for conditions that an index can serve in the order of ids. It makes Postgres read rows in that
// order, which ends with the page. Of a day without statistics Postgres expects few rows that match, and would read and
// sort all of them.
func queryInOrder(ctx context.Context, q pg.Querier, rest string, args ...any) (runs []Run, err error) {
	var b pgx.Batch
	b.Queue(`SELECT set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true)`)
	b.Queue(selectRuns+rest, args...).Query(pg.Into(&runs, scanRun))
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("reading runs: %w", err)
	}
	return runs, fillMaxAttempts(ctx, q, runs)
}

const withJobs = ` LEFT JOIN punctual.jobs j ON j.id = r.job_id`

// candidates returns the tables in which to look for the page's rows first. It returns nothing if the conditions find
// them by the indexes on a job, a reason, a trigger or a tenant. These indexes begin with the value that is asked for
// and go on with the id, so a page costs as much as it is long, whatever else there is. No index has the status,
// because the status of each run changes: runs of most states are found by their reasons, or by their rows in ready.
func (f Filter) candidates(c *pg.Conditions, tenant int32, limit int) string {
	switch {
	case f.Status == domain.StatusRunning:
		// Replicas send few runs at a time. Runs that targets work on wait in ready for their deadline. OFFSET 0 has the runs
		// looked up one by one.
		c.Args = append(c.Args, tenant)
		return fmt.Sprintf(`(
				SELECT unnest(run_ids) AS id FROM punctual.claims
				UNION
				SELECT run_id FROM punctual.ready WHERE tenant = $%d) u
			CROSS JOIN LATERAL (SELECT * FROM punctual.runs r WHERE r.id = u.id OFFSET 0) r`, len(c.Args)) + withJobs
	case f.Status != "" && !f.Status.Final():
		c.Add(`y.tenant = ?`, tenant)
		return `punctual.ready y JOIN punctual.runs r ON r.id = y.run_id AND r.job_id = y.job_id` + withJobs
	case f.Status != "" && f.Status != domain.StatusSucceeded && f.Reason == "":
		c.Args = append(c.Args, pg.Texts(domain.ReasonsOf(f.Status)))
		inner := fmt.Sprintf(`unnest($%d::text[]) v(reason)
			CROSS JOIN LATERAL (
				SELECT r.* FROM punctual.runs r`+withJobs+c.Where()+` AND r.reason = v.reason
				ORDER BY r.id DESC LIMIT %d) r`, len(c.Args), limit)
		*c = pg.Conditions{Args: c.Args} // the inner statement has the others
		return inner
	case len(f.Labels) > 0:
		return runTables
	}
	return ""
}
