package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// selectJobs reads a page of jobs and the first job of the next page.
const selectJobs = `
SELECT id, tenant, version, state, paused_at, paused_until, pause_note, created_at, updated_at, completed_at,
       tenant_id, lane, enabled, scheduled_for, next_run_at, definition
FROM (SELECT ` + jobColumns + `,
             sum(octet_length(v.definition::text))
                 OVER (ORDER BY j.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
      FROM ` + jobTables + ` %s ORDER BY j.id DESC LIMIT %d)
     AS p(id, tenant, version, state, paused_at, paused_until, pause_note, created_at, updated_at, completed_at,
          tenant_id, lane, enabled, scheduled_for, next_run_at, definition, bytes)
WHERE coalesce(bytes, 0) < %d
ORDER BY id DESC`

// ListJobs returns the jobs that the filter selects, newest first, and the cursor of the next page, which is empty on
// the last page. A page ends before its limit if its definitions are large.
func (s *Store) ListJobs(
	ctx context.Context, tenant int32, f JobFilter,
) (jobs []JobRecord, nextCursor string, err error) {
	var c conditions
	c.add(`j.tenant = ?`, tenant)
	c.add(`j.state <> 'deleted'`)
	if err := c.page(f.Page, jobCursor, `j.id < ?`); err != nil {
		return nil, "", err
	}
	if f.State != "" {
		c.add(jobState+` = ?`, f.State)
	}
	if f.Queue != "" {
		c.add(`j.queue = (SELECT id FROM punctual.queues WHERE name = ?)`, f.Queue)
	}
	if err := c.labels(f.Labels); err != nil {
		return nil, "", err
	}
	if f.NamePrefix != "" {
		// These operators use the index, and row-level security lets them run before its own condition. LIKE is not
		// one of them.
		c.add(`j.name ~>=~ ? AND j.name ~<~ ?`, f.NamePrefix, after(f.NamePrefix))
	}
	if f.Query != "" {
		c.add(`(j.name ILIKE ? OR v.definition ->> 'description' ILIKE ?)`,
			"%"+likeText(f.Query)+"%", "%"+likeText(f.Query)+"%")
	}
	q := s.reader(ctx, tenant)
	if len(f.Labels) > 0 {
		if err := c.candidates(ctx, s, `j.tenant`, tenant, `j.id`, jobTables, f.Page); err != nil {
			return nil, "", fmt.Errorf("listing jobs: %w", err)
		}
	}
	rows, err := q.Query(ctx, fmt.Sprintf(selectJobs, c.where(), f.limit()+1, mostListed), c.args...)
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	page := largePage{Page: f.Page}
	jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (JobRecord, error) {
		job, err := scanJob(row)
		if err != nil {
			return JobRecord{}, err
		}
		page.add(len(job.definition))
		return job.JobRecord, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	jobs, nextCursor = cut(jobs, page.Page, jobCursor, func(j JobRecord) uuid.UUID { return j.ID })
	return jobs, nextCursor, fillLastRuns(ctx, q, jobs)
}

// conditions collects the conditions on a list's rows.
type conditions struct {
	texts []string
	args  []any
}

// add adds a condition in which question marks stand for the arguments.
func (c *conditions) add(text string, args ...any) {
	for _, arg := range args {
		c.args = append(c.args, arg)
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", len(c.args)), 1)
	}
	c.texts = append(c.texts, text)
}

// page makes the list continue from the page's cursor.
func (c *conditions) page(p Page, list byte, below string) error {
	id, ok, err := p.after(list)
	if ok {
		c.add(below, id)
	}
	return err
}

// labels selects jobs that have all of the labels.
func (c *conditions) labels(labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	text, err := encodeLabels(labels)
	if err != nil {
		return fmt.Errorf("encoding labels: %w", err)
	}
	c.add(`j.labels @> ?::jsonb`, text)
	return nil
}

func (c *conditions) where() string { return ` WHERE ` + strings.Join(c.texts, ` AND `) }

// candidates replaces the conditions by the ids of the page's rows. The search in labels needs it, because row-level
// security keeps such conditions from their index. The ids are found without row-level security, and the rows are then
// read as the tenant: rows of other tenants are not shown, whatever was found.
func (c *conditions) candidates(
	ctx context.Context, s *Store, owner string, tenant int32, id, tables string, p Page,
) error {
	rows, err := s.reader(ctx, everybody).Query(ctx,
		`SELECT `+id+` FROM `+tables+c.where()+fmt.Sprintf(` ORDER BY %s DESC LIMIT %d`, id, p.limit()+1), c.args...)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return err
	}
	*c = conditions{}
	c.add(owner+` = ?`, tenant)
	c.add(id+` = ANY(?::uuid[])`, ids)
	return nil
}

// after returns a text that sorts after all names that begin with a prefix. Names are ASCII.
func after(prefix string) string { return prefix + string(utf8.MaxRune) }

// likeText returns a LIKE pattern that matches the text itself.
func likeText(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}
