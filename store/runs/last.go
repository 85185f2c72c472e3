package runs

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

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
