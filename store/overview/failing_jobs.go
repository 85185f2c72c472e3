package overview

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/seal"
)

// mostShown is how many failing jobs the overview shows, and mostWaiting how many waiting runs of each are read.
const (
	mostShown   = 50
	mostWaiting = 100
)

// Failing are the failing jobs of a tenant.
type Failing struct {
	Count int          `json:"count" maximum:"1000" doc:"How many jobs are failing. GET /v1/jobs?failing=true lists them." example:"1"`
	More  bool         `json:"more" doc:"Whether there may be more. The search goes through the newest 10,000 open dead letters, the newest 2,000 waiting runs and 2,000 runs in flight, and of their jobs the 1,000 with the newest failures." example:"false"`
	Jobs  []FailingJob `json:"jobs" doc:"Up to 50 of them, those with the newest failures first."`
}

// FailingJob is a job that fails: an open dead letter of it, or a run of it that is retried, is newer than its last
// success.
type FailingJob struct {
	JobID      uuid.UUID       `json:"job_id" format:"uuid" doc:"The job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job        string          `json:"job" doc:"Its name." example:"daily-invoice-gen"`
	State      domain.JobState `json:"state" enum:"active,paused,completed" doc:"Its state." example:"active"`
	Since      time.Time       `json:"since" doc:"The slot of its first failure since its last success."`
	Failures   int             `json:"failures" doc:"Its runs since its last success that died or are retried." example:"3"`
	More       bool            `json:"more" doc:"Whether it may have failed for longer, and more often: its runs are so many that the search for its last success continues with the next request." example:"false"`
	Run        uuid.UUID       `json:"run" format:"uuid" doc:"The run of its newest failure." example:"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"`
	Reason     *domain.Reason  `json:"reason" nullable:"true" doc:"Why the latest attempt of that run failed." example:"http_5xx"`
	HTTPStatus *int            `json:"http_status" doc:"Status of the response, if there was one." example:"503"`
	Error      *string         `json:"error" doc:"The error, for people." example:"the target answered 503"`
	Letters    int             `json:"open_dead_letters" maximum:"10000" doc:"Its open dead letters, among the tenant's newest 10,000." example:"2"`
	NextTryAt  *time.Time      `json:"next_try_at" doc:"When it is tried next: a retry or its next slot. Null: neither is planned, or the retry is being sent."`
}

// selectFailingJobs reads failing jobs ($1) by their newest failures ($2). A dead letter outlives its run.
var selectFailingJobs = fmt.Sprintf(`
WITH waiting AS MATERIALIZED (
    SELECT y.* FROM unnest((SELECT $1::uuid[])) w(job)
    CROSS JOIN LATERAL (
        SELECT y.job_id, y.run_id, y.due_at FROM punctual.ready y WHERE y.job_id = w.job LIMIT %d) y),
retries AS (
    SELECT y.job_id, min(y.due_at) AS due_at
    FROM waiting y JOIN punctual.runs_of(ARRAY(SELECT run_id FROM waiting)) r ON r.id = y.run_id
    WHERE r.status IN ('pending', 'retrying') AND r.attempt > 0 AND r.step IS NULL
    GROUP BY y.job_id)
SELECT j.id, j.name, punctual.job_state(j, s), coalesce(n.scheduled_for, d.scheduled_for, now()), 1, false, w.run,
       coalesce(n.reason, d.reason), coalesce(n.http_status, d.http_status), coalesce(n.error, d.error) AS error, 0,
       least(y.due_at, CASE WHEN s.enabled THEN s.next_run_at END)
FROM unnest((SELECT $1::uuid[]), (SELECT $2::uuid[])) WITH ORDINALITY w(job, run, place)
JOIN punctual.jobs j ON j.id = w.job AND j.tenant = $3
LEFT JOIN punctual.schedules s ON s.job_id = j.id
LEFT JOIN punctual.runs_of((SELECT $2::uuid[])) n ON n.id = w.run
LEFT JOIN punctual.dead_letters d ON d.run_id = w.run
LEFT JOIN retries y ON y.job_id = w.job
ORDER BY w.place`, mostWaiting)

// queueFailing queues the statement that reads the failing jobs that are shown.
func queueFailing(b *pgx.Batch, f *Failing, tenant int32, found []candidate) {
	f.Jobs = []FailingJob{}
	if found = found[:min(len(found), mostShown)]; len(found) == 0 {
		return
	}
	letters := make(map[uuid.UUID]int, len(found))
	var jobs, failed []uuid.UUID
	for _, c := range found {
		jobs, failed = append(jobs, c.job), append(failed, c.run)
		letters[c.job] = c.letters
	}
	b.Queue(selectFailingJobs, pg.Prepared{}, jobs, failed, tenant).Query(func(rows pgx.Rows) (err error) {
		f.Jobs, err = pgx.CollectRows(rows, seal.Rows(pgx.RowToStructByPos[FailingJob], "error"))
		for i := range f.Jobs {
			f.Jobs[i].Letters = letters[f.Jobs[i].JobID]
		}
		return err
	})
}
