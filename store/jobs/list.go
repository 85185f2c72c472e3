package jobs

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/names"
	"punctual/store/pg"
)

// selectJobs reads a page of jobs and the first job of the next page.
const selectJobs = `
SELECT id, tenant, version, state, paused_at, paused_until, paused_by, pause_note, created_at, updated_at, completed_at,
       tenant_id, lane, enabled, scheduled_for, next_run_at, definition, failing_since, stale_since, overlapping_since,
       backfilled, read_at
FROM (SELECT ` + jobColumns + `,
             sum(octet_length(v.definition::text))
                 OVER (ORDER BY j.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
      FROM ` + jobTables + ` %s ORDER BY j.id DESC LIMIT %d)
     AS p(id, tenant, version, state, paused_at, paused_until, paused_by, pause_note, created_at, updated_at,
          completed_at, tenant_id, lane, enabled, scheduled_for, next_run_at, definition, failing_since, stale_since,
          overlapping_since, backfilled, read_at, bytes)
WHERE coalesce(bytes, 0) < %d
ORDER BY id DESC`

// jobCursor is the list that a cursor of jobs belongs to.
const jobCursor byte = 'j'

// How many jobs a page looks into for what no index finds: a text, and completed jobs.
const (
	searchWindow    = 2_000
	completedWindow = 20_000
)

// window is how many jobs a page looks into; 0: as many as it needs. An index finds the jobs of other filters.
func (f Filter) window() int {
	switch {
	case len(f.Labels) > 0, f.NamePrefix != "", f.Among != nil:
	case f.Query != "":
		return searchWindow
	case f.State == domain.JobCompleted:
		return completedWindow
	}
	return 0
}

// ListJobs returns the jobs that the filter selects, newest first, and the cursor of the next page, which is empty on
// the last page. A page ends before its limit if its definitions are large, and where its search has looked into its
// window.
func (s *Jobs) ListJobs(
	ctx context.Context, tenant int32, f Filter,
) (jobs []Record, nextCursor string, err error) {
	var c pg.Conditions
	if err := c.Page(f.Page, jobCursor, `j.id < ?`); err != nil {
		return nil, "", err
	}
	if err := f.conditions(&c, tenant); err != nil {
		return nil, "", err
	}
	q := s.db.Callers.Reader(tenant)
	oldest, err := f.oldestSearched(ctx, q, tenant)
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	c.AddIf(oldest != nil, `j.id >= ?`, oldest)
	if f.window() == completedWindow && f.Queue == "" {
		if f.Among, err = f.completed(ctx, q, tenant, oldest); err != nil {
			return nil, "", fmt.Errorf("listing jobs: %w", err)
		}
		c.Add(`j.id = ANY(?::uuid[])`, f.Among)
	}
	if len(f.Labels) > 0 {
		all := s.db.Callers.Reader(pg.Everybody)
		if _, err := c.Candidates(ctx, all, `j.tenant`, tenant, `j.id`, jobTables, f.Size()+1); err != nil {
			return nil, "", fmt.Errorf("listing jobs: %w", err)
		}
	}
	jobs, page, err := f.read(ctx, q, c)
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	jobs, nextCursor = pg.Cut(jobs, page, jobCursor, func(j Record) uuid.UUID { return j.ID })
	if nextCursor == "" && oldest != nil {
		nextCursor = pg.Cursor(jobCursor, *oldest)
	}
	return jobs, nextCursor, fillRuns(ctx, q, jobs, f.Recent)
}

// oldestSearched returns the last job that a page looks into. It returns nil if the page looks into all jobs that are
// left: they are few, or an index finds those in question.
func (f Filter) oldestSearched(ctx context.Context, q pg.Querier, tenant int32) (*uuid.UUID, error) {
	window := f.window()
	if window == 0 {
		return nil, nil
	}
	var c pg.Conditions
	if err := c.Page(f.Page, jobCursor, `j.id < ?`); err != nil {
		return nil, err
	}
	c.Add(`j.tenant = ?`, tenant)
	if window == completedWindow {
		c.Add(`j.kind IN ('at', 'delay') AND j.state = 'active'`)
	} else {
		c.Add(`j.state <> 'deleted'`)
	}
	ids, err := pg.All(ctx, q, pgx.RowTo[uuid.UUID], fmt.Sprintf(`
		SELECT j.id FROM punctual.jobs j%s ORDER BY j.id DESC OFFSET %d LIMIT 2`, c.Where(), window-1), c.Args...)
	if err != nil || len(ids) < 2 {
		return nil, err
	}
	return &ids[0], nil
}

// selectCompletedPage finds completed jobs of a tenant ($1), newest first, from below an id ($2) down to another one
// ($3). One-shots have no schedule once their slot was claimed. Other jobs have one, which says that it is completed.
const selectCompletedPage = `
SELECT id FROM (
    (SELECT s.job_id AS id FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id
     WHERE s.completed_at IS NOT NULL AND s.tenant = $1 AND j.state = 'active' AND s.job_id < $2 AND s.job_id >= $3
     ORDER BY s.job_id DESC LIMIT $4)
    UNION ALL
    (SELECT j.id FROM punctual.jobs j
     WHERE j.tenant = $1 AND j.kind IN ('at', 'delay') AND j.state = 'active' AND j.id < $2 AND j.id >= $3
       AND NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id)
     ORDER BY j.id DESC LIMIT $4)) p
ORDER BY id DESC LIMIT $4`

