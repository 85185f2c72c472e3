package runs

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// MostRecent is how many recent runs of a job a list shows at most.
const MostRecent = 20

// RecentRuns is how the newest runs of a job went.
type RecentRuns struct {
	Runs        []RecentRun `json:"runs" doc:"Its newest runs and recorded skips, the newest first, as many as were asked for."`
	DurationP95 *float64    `json:"duration_p95_s" doc:"95 % of those of them that succeeded or died took no longer than this, in seconds. Null: there are none." example:"4.208"`
}

// RecentRun is a run, or a recorded skip, in a few words.
type RecentRun struct {
	ID           uuid.UUID     `json:"id" format:"uuid" doc:"The run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	Status       domain.Status `json:"status" doc:"Final: succeeded, dead, skipped, cancelled." example:"succeeded"`
	ScheduledFor time.Time     `json:"scheduled_for" doc:"Its slot; for a manual run, when it was requested."`
}

// selectRecent selects the newest runs and skips of each job, as SelectLast does the newest one. The limit stands in
// the text, because a lasting plan is made without its arguments.
const selectRecent = `
SELECT w.id, r.id, r.status, r.scheduled_for, ` + took + `
FROM unnest((SELECT $1::uuid[])) w(id)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs n
	WHERE n.job_id = w.id AND n.trigger <> 'notify'
	ORDER BY n.id DESC LIMIT %d) r
ORDER BY w.id, r.id DESC`

// QueueRecent queues the query for the newest runs of jobs, n of each at most. Each of the jobs is then in recent.
func QueueRecent(b *pgx.Batch, recent map[uuid.UUID]*RecentRuns, jobs []uuid.UUID, n int) {
	for _, job := range jobs {
		recent[job] = &RecentRuns{Runs: []RecentRun{}}
	}
	sql := fmt.Sprintf(selectRecent, min(n, MostRecent))
	b.Queue(sql, pg.Prepared{}, jobs).Query(func(rows pgx.Rows) error {
		var job uuid.UUID
		var r RecentRun
		var took *float64
		durations := map[uuid.UUID][]float64{}
		_, err := pgx.ForEachRow(rows, []any{&job, &r.ID, &r.Status, &r.ScheduledFor, &took}, func() error {
			recent[job].Runs = append(recent[job].Runs, r)
			if took != nil {
				durations[job] = append(durations[job], *took)
			}
			return nil
		})
		for job, of := range durations {
			slices.Sort(of)
			recent[job].DurationP95 = &of[int(math.Ceil(0.95*float64(len(of))))-1]
		}
		return err
	})
}

// SelectLast selects the newest run or skip of each job, by the index on (job_id, id), day by day from the latest. Once
// a day has one, no earlier day is searched. Notices do not count.
var SelectLast = LastOf(`(SELECT $1::uuid[])`)

// LastOf is SelectLast for the jobs that an SQL expression gives as an array.
func LastOf(jobs string) string {
	return `
SELECT ` + runFields + `, false,
       ` + fmt.Sprintf(`coalesce(nullif((v.definition #>> '{retry,max_attempts}')::integer, 0), %d)`,
		domain.DefaultMaxAttempts) + `
FROM unnest(` + jobs + `) w(id)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs n WHERE n.job_id = w.id AND n.trigger <> 'notify' ORDER BY n.id DESC LIMIT 1) r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.jobs j ON j.id = w.id
LEFT JOIN punctual.job_versions v ON v.job_id = r.job_id AND v.version = r.job_version`
}

// QueueLast queues the query for the last runs of jobs.
func QueueLast(b *pgx.Batch, runs *[]Run, sql string, args ...any) {
	b.Queue(sql, append([]any{pg.Prepared{}}, args...)...).Query(pg.Into(runs, scanRun))
}
