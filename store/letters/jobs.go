package letters

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/store/jobs"
	"punctual/store/pg"
)

// JobsRequest asks for an operation on the jobs that the change's filter selects.
type JobsRequest struct {
	jobs.Change
	MaxPerSecond int // 0: no limit
}

// CountSelectedJobs returns how many jobs an operation would work on.
func (l *Letters) CountSelectedJobs(ctx context.Context, tenant int32, r JobsRequest) (int, error) {
	selected, args, err := r.Selected(tenant)
	if err != nil {
		return 0, err
	}
	var n int
	err = l.db.Callers.Reader(tenant).QueryRow(ctx, `SELECT count(*) FROM (`+selected+`) chosen`, args...).Scan(&n)
	return n, pg.Wrap("counting jobs", err)
}

// StartJobs remembers the jobs that a request selects now. The replicas then change them.
func (w Operator) StartJobs(ctx context.Context, r JobsRequest) (Operation, error) {
	n := newOperation{
		Operation: Operation{
			Kind: OperationKind(r.Action), MaxPerSecond: pg.OrNull(r.MaxPerSecond), Note: pg.OrNull(r.Note),
		},
	}
	return w.start(ctx, n, jobsText{r.Filter, r.Until}, func(tx *pg.Tx, id uuid.UUID) (matched int, err error) {
		return rememberJobs(ctx, tx, w.Tenant, r, id)
	})
}

// rememberJobs writes the selected jobs, as many in a row as are changed in a batch. It locks none of them.
func rememberJobs(
	ctx context.Context, tx *pg.Tx, tenant int32, r JobsRequest, operation uuid.UUID,
) (matched int, err error) {
	selected, args, err := r.Selected(tenant)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(`
		WITH chosen AS (SELECT id, (row_number() OVER (ORDER BY id) - 1) / %d AS part FROM (%s) chosen(id)),
		kept AS (
		    INSERT INTO punctual.operation_jobs (operation, part, tenant, jobs)
		    SELECT $%d, part, $%d, array_agg(id ORDER BY id) FROM chosen GROUP BY part
		    RETURNING cardinality(jobs) AS jobs)
		SELECT coalesce(sum(jobs), 0) FROM kept`, mostBatch, selected, len(args)+1, len(args)+2),
		append(args, operation, tenant)...).Scan(&matched)
	return matched, pg.Wrap("remembering the jobs of an operation", err)
}

// jobsText is a request as people find it in its row. The filter decides again when a job's turn comes.
type jobsText struct {
	jobs.Filter
	Until *time.Time `json:"until,omitempty"` // of a pause
}