// completed returns the ids of a page of completed jobs, and of the first job of the next page.
func (f Filter) completed(
	ctx context.Context, q pg.Querier, tenant int32, oldest *uuid.UUID,
) (ids []uuid.UUID, err error) {
	below, _, err := f.After(jobCursor)
	if err != nil {
		return nil, err
	}
	if below == uuid.Nil {
		below = uuid.Max
	}
	if oldest == nil {
		oldest = &uuid.Nil
	}
	ids, err = pg.All(ctx, q, pgx.RowTo[uuid.UUID], selectCompletedPage, tenant, below, oldest, f.Size()+1)
	return append([]uuid.UUID{}, ids...), err // never nil: none is not all
}

// read returns the jobs of a page, and the page, which may be shorter than the filter's.
func (f Filter) read(ctx context.Context, q pg.Batcher, c pg.Conditions) (jobs []Record, _ pg.Page, err error) {
	page := pg.LargePage{Page: f.Page}
	scan := func(row pgx.CollectableRow) (Record, error) {
		job, err := scanJob(row)
		if err != nil {
			return Record{}, err
		}
		page.Add(len(job.definition))
		return job.Record, nil
	}
	var b pgx.Batch
	if f.Among != nil || f.Query != "" { // a few thousand jobs: no table is read as a whole for them
		b.Queue(pg.ByIndex)
	}
	b.Queue(fmt.Sprintf(selectJobs, c.Where(), f.Size()+1, pg.MostListed), c.Args...).Query(pg.Into(&jobs, scan))
	err = q.SendBatch(ctx, &b).Close()
	return jobs, page.Page, err
}

// conditions adds the conditions of a filter on jobTables, except its page.
func (f Filter) conditions(c *pg.Conditions, tenant int32) error {
	c.Add(`j.tenant = ?`, tenant)
	c.Add(`j.state <> 'deleted'`)
	switch f.State { // as punctual.job_state says it, in a form by which the planner knows how many there are
	case domain.JobActive:
		c.Add(`j.state = 'active' AND s.job_id IS NOT NULL AND s.completed_at IS NULL`)
	case domain.JobPaused:
		c.Add(`j.state = 'paused'`)
	case domain.JobCompleted:
		c.Add(`j.state = 'active' AND NOT EXISTS (
			SELECT FROM punctual.schedules x WHERE x.job_id = j.id AND x.completed_at IS NULL)`)
	case "":
	default:
		c.Add(`punctual.job_state(j, s) = ?`, f.State)
	}
	c.AddIf(f.Queue != "", `j.queue = (SELECT id FROM punctual.queues WHERE name = ?)`, f.Queue)
	if f.NamePrefix != "" {
		// These operators use the indexes, and row-level security lets them run before its own condition. LIKE is not
		// one of them. Jobs that hold their names are in one index, and the others in another.
		c.Add(`(j.named AND j.name ~>=~ ? AND j.name ~<~ ? OR NOT j.named AND j.name ~>=~ ? AND j.name ~<~ ?)`,
			f.NamePrefix, after(f.NamePrefix), f.NamePrefix, after(f.NamePrefix))
	}
	c.AddIf(f.PausedBy != nil, `j.state = 'paused' AND EXISTS (
		SELECT FROM punctual.operations o
		WHERE o.id = ? AND o.tenant = j.tenant AND o.kind = 'pause' AND o.requested_by = j.paused_by
		  AND o.note IS NOT DISTINCT FROM j.pause_note
		  AND j.paused_at BETWEEN o.created_at AND coalesce(o.finished_at, clock_timestamp()))`, f.PausedBy)
	c.AddIf(f.Among != nil, `j.id = ANY(?::uuid[])`, f.Among)
	if f.Query != "" {
		c.Add(`(j.name ILIKE ? OR v.definition ->> 'description' ILIKE ?)`,
			"%"+likeText(f.Query)+"%", "%"+likeText(f.Query)+"%")
	}
	return names.SelectLabels(c, f.Labels)
}

// tables returns the part of jobTables that the conditions of a filter need, with or without the schedules.
func (f Filter) tables(schedules bool) string {
	tables := `punctual.jobs j`
	if schedules || f.State != "" {
		tables += ` LEFT JOIN punctual.schedules s ON s.job_id = j.id`
	}
	if f.Query != "" {
		tables += ` JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version`
	}
	return tables
}

// after returns a text that sorts after all names that begin with a prefix. Names are ASCII.
func after(prefix string) string { return prefix + string(utf8.MaxRune) }

// likeText returns a LIKE pattern that matches the text itself.
func likeText(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}
