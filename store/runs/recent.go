package runs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// MostRecent is how many recent runs of a job a list shows at most.
const MostRecent = 20

// RecentRuns is how the newest runs of a job went.
type RecentRuns struct {
	Runs        []RecentRun `json:"runs" doc:"Its newest runs and recorded skips, the newest first, as many as were asked for."`
	DurationP95 *float64    `json:"duration_p95_s" doc:"95 % of those of them that succeeded or died took no longer than this, in seconds. Null: there are none." example:"4.208"`
	Unread      bool        `json:"unread,omitempty" doc:"true: reading took over 2 s, so they and last_run are left out."`
}

// RecentRun is a run, or a recorded skip, in a few words.
type RecentRun struct {
	ID           uuid.UUID     `json:"id" format:"uuid" doc:"The run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	Status       domain.Status `json:"status" doc:"Final: succeeded, dead, skipped, cancelled." example:"succeeded"`
	ScheduledFor time.Time     `json:"scheduled_for" doc:"Its slot; for a manual run, when it was requested."`
}

// Newest are the newest runs and skips of jobs.
type Newest struct {
	Last   map[uuid.UUID]Run         // the newest one of each job that has any
	Recent map[uuid.UUID]*RecentRuns // as many as were asked for; nil if none were

	jobs []uuid.UUID
	most int
	took map[uuid.UUID][]float64
}

// FindNewest finds the newest runs of jobs: the last one, and up to a number of recent ones.
func FindNewest(ctx context.Context, q pg.Querier, jobs []uuid.UUID, recent int) (*Newest, error) {
	n := &Newest{Last: map[uuid.UUID]Run{}, jobs: jobs, most: min(recent, MostRecent), took: map[uuid.UUID][]float64{}}
	if n.most > 0 {
		n.Recent = make(map[uuid.UUID]*RecentRuns, len(jobs))
		for _, job := range jobs {
			n.Recent[job] = &RecentRuns{Runs: []RecentRun{}}
		}
	}
	if _, err := (days.Search{Index: days.All}).Back(ctx, q, n.look); err != nil {
		return nil, fmt.Errorf("reading the newest runs of jobs: %w", err)
	}
	for job, took := range n.took {
		slices.Sort(took)
		n.Recent[job].DurationP95 = &took[int(math.Ceil(0.95*float64(len(took))))-1]
	}
	return n, nil
}

// FindOlder returns the newest run of a job of which a window has none.
func FindOlder(ctx context.Context, q pg.Querier, job uuid.UUID, w days.Window) (map[uuid.UUID]Run, error) {
	n := &Newest{Last: map[uuid.UUID]Run{}, jobs: []uuid.UUID{job}}
	_, err := days.Search{Index: days.All}.Earlier(ctx, q, w, n.look)
	return n.Last, pg.Wrap("reading the newest run of a job", err)
}

// look looks for what is lacking in a window.
func (n *Newest) look(ctx context.Context, q pg.Querier, w days.Window) (enough bool, err error) {
	var last []Run
	var b pgx.Batch
	b.Queue(days.InOrder)
	if jobs := slices.DeleteFunc(slices.Clone(n.jobs), n.hasLast); len(jobs) > 0 {
		QueueLast(&b, &last, w, anyOf, jobs)
	}
	if jobs := slices.DeleteFunc(slices.Clone(n.jobs), n.hasRecent); len(jobs) > 0 {
		n.queueRecent(&b, w, jobs)
	}
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return false, err
	}
	for _, r := range last {
		n.Last[r.JobID] = r
	}
	return !slices.ContainsFunc(n.jobs, func(job uuid.UUID) bool { return !n.hasLast(job) || !n.hasRecent(job) }), nil
}

func (n *Newest) hasLast(job uuid.UUID) bool { _, has := n.Last[job]; return has }

func (n *Newest) hasRecent(job uuid.UUID) bool {
	return n.most == 0 || len(n.Recent[job].Runs) == n.most
}

// ofJob is the key of the runs n of a job that is a row w.
var (
	ofJob       = days.Job(`w.id`)
	newestOfJob = ofJob.Order(`n`, days.NewestFirst)
)

// selectRecent selects the newest runs and skips of each job, as lastOf does the newest one. The limit stands in the
// text, because a lasting plan is made without its arguments.
const selectRecent = `
SELECT w.id, r.id, r.status, r.scheduled_for, ` + took + `
FROM unnest((SELECT $1::uuid[])) w(id)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs n
	WHERE %s AND n.step IS NULL
	%s LIMIT %d) r
