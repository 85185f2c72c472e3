package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// The newest run or skip of each job, by the index on (job_id, id), day by day from the latest. Once a day has one, no
// earlier day is searched. Notices do not count.
var selectLastRuns = lastRunsOf(`(SELECT $1::uuid[])`)

func lastRunsOf(jobs string) string {
	return `
SELECT ` + runFields + `, false,
       ` + fmt.Sprintf(`coalesce(nullif((v.definition #>> '{retry,max_attempts}')::integer, 0), %d)`,
		scheduler.DefaultMaxAttempts) + `
FROM unnest(` + jobs + `) w(id)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs n WHERE n.job_id = w.id AND n.trigger <> 'notify' ORDER BY n.id DESC LIMIT 1) r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.jobs j ON j.id = w.id
LEFT JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.job_versions v ON v.job_id = r.job_id AND v.version = r.job_version`
}

// queueLastRuns queues the query for the last runs of jobs.
func queueLastRuns(b *pgx.Batch, runs *[]RunRecord, sql string, args ...any) {
	b.Queue(sql, append([]any{pg.Prepared{}}, args...)...).Query(func(rows pgx.Rows) (err error) {
		*runs, err = pgx.CollectRows(rows, scanRun)
		return err
	})
}

// fillLastRuns gives each job its newest run or skip. Notices do not count.
func fillLastRuns(ctx context.Context, q pg.Querier, jobs []JobRecord) error {
	if len(jobs) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	var runs []RunRecord
	var b pgx.Batch
	queueLastRuns(&b, &runs, selectLastRuns, ids)
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading the last runs of jobs: %w", err)
	}
	placeLastRuns(jobs, runs)
	return nil
}

// placeLastRuns assigns the runs that were found to their jobs.
func placeLastRuns(jobs []JobRecord, runs []RunRecord) {
	last := make(map[uuid.UUID]RunRecord, len(runs))
	for _, r := range runs {
		last[r.JobID] = r
	}
	for i := range jobs {
		if r, ok := last[jobs[i].ID]; ok {
			jobs[i].LastRun = &r
		}
	}
}
