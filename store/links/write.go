package links

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Change is a definition that was written: the job's links before and now, as they are stored.
type Change struct {
	Job      uuid.UUID
	Was, Now []jobspec.Link
}

// Refused says which of the jobs that were written cannot have its links.
type Refused struct {
	Job uuid.UUID
	jobspec.Problem
}

// Unwrap returns what is wrong with the definition.
func (r *Refused) Unwrap() error { return r.Problem }

// Write writes the links of jobs that this transaction has written. The error is *Refused if a job that is new among
// the links does not exist, if links close a circle, or if more than jobspec.MaxChain jobs follow each other. The lock
// on the tenant makes one such write wait for the other. It is the last lock of the transaction, so a write that has it
// waits for nothing.
func Write(ctx context.Context, tx pg.Querier, tenant int32, changes ...Change) error {
	changes = slices.DeleteFunc(changes, func(c Change) bool { return slices.Equal(c.Was, c.Now) })
	if len(changes) == 0 {
		return nil
	}
	jobs := pg.Column(changes, func(c Change) uuid.UUID { return c.Job })
	w := writing{tenant: tenant, changes: changes, jobs: jobs}
	if err := w.replace(ctx, tx); err != nil {
		return fmt.Errorf("writing links: %w", err)
	}
	if err := w.checkNew(ctx, tx); err != nil {
		return err
	}
	g, err := w.around(ctx, tx)
	if err != nil {
		return fmt.Errorf("reading links: %w", err)
	}
	return w.checkShape(ctx, tx, g)
}

type writing struct {
	tenant  int32
	changes []Change
	jobs    []uuid.UUID
}

func (w *writing) replace(ctx context.Context, tx pg.Batcher) error {
	var jobs, other []uuid.UUID
	var places []int16
	var when []string
	for _, c := range w.changes {
		for i, target := range targets(c.Now) {
			jobs, places, other = append(jobs, c.Job), append(places, int16(i+1)), append(other, target)
			when = append(when, string(c.Now[i].When))
		}
	}
	var b pgx.Batch
	b.Queue(`SELECT FROM punctual.tenants WHERE id = $1 FOR NO KEY UPDATE`, w.tenant)
	b.Queue(`DELETE FROM punctual.links WHERE job_id = ANY($1::uuid[])`, w.jobs)
	b.Queue(`
		INSERT INTO punctual.links (job_id, position, target_id, run_when)
		SELECT job_id, position, target_id, coalesce(nullif(run_when, ''), 'succeeded')
		FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[]) u(job_id, position, target_id, run_when)`,
		jobs, places, other, when)
	return tx.SendBatch(ctx, &b).Close()
}

// checkNew refuses new links to jobs that do not exist. A link whose job was deleted since may stay.
func (w *writing) checkNew(ctx context.Context, q pg.Querier) error {
	var ids []uuid.UUID
	for _, c := range w.changes {
		ids = append(ids, targets(c.Now)...)
	}
	exist, err := pg.Map[uuid.UUID, bool](ctx, q, `
		SELECT id, true FROM punctual.jobs
		WHERE id = ANY($1::uuid[]) AND tenant = $2 AND state <> 'deleted'`, ids, w.tenant)
	if err != nil {
		return fmt.Errorf("looking for chained jobs: %w", err)
	}
	for _, c := range w.changes {
		old := targets(c.Was)
		for i, id := range targets(c.Now) {
			if !exist[id] && !slices.Contains(old, id) {
				return &Refused{c.Job, jobspec.Blame(fmt.Sprintf("then[%d].job", i), "there is no job %s", id)}
			}
		}
	}
	return nil
}

// around reads the links that lead to the jobs and those that lead on from them. Jobs that are deleted have none.
func (w *writing) around(ctx context.Context, q pg.Querier) (*graph, error) {
	g := &graph{next: map[uuid.UUID][]uuid.UUID{}}
	rows := pg.Query(ctx, q, `
		WITH RECURSIVE live AS NOT MATERIALIZED (
		    SELECT l.job_id, l.target_id
		    FROM punctual.links l JOIN punctual.jobs j ON j.id = l.job_id AND j.tenant = $2 AND j.state <> 'deleted'),
		down AS (
		    SELECT job_id, target_id FROM live WHERE job_id = ANY($1::uuid[])
		    UNION
		    SELECT l.job_id, l.target_id FROM down d JOIN live l ON l.job_id = d.target_id),
		up AS (
		    SELECT job_id, target_id FROM live WHERE target_id = ANY($1::uuid[])
		    UNION
		    SELECT l.job_id, l.target_id FROM up u JOIN live l ON l.target_id = u.job_id)
		SELECT job_id, target_id FROM down UNION SELECT job_id, target_id FROM up
		ORDER BY 1, 2`, w.jobs, w.tenant)
	return g, pg.Each2(rows, func(from, to uuid.UUID) { g.next[from] = append(g.next[from], to) })
}

// checkShape refuses circles and chains that are too long. The links before obeyed both, so each offence passes through
// a job that was written.
func (w *writing) checkShape(ctx context.Context, q pg.Querier, g *graph) error {
	path, circle := g.worst()
	if !circle && len(path) <= jobspec.MaxChain {
		return nil
	}
	for _, c := range w.changes {
		at := slices.Index(path, c.Job)
		if at < 0 || len(c.Now) == 0 || at == len(path)-1 && !circle {
			continue
		}
		if circle { // told from the job that was written, back to it
			path = append(slices.Concat(path[at:], path[:at]), c.Job)
			at = 0
		}
		field := fmt.Sprintf("then[%d].job", max(0, slices.Index(targets(c.Now), path[at+1])))
		if !circle {
			return &Refused{c.Job, jobspec.Blame(field,
				"%d jobs would follow each other; at most %d", len(path), jobspec.MaxChain)}
		}
		said, err := w.named(ctx, q, path)
		if err != nil {
			return err
		}
		return &Refused{c.Job, jobspec.Blame(field, "closes a circle: %s", said)}
	}
	return nil // the offence is another one's, from before this rule
}

func (w *writing) named(ctx context.Context, q pg.Querier, path []uuid.UUID) (string, error) {
	known, err := pg.Map[uuid.UUID, string](ctx, q,
		`SELECT id, name FROM punctual.jobs WHERE id = ANY($1::uuid[]) AND tenant = $2`, path, w.tenant)
	return strings.Join(pg.Column(path, func(id uuid.UUID) string { return known[id] }), " → "),
		pg.Wrap("reading the names of chained jobs", err)
}
