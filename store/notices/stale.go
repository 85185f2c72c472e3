package notices

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// staleBatch is how many jobs one look covers.
const staleBatch = 100

// lookOnceMore is how long after a job was found stale it is looked at once more: a success that was being committed at
// that moment could not know that the job was stale.
const lookOnceMore = time.Minute

// watched is a job that may have become stale.
type watched struct {
	key    definitions.Version
	tenant int32
	watch  domain.Watch
	stale  *time.Time       // since when it is stale, if it was found stale before
	list   []jobspec.Notify // its recipients: the tenant's default, until its definition is known
	succAt *time.Time

	succRun uuid.UUID // the run that succeeded then
	look    time.Time // when to look again; zero: never
}

// The rows are locked and locked ones are skipped, so that only one of several replicas looks at each job.
const selectWatched = `
SELECT n.job_id, coalesce(j.version, 0), coalesce(j.tenant, 0), now(), n.stale_since, t.notify,
       coalesce(j.state, 'deleted') = 'paused', coalesce(punctual.job_state(j, s), 'deleted') = 'completed',
       greatest(j.created_at, n.success_at, coalesce(s.next_run_at, punctual.completed_at(j, s))) AS due_at,
       greatest(j.created_at, n.success_at,
           (SELECT min(v.valid_from) FROM punctual.job_versions v WHERE v.job_id = n.job_id AND v.version >
               (SELECT max(p.version) FROM punctual.job_versions p WHERE p.job_id = n.job_id AND p.state = 'paused')),
           (SELECT min(v.valid_from) FROM punctual.job_versions v
            WHERE v.job_id = n.job_id AND v.valid_from > punctual.completed_at(j, s))) AS begun
FROM (SELECT * FROM punctual.notified WHERE job_id = ANY($1::uuid[]) AND look_at <= now()
      ORDER BY look_at FOR NO KEY UPDATE SKIP LOCKED) n
LEFT JOIN punctual.jobs j ON j.id = n.job_id AND j.state <> 'deleted'
LEFT JOIN punctual.schedules s ON s.job_id = j.id
LEFT JOIN punctual.tenants t ON t.id = j.tenant`

// ofJob is the key of the runs of a job that is a row w.
var ofJob = days.Job(`w.id`)

// selectSuccesses selects the newest success of jobs within a window. A success of an older slot that ended after
// twenty newer ones, or after those of newer days, is not to be relied on.
func selectSuccesses(w days.Window) string {
	return `
SELECT DISTINCT ON (w.id) w.id, r.id, r.finished_at FROM unnest($1::uuid[]) AS w(id)
CROSS JOIN LATERAL (
    SELECT r.id, r.finished_at FROM punctual.runs r
    WHERE ` + w.Of(`r`, ofJob) + ` AND r.status = 'succeeded' AND r.step IS NULL
    ` + ofJob.Order(`r`, days.NewestFirst) + ` LIMIT 20) r
ORDER BY w.id, r.finished_at DESC`
}

// findStale looks at jobs that may have become stale, and writes a notice for those with a recipient. It reports
// whether there may be more such jobs.
func (s *Notifier) findStale(ctx context.Context) (left bool, err error) {
	look, err := s.aside.Select(ctx, s.db.Chores, watchedJobs, `
		SELECT job_id FROM punctual.notified WHERE look_at <= now() AND job_id <> ALL($2::uuid[]) ORDER BY look_at LIMIT $1`,
		staleBatch)
	if err == nil && len(look) > 0 {
		err = s.aside.Each(ctx, aside.Notice, look, s.lookAt)
	}
	return len(look) == staleBatch, pg.Wrap("looking for jobs without success", err)
}

// watchedJobs are the jobs that may have become stale.
var watchedJobs = aside.Rows{Kind: aside.Notice, Table: "notified", ID: "job_id", Are: "r.look_at <= now()"}

func (s *Notifier) lookAt(ctx context.Context, some []uuid.UUID) error {
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		jobs, err := readWatched(ctx, tx, some)
		if err != nil || len(jobs) == 0 {
			return err
		}
		versions := definitions.Of(jobs, func(w watched) (definitions.Version, int32) { return w.key, w.tenant })
		found, err := s.definitions.Read(ctx, tx, versions)
		if err != nil {
			return err
		}
		return writeWatched(ctx, tx, jobs, found.Jobs)
	})
}

