package links

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Upstream is a job whose runs trigger another one.
type Upstream struct {
	ID   uuid.UUID        `json:"id" format:"uuid" doc:"The job."`
	Job  string           `json:"job" doc:"Its name." example:"load-warehouse"`
	When jobspec.LinkWhen `json:"when" enum:"succeeded,failed,ended" doc:"As in then." example:"succeeded"`
}

// selectUpstreams selects the jobs whose runs trigger the jobs that an expression gives, the jobs first. A job may have
// many: the first thousand are enough.
func selectUpstreams(jobs string) string {
	return `
		SELECT l.target_id, u.id, u.name, l.run_when
		FROM punctual.links l
		JOIN punctual.jobs u ON u.id = l.job_id AND u.state <> 'deleted'
		WHERE l.target_id = ANY(` + jobs + `)
		ORDER BY u.name, u.id, l.position
		LIMIT 1000`
}

// QueueUpstreams reads the jobs whose runs trigger the job that an expression gives as an array.
func QueueUpstreams(b *pgx.Batch, into *[]Upstream, job string, args ...any) {
	b.Queue(selectUpstreams(job), append([]any{pg.Prepared{}}, args...)...).Query(func(rows pgx.Rows) error {
		return eachUpstream(rows, func(_ uuid.UUID, u Upstream) { *into = append(*into, u) })
	})
}

// Upstreams returns the jobs whose runs trigger one of the jobs, by that job.
func Upstreams(ctx context.Context, q pg.Querier, jobs ...uuid.UUID) (map[uuid.UUID][]Upstream, error) {
	all := map[uuid.UUID][]Upstream{}
	err := eachUpstream(pg.Query(ctx, q, selectUpstreams(`$1::uuid[]`), jobs), func(of uuid.UUID, u Upstream) {
		all[of] = append(all[of], u)
	})
	return all, pg.Wrap("reading which jobs trigger others", err)
}

func eachUpstream(rows pgx.Rows, f func(of uuid.UUID, u Upstream)) error {
	var of uuid.UUID
	var u Upstream
	return pg.Each(rows, []any{&of, &u.ID, &u.Job, &u.When}, func() { f(of, u) })
}

// Hold keeps the links of a tenant as they are until the transaction ends.
func Hold(ctx context.Context, tx pg.Querier, tenant int32) error {
	return pg.Wrap("keeping links", pg.Exec(ctx, tx, `SELECT FROM punctual.tenants WHERE id = $1 FOR SHARE`, tenant))
}

// Needed is the error, an ErrState, of a job that is not deleted because others trigger it.
func Needed(job string, by []Upstream) error {
	const most = 5
	var names []string
	for i, u := range by {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(by)-most))
			break
		}
		names = append(names, u.Job)
	}
	return fmt.Errorf("job %q is triggered when runs of %s end (take it out of their then, or delete it with force): %w",
		job, strings.Join(names, ", "), pg.ErrState)
}