ORDER BY w.id, r.id DESC`

func (n *Newest) queueRecent(b *pgx.Batch, w days.Window, jobs []uuid.UUID) {
	w.Queue(b, fmt.Sprintf(selectRecent, w.Of(`n`, ofJob), newestOfJob, n.most), jobs).Query(func(rows pgx.Rows) error {
		var job uuid.UUID
		var r RecentRun
		var took *float64
		return pg.Each(rows, []any{&job, &r.ID, &r.Status, &r.ScheduledFor, &took}, func() {
			if n.hasRecent(job) {
				return
			}
			n.Recent[job].Runs = append(n.Recent[job].Runs, r)
			if took != nil {
				n.took[job] = append(n.took[job], *took)
			}
		})
	})
}

// anyOf gives the jobs of a list.
const anyOf = `(SELECT $1::uuid[])`

// lastOf selects the newest run or skip of each job within a window, by the index on (job_id, id). An SQL
// expression gives the jobs as an array.
func lastOf(jobs string, w days.Window) string {
	return `
SELECT ` + runFields + `,
       ` + maxAttempts(`coalesce(r.step, '')`) + `
FROM unnest(` + jobs + `) w(id)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs n WHERE ` + w.Of(`n`, ofJob) + ` AND n.step IS NULL
	` + newestOfJob + ` LIMIT 1) r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.jobs j ON j.id = w.id
LEFT JOIN punctual.job_versions v ON v.job_id = r.job_id AND v.version = r.job_version`
}

// QueueLast queues the query for the newest run or skip, within a window, of each job that an SQL expression gives.
func QueueLast(b *pgx.Batch, runs *[]Run, w days.Window, jobs string, args ...any) {
	w.Queue(b, lastOf(jobs, w), args...).Query(pg.Into(runs, scanRun))
}

// LastOf returns the query for the newest run or skip, within a window, of one job that the caller reads too: an SQL
// query gives its id. It joins no other table, which would take longer than to find the run: Complete fills in what
// they have.
func LastOf(job string) *days.Text {
	return &days.Text{Write: func(w days.Window) string {
		return `
			SELECT r.id, r.job_id, '', ''` + ownFields + `, 0
			FROM (` + job + ` OFFSET 0) w(id)
			CROSS JOIN LATERAL (
			    SELECT * FROM punctual.runs n WHERE ` + w.Of(`n`, ofJob) + ` AND n.step IS NULL
			    ` + newestOfJob + ` LIMIT 1) r`
	}}
}

// QueueLastOf queues a query that LastOf has returned.
func QueueLastOf(b *pgx.Batch, runs *[]Run, w days.Window, text *days.Text, args ...any) {
	w.Queue(b, text.In(w), args...).Query(pg.Into(runs, scanRun))
}

// Complete fills in what LastOf leaves out, as the job's current version has it. A run of another version takes
// a query.
func Complete(
	ctx context.Context, q pg.Querier, runs []Run, tenant string, version int32, d *jobspec.Definition,
) error {
	most := cmp.Or(d.Retry.MaxAttempts, jobspec.DefaultMaxAttempts)
	if len(d.Steps) > 0 {
		most = 1
	}
	others := false
	for i := range runs {
		r := &runs[i]
		r.Job, r.Tenant, r.MaxAttempts = d.Name, tenant, most
		others = others || r.JobVersion != version
	}
	if !others {
		return nil
	}
	return fillMaxAttempts(ctx, q, runs)
}