func readWatched(ctx context.Context, tx *pg.Tx, some []uuid.UUID) ([]watched, error) {
	rows := pg.Query(ctx, tx, selectWatched, some)
	var jobs []watched
	index := map[uuid.UUID]int{}
	var w watched
	var due, begun *time.Time
	if _, err := pgx.ForEachRow(rows, []any{
		&w.key.Job, &w.key.Version, &w.tenant, &w.watch.Now, &w.stale, &w.list, &w.watch.Paused, &w.watch.Completed,
		&due, &begun,
	}, func() error {
		if due != nil && begun != nil {
			w.watch.DueAt, w.watch.Begun = *due, *begun
		}
		index[w.key.Job] = len(jobs)
		jobs = append(jobs, w)
		w = watched{}
		return nil
	}); err != nil {
		return nil, err
	}
	ids := pg.Column(jobs, func(w watched) uuid.UUID { return w.key.Job })
	_, err := (days.Search{Index: days.All}).Back(ctx, tx, func(
		ctx context.Context, q pg.Querier, w days.Window,
	) (bool, error) {
		var b pgx.Batch
		b.Queue(days.InOrder)
		b.Queue(selectSuccesses(w), ids).Query(func(rows pgx.Rows) error {
			return pg.Each3(rows, func(id, run uuid.UUID, at time.Time) {
				job := &jobs[index[id]]
				job.watch.LastSuccess, job.succAt, job.succRun = at, new(at), run
			})
		})
		err := q.SendBatch(ctx, &b).Close()
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return jobs[index[id]].succAt != nil })
		return len(ids) == 0, err
	})
	return jobs, err
}

// writeWatched judges the jobs and writes the results. A job with a definition that this binary cannot read is left to
// a binary that can.
func writeWatched(ctx context.Context, tx *pg.Tx, jobs []watched, found map[definitions.Version]*domain.Job) error {
	var b pgx.Batch
	for i := range jobs {
		w := &jobs[i]
		job := found[w.key]
		if job == nil {
			if w.key.Version > 0 {
				w.look = w.watch.Now.Add(definitions.RetryIn)
			}
			continue
		}
		if job.Notify != nil {
			w.list = job.Notify
		}
		w.judge(job, &b)
	}
	b.Queue(`
		UPDATE punctual.notified n SET stale_since = u.stale, look_at = u.at
		FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS u(job_id, stale, at)
		WHERE n.job_id = u.job_id`,
		pg.Column(jobs, func(w watched) uuid.UUID { return w.key.Job }),
		pg.Column(jobs, func(w watched) *time.Time { return w.stale }),
		pg.Column(jobs, func(w watched) *time.Time { return pg.OrNull(w.look) }))
	return tx.SendBatch(ctx, &b).Close()
}

const insertStale = `
INSERT INTO punctual.notices (job_id, tenant, job_version, event, since, happened_at, tell_at)
SELECT n.job_id, $2, $3, 'stale', $4, now(), greatest(now(), (n.sent ->> 'stale')::timestamptz + ` + Gap + `)
FROM punctual.notified n WHERE n.job_id = $1`

// judge decides about one job. It marks a job as stale only if the job has a recipient for that. So a recipient that is
// added later is still told.
func (w *watched) judge(job *domain.Job, b *pgx.Batch) {
	w.watch.Expect, w.watch.Kind = job.ExpectSuccessWithin.Value(), job.Schedule.Kind()
	if !job.Schedule.StartsAt.IsZero() {
		w.watch.StartsAt = job.Schedule.StartsAt.Value()
	}
	stale, since, again := w.watch.Judge()
	switch {
	case !stale && w.stale == nil, !stale && w.watch.Paused:
		w.look = again
	case !stale && w.succAt != nil && w.succAt.After(*w.stale): // a success that was being committed meanwhile
		if jobspec.Asks(w.list, jobspec.EventRecovered) {
			b.Queue(insertRecoveredLate, w.succRun, *w.succAt, *w.stale)
		}
		w.stale, w.look = nil, again
	case w.stale != nil: // it was told; after that only a success makes it be looked at again
	case !jobspec.Asks(w.list, jobspec.EventStale):
		w.look = w.watch.Now.Add(max(min(w.watch.Expect, time.Hour), lookOnceMore))
	default:
		b.Queue(insertStale, w.key.Job, w.tenant, w.key.Version, since)
		w.stale, w.look = &since, w.watch.Now.Add(lookOnceMore)
	}
}

const insertRecoveredLate = `
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, since, happened_at, tell_at)
SELECT r.job_id, r.tenant, r.job_version, 'recovered', r.id, r.scheduled_for, $3, $2, now()
FROM punctual.runs r
WHERE r.id = $1`
