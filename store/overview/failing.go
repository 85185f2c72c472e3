package overview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// retried says that a run r has failed and is retried, and failing that it is, or has died. While the run waits,
// attempt counts the attempts made so far; while it is sent, attempt includes the one in flight.
const (
	retried = `(r.status IN ('pending', 'retrying') AND r.attempt > 0 OR r.status = 'running' AND r.attempt > 1)`
	failing = `(r.status = 'dead' OR ` + retried + `)`
)

// How far failing jobs are searched.
const (
	mostLetters = pg.DepthCap // open dead letters, the newest first
	mostUnended = 2000        // runs that wait, the newest first; and runs in flight
	mostSince   = 1000        // runs of a job since its failure, in search of a success
)

// candidate is a failing job, and what is known of it before the job is read.
type candidate struct {
	job, run uuid.UUID // run is the newest failure that is open: a dead letter, or a run that is retried
	letters  int       // open dead letters
}

// selectFailing reads the open dead letters and the failed runs that have not ended, and the newest of them of each
// job. A lease names runs that have ended, too. Each row counts the letters, and there is one even if no job has any.
var selectFailing = fmt.Sprintf(`
WITH letters AS MATERIALIZED (
    SELECT d.run_id, d.job_id
    FROM punctual.dead_letters d
    WHERE d.tenant = $1 AND d.resolved_at IS NULL
    ORDER BY d.run_id DESC LIMIT %[1]d),
waiting AS MATERIALIZED (
    SELECT y.run_id AS id FROM punctual.ready y WHERE y.tenant = $1 ORDER BY y.run_id DESC LIMIT %[2]d),
unended AS MATERIALIZED (
    SELECT id FROM waiting
    UNION
    SELECT c.id FROM (SELECT unnest(run_ids) AS id FROM punctual.claims LIMIT %[2]d) c),
failures AS MATERIALIZED (
    SELECT job_id, run_id AS id, 1 AS letter FROM letters
    UNION ALL
    SELECT r.job_id, r.id, 0
    FROM punctual.runs_of(ARRAY(SELECT id FROM unended)) r
    WHERE r.tenant = $1 AND r.step IS NULL AND %[4]s),
candidates AS MATERIALIZED (
    SELECT f.job_id, (array_agg(f.id ORDER BY f.id DESC))[1] AS id, sum(f.letter) AS letters
    FROM failures f
    GROUP BY f.job_id
    ORDER BY id DESC LIMIT %[3]d + 1),
found AS (
    SELECT c.*
    FROM (SELECT * FROM candidates ORDER BY id DESC LIMIT %[3]d) c
    JOIN punctual.jobs j ON j.id = c.job_id AND j.state <> 'deleted')
SELECT n.open, n.more, f.job_id, f.id, coalesce(f.letters, 0)
FROM (SELECT count(*) AS open,
             count(*) = %[1]d OR (SELECT count(*) FROM waiting) = %[2]d
                 OR (SELECT count(*) FROM candidates) > %[3]d AS more
      FROM letters) n
LEFT JOIN found f ON true
ORDER BY f.id DESC`, mostLetters, mostUnended, mostJobs, retried)

// OpenLetters are the open dead letters of a tenant.
type OpenLetters struct {
	Open int  `json:"open" maximum:"10000" doc:"Open dead letters. GET /v1/dead-letters lists them." example:"12"`
	More bool `json:"more" doc:"Whether there are more: the newest 10,000 are counted." example:"false"`
}

// troubles are the failing jobs of a tenant, those with the newest failures first, and its open dead letters.
type troubles struct {
	failing []candidate
	letters OpenLetters
	more    bool // there may be further jobs
}

// findFailing finds what fails. It reads without row-level security, by the filter alone: a tenant may not read what
// replicas hold.
func (b *Board) findFailing(ctx context.Context, tenant int32) (t troubles, err error) {
	var batch pgx.Batch
	batch.Queue(pg.ByIndex)
	batch.Queue(selectFailing, pg.Prepared{}, tenant).Query(func(rows pgx.Rows) error {
		var job, run *uuid.UUID
		var letters int
		_, err := pgx.ForEachRow(rows, []any{&t.letters.Open, &t.more, &job, &run, &letters}, func() error {
			if job != nil && run != nil {
				t.failing = append(t.failing, candidate{*job, *run, letters})
			}
			return nil
		})
		return err
	})
	err = b.db.Callers.SendBatch(ctx, &batch).Close()
	t.letters.More = t.letters.Open >= mostLetters
	if err == nil {
		t.failing, err = b.withoutSuccess(ctx, t.failing)
	}
	return t, pg.Wrap("looking for failing jobs", err)
}

// withoutSuccess returns those of the jobs that have had no success since the failure. It never searches the runs of a
// job that has not failed, nor those before the failure.
func (b *Board) withoutSuccess(ctx context.Context, candidates []candidate) ([]candidate, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	left := slices.Clone(candidates)
	succeeded := map[uuid.UUID]bool{}
	oldest := time.Now()
	for _, c := range candidates {
		oldest = jobspec.Earlier(oldest, domain.IDTime(c.run))
	}
	read := map[uuid.UUID]int{}
	search := days.Search{Index: days.All, Since: oldest}
	_, err := search.Back(ctx, b.db.Callers, func(ctx context.Context, q pg.Querier, w days.Window) (bool, error) {
		var batch pgx.Batch
		batch.Queue(days.InOrder)
		jobs := pg.Column(left, func(c candidate) uuid.UUID { return c.job })
		since := pg.Column(left, func(c candidate) uuid.UUID { return c.run })
		w.Queue(&batch, selectSince(w), jobs, since).Query(func(rows pgx.Rows) error {
			return pg.Each3(rows, func(job uuid.UUID, n int, well bool) {
				read[job], succeeded[job] = read[job]+n, well
			})
		})
		err := q.SendBatch(ctx, &batch).Close()
		left = slices.DeleteFunc(left, func(c candidate) bool {
			return succeeded[c.job] || read[c.job] >= mostSince || !domain.IDTime(c.run).Before(w.From)
		})
		return len(left) == 0, err
	})
	return slices.DeleteFunc(candidates, func(c candidate) bool { return succeeded[c.job] }), err
}

// ofJob is the key of the runs of a job that is a row w.
var ofJob = days.Job(`w.job`)

// selectSince counts the runs of jobs ($1) since their failures ($2), and says whether one has succeeded.
func selectSince(w days.Window) string {
	return fmt.Sprintf(`
SELECT w.job, count(*), bool_or(r.status = 'succeeded')
FROM unnest((SELECT $1::uuid[]), (SELECT $2::uuid[])) w(job, failure)
CROSS JOIN LATERAL (
    SELECT r.status FROM punctual.runs r
    WHERE %s AND %s AND r.step IS NULL
    %s LIMIT %d) r
GROUP BY w.job`, ofJob.After(`r`, `w.failure`), w.Of(`r`, ofJob), ofJob.Order(`r`, days.NewestFirst), mostSince)
}

// FailingJobs returns the failing jobs of a tenant: up to 1,000, those with the newest failures. A job is failing while
// an open dead letter of it, or a run of it that is retried, is newer than its last success. They are as old as a
// shared board may be, and those of the last board.
func (b *Board) FailingJobs(ctx context.Context, tenant int32) ([]uuid.UUID, error) {
	t, err := b.troubles.get(ctx, tenant, b.age, "looking for failing jobs", b.findFailing)
	return pg.Column(t.failing, func(c candidate) uuid.UUID { return c.job }), err
}
