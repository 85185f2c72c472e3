package history

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// verifyRow is a run or a recorded skip.
type verifyRow struct {
	id, job     uuid.UUID
	trigger     domain.Trigger
	status      domain.Status
	at          time.Time  // the slot of a run
	first, last *time.Time // the range of a skip
	count       *int
	createdAt   time.Time
	held        bool // the run has ended, or a replica will see to it that it ends
	recorded
}

func (r verifyRow) isSkip() bool { return r.first != nil && r.last != nil }

// ofSlot reports whether the schedule made the row, and not a user or another run. A skip of dated runs stands for no
// slots.
func (r verifyRow) ofSlot() bool {
	return r.trigger == domain.TriggerSchedule || r.trigger == domain.TriggerCatchup ||
		r.trigger == domain.TriggerBackfill
}

// start returns the instant that a job's rows are sorted by.
func (r verifyRow) start() time.Time {
	if r.isSkip() {
		return *r.first
	}
	return r.at
}

// A run that has not ended is held by its row in ready, unless it waits there for longer than it may. Or it is held by
// the claim of a replica that renews itself. A claim that was made just now counts too, before its replica renews.
const selectVerifyRows = `
SELECT r.id, r.job_id, r.trigger, r.status, r.scheduled_for, r.skipped_first, r.skipped_last, r.skipped_count,
       r.created_at,
       r.finished_at IS NOT NULL
       OR EXISTS (SELECT FROM punctual.ready y
                   WHERE y.run_id = r.id
                     AND (y.waits <> 'host' OR y.until > (SELECT ` + pg.Now + `) - $7::interval
                          OR punctual.frozen_since(y.tenant) IS NOT NULL))
       OR EXISTS (SELECT FROM punctual.claims c LEFT JOIN punctual.replicas p ON p.id = c.replica
                   WHERE r.id = ANY (c.run_ids) AND greatest(c.claimed_at, p.renewed_at)
                         > (SELECT ` + pg.Now + `) - $7::interval),
       r.tenant, r.job_version, r.due_at, r.claimed_at, r.started_at, r.finished_at, coalesce(r.fence, 0), r.attempt,
       coalesce(r.reason, ''), r.late, coalesce(r.step, ''), r.parent_run,
       CASE WHEN r.claimed_at > r.due_at + interval '1 s' AND r.attempt = 1 AND NOT r.late
            THEN EXISTS (SELECT FROM punctual.attempts a WHERE a.run_id = r.id AND a.run_id >= $4) ELSE false END
FROM punctual.runs r
WHERE r.job_id > $1 AND r.job_id <= $2 AND ($3::uuid[] IS NULL OR r.job_id = ANY ($3::uuid[]))
  AND r.id >= $4
  AND coalesce(r.skipped_last, r.scheduled_for) >= $5
  AND coalesce(r.skipped_first, r.scheduled_for) <= $6
ORDER BY r.job_id, coalesce(r.skipped_first, r.scheduled_for), r.id`

// compare reads the rows of a page in the order of jobs and slots, and passes each row to its job's check.
func (v *verification) compare(ctx context.Context, tx pgx.Tx, jobs []*verifyJob, now time.Time, last bool) error {
	after, until, only := v.after, uuid.Max, []uuid.UUID(nil)
	if !last {
		until = jobs[len(jobs)-1].id
	}
	if v.filtered() {
		only = pg.Column(jobs, func(j *verifyJob) uuid.UUID { return j.id })
		until = only[len(only)-1]
	}
	rows := pg.Query(ctx, tx, selectVerifyRows, after, until, only,
		v.firstID(), v.summary.From, v.summary.To, v.options.Grace)
	p := verifyPage{verification: v, jobs: jobs, now: now}
	defer p.close()
	var r verifyRow
	_, err := pgx.ForEachRow(rows, []any{
		&r.id, &r.job, &r.trigger, &r.status, &r.at, &r.first, &r.last, &r.count, &r.createdAt, &r.held,
		&r.tenant, &r.version, &r.due, &r.claimed, &r.started, &r.finished, &r.fence, &r.attempt, &r.reason, &r.late,
		&r.step, &r.parent, &r.cutOff,
	}, func() error {
		p.row(r)
		return p.failed
	})
	if err != nil {
		return pg.Wrap("reading runs", err)
	}
	for len(p.jobs) > 0 && p.failed == nil {
		p.next()
	}
	p.end()
	return nil
}

// verifyPage passes the rows of a page to the checks of its jobs.
type verifyPage struct {
	*verification
	jobs  []*verifyJob // the jobs that are still to come
	now   time.Time
	check *jobCheck // the check of the current job
}

func (p *verifyPage) row(r verifyRow) {
	ofWorkflow := r.trigger == domain.TriggerStep && r.held // its slot is its workflow's
	for p.check == nil || p.check.job.id != r.job {
		if len(p.jobs) == 0 || pg.CompareIDs(p.jobs[0].id, r.job) > 0 {
			// A run of a chain was triggered when its job was gone already.
			if p.summary.Runs++; r.trigger != domain.TriggerChain && !ofWorkflow {
				p.report(Violation{
					Kind: ViolationPhantom, JobID: r.job, Slot: &r.at, Runs: []uuid.UUID{r.id}, Detail: "there is no such job",
				})
			}
			return
		}
		p.next()
	}
	p.check.compareRecord(r)
	if ofWorkflow {
		p.summary.Runs++
		return
	}
	p.check.row(r)
}

// next ends the check of one job and begins the check of the next.
func (p *verifyPage) next() {
	p.end()
	p.check = newJobCheck(p.verification, p.jobs[0], p.now)
	p.jobs = p.jobs[1:]
}

func (p *verifyPage) end() {
	if p.check != nil {
		p.check.finish()
		p.close()
	}
}

func (p *verifyPage) close() {
	if p.check != nil {
		p.check.stop()
		p.check = nil
	}
}

// byName reads the violations of a statement whose columns have the names of the fields.
var byName = pgx.RowToStructByNameLax[Violation]

// find reports what a statement finds.
func (v *verification) find(
	ctx context.Context, tx pgx.Tx, doing string, read pgx.RowToFunc[Violation], sql string, args ...any,
) error {
	found, err := pg.All(ctx, tx, read, sql, args...)
	for _, one := range found {
		v.report(one)
	}
	return pg.Wrap(doing, err)
}

// report reports a violation, unless an earlier report has failed.
func (v *verification) report(violation Violation) {
	v.summary.Violations++
	v.summary.Kinds[violation.Kind]++
	switch {
	case v.failed != nil:
	case v.aside != nil:
		if *v.aside = append(*v.aside, violation); len(*v.aside) > mostAside {
			v.failed = errTooMany
		}
	case v.options.Report != nil:
		v.failed = v.options.Report(violation)
	}
}
