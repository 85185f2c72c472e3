package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// The newest run or skip of each job, by the index on (job_id, id), day by day from the latest: where a day has one,
// no earlier day is looked into. To leave out the replays of notices as well would need a look into every day of
// run_data for each day of runs, so they are left to placeLastRuns.
var selectLastRuns = lastRunsOf(`(SELECT $1::uuid[])`)

func lastRunsOf(jobs string) string {
	return `
SELECT ` + runFields + `, false, ` + fmt.Sprintf(`coalesce(nullif((v.definition #>> '{retry,max_attempts}')::integer, 0), %d)`, scheduler.DefaultMaxAttempts) + `
FROM unnest(` + jobs + `) w(id)
CROSS JOIN LATERAL (SELECT * FROM punctual.runs n WHERE n.job_id = w.id AND n.trigger <> 'notify' ORDER BY n.id DESC LIMIT 1) r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.jobs j ON j.id = w.id
LEFT JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.job_versions v ON v.job_id = r.job_id AND v.version = r.job_version`
}

// queueLastRuns queues the look for the last runs of jobs; replays of notices are among them.
func queueLastRuns(b *pgx.Batch, runs *[]RunRecord, sql string, args ...any) {
	b.Queue(sql, append([]any{prepared{}}, args...)...).Query(func(rows pgx.Rows) (err error) {
		*runs, err = pgx.CollectRows(rows, scanRun)
		return err
	})
}

// fillLastRuns gives each job its newest run or skip; a notice is none.
func fillLastRuns(ctx context.Context, q querier, jobs []JobRecord) error {
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
	return placeLastRuns(ctx, q, jobs, runs)
}

// placeLastRuns gives the jobs the runs that were found, and looks again for those of which it was a notice's replay.
func placeLastRuns(ctx context.Context, q querier, jobs []JobRecord, runs []RunRecord) error {
	last := make(map[uuid.UUID]RunRecord, len(runs))
	var replays []uuid.UUID
	for _, r := range runs {
		last[r.JobID] = r
		if r.Trigger == scheduler.TriggerReplay {
			replays = append(replays, r.ID)
		}
	}
	if len(replays) > 0 {
		if err := passOverNotices(ctx, q, last, replays); err != nil {
			return fmt.Errorf("reading the last runs of jobs: %w", err)
		}
	}
	for i := range jobs {
		if r, ok := last[jobs[i].ID]; ok {
			jobs[i].LastRun = &r
		}
	}
	return nil
}

// passOverNotices puts an earlier run, or none, in the place of replays that tell a URL about the job.
func passOverNotices(ctx context.Context, q querier, last map[uuid.UUID]RunRecord, replays []uuid.UUID) error {
	rows, err := q.Query(ctx, `SELECT run_id FROM punctual.run_data WHERE run_id = ANY($1::uuid[]) AND notify_url IS NOT NULL`, replays)
	if err != nil {
		return err
	}
	notices, err := collectSet(rows)
	if err != nil || len(notices) == 0 {
		return err
	}
	var jobs, below []uuid.UUID
	for job, r := range last {
		if notices[r.ID] {
			jobs, below = append(jobs, job), append(below, r.ID)
			delete(last, job)
		}
	}
	// The ids are found first and as an array: only the partitions that hold them are looked into again.
	earlier, err := queryRuns(ctx, q, `
		WHERE r.id = ANY (ARRAY(
			SELECT (SELECT r.id FROM punctual.runs r WHERE r.job_id = w.id AND r.id < w.below AND NOT `+isNotice+` ORDER BY r.id DESC LIMIT 1)
			FROM unnest($1::uuid[], $2::uuid[]) w(id, below)))`, jobs, below)
	for _, r := range earlier {
		last[r.JobID] = r
	}
	return err
}
