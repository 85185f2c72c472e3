package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/pg"
)

// A target that shares the database may end its attempt in the transaction that does the work: it inserts a row into
// reports. Whoever ends an attempt of such a tenant otherwise writes the row first, in the transaction that ends it,
// even if the run is to be retried. So a report that has committed is never of an attempt that has ended otherwise,
// and no next attempt starts while a transaction of the target is open.

// selectReporting selects the tenants whose targets may report in transactions of their own.
const selectReporting = `SELECT coalesce(array_agg(id), '{}') FROM punctual.tenants WHERE reports_since IS NOT NULL`

// learnReporting keeps the tenants that report.
func (s *Claims) learnReporting(tenants []int32) {
	all := make(map[int32]bool, len(tenants))
	for _, id := range tenants {
		all[id] = true
	}
	s.reporting.Store(&all)
}

// arbiter returns an arbiter of outcomes. It reads only until the first heartbeat which tenants report.
func (s *Claims) arbiter(ctx context.Context, q pg.Querier, outcomes []domain.Outcome) (a arbiter, err error) {
	if s.reporting.Load() == nil {
		var tenants []int32
		if err := q.QueryRow(ctx, selectReporting).Scan(&tenants); err != nil {
			return a, fmt.Errorf("reading which tenants report: %w", err)
		}
		s.learnReporting(tenants)
	}
	reporting := *s.reporting.Load()
	for i := range outcomes {
		if o := &outcomes[i]; reporting[o.Job.Tenant] {
			a.add(o)
		}
	}
	return a, nil
}

// ofReportsOnly returns an arbiter that lets through what was reported, and no outcome without a report.
func ofReportsOnly(outcomes []domain.Outcome) arbiter {
	a := arbiter{reportsOnly: true}
	for i := range outcomes {
		a.add(&outcomes[i])
	}
	return a
}

// arbiter decides between the outcomes of a transaction and what their targets have reported.
type arbiter struct {
	reportsOnly bool

	ids     []uuid.UUID
	tenants []int32
	fences  []int64
	asked   map[uuid.UUID]bool // the ids
	closed  map[uuid.UUID]bool // runs whose targets have no transaction open. True: no report, and none can come
	reports map[uuid.UUID]report
	ended   map[uuid.UUID]domain.Outcome // outcomes as their targets reported them
}

// report is what a target has reported of a run's attempt.
type report struct {
	run       uuid.UUID
	fence     int64
	succeeded bool
	result    json.RawMessage
	error     string
	applied   bool // the attempt has ended accordingly
	started   time.Time
	http      int
	accepted  bool // the target had answered 202
	kept      KeptResponse
}

// add has the arbiter decide about an outcome. Accepted work goes on, so nothing is to be decided.
func (a *arbiter) add(o *domain.Outcome) {
	if o.Verdict != domain.Await {
		a.ids, a.tenants, a.fences = append(a.ids, o.RunID), append(a.tenants, o.Job.Tenant), append(a.fences, o.Fence)
	}
}

// has reports whether there is something to decide.
func (a *arbiter) has() bool { return len(a.ids) > 0 }

// closeReports ends attempts that have no report, except those of runs whose targets have a transaction open.
const closeReports = `SELECT run, closed FROM punctual.close_reports($1::uuid[], $2::int[], $3::bigint[])`

// holdReports locks reports that have committed, except those that another transaction writes anew or applies.
const holdReports = `
SELECT run_id, false FROM punctual.reports WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR UPDATE SKIP LOCKED`

// readReports reads the reports of attempts, with what is on record of these.
const readReports = `
SELECT p.run_id, p.fence, p.outcome = 'succeeded', p.result, coalesce(p.error, ''), p.applied_at IS NOT NULL,
       coalesce(r.started_at, now()), coalesce(r.http_status, 0), r.accepted_at IS NOT NULL,
       ` + keptColumns + `
FROM punctual.reports p
JOIN punctual.runs r ON r.id = p.run_id AND r.id = ANY($1::uuid[])
LEFT JOIN punctual.run_data d ON d.run_id = p.run_id AND d.run_id = ANY($1::uuid[])
WHERE p.run_id = ANY($1::uuid[]) AND p.outcome IS NOT NULL`

// queue queues the statements that decide. They come first in the transaction: what follows from them is not known
// before they are read.
func (a *arbiter) queue(b *pgx.Batch) {
	a.asked, a.closed, a.reports = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]report{}
	if !a.has() {
		return
	}
	for _, id := range a.ids {
		a.asked[id] = true
	}
	if a.reportsOnly {
		b.Queue(holdReports, a.ids).Query(pg.IntoMap(a.closed))
	} else {
		b.Queue(closeReports, a.ids, a.tenants, a.fences).Query(pg.IntoMap(a.closed))
	}
	b.Queue(readReports, a.ids).Query(func(rows pgx.Rows) error {
		var r report
		return pg.Each(rows, append([]any{
			&r.run, &r.fence, &r.succeeded, &r.result, &r.error, &r.applied, &r.started, &r.http, &r.accepted,
		}, r.kept.Into()...), func() { a.reports[r.run] = r })
	})
}

// settle returns the outcomes to write, and those that wait for a transaction of their target. It drops outcomes whose
// report is written already.
func (a *arbiter) settle(outcomes []domain.Outcome) (settled, open []domain.Outcome) {
	a.ended = map[uuid.UUID]domain.Outcome{}
	for _, o := range outcomes {
		closed, held := a.closed[o.RunID]
		r, reported := a.reports[o.RunID]
		switch {
		case !a.asked[o.RunID] || closed || o.Verdict == domain.Await:
			settled = append(settled, o)
		case reported && r.applied && r.fence == o.Fence:
			if !a.reportsOnly {
				a.ended[o.RunID] = r.of(o)
			}
		case !held:
			open = append(open, o)
		case reported && !r.applied:
			a.ended[o.RunID] = r.of(o)
			settled = append(settled, a.ended[o.RunID])
		case !a.reportsOnly:
			settled = append(settled, o) // the attempt has ended before
		}
	}
	return settled, open
}

// tell puts the outcomes that targets have reported in place of the attempts' own.
func (a *arbiter) tell(outcomes []domain.Outcome) {
	for i := range outcomes {
		if o, is := a.ended[outcomes[i].RunID]; is && o.Fence == outcomes[i].Fence {
			outcomes[i] = o
		}
	}
}

// ofNobody returns the outcomes of attempts that no replica makes: their targets had answered 202. The replicas that
// make the others count them when they are answered.
func (a *arbiter) ofNobody(outcomes []domain.Outcome) (theirs []domain.Outcome) {
	for _, o := range outcomes {
		if a.reports[o.RunID].accepted {
			theirs = append(theirs, o)
		}
	}
	return theirs
}

// of returns the outcome of an attempt that its target has reported. Of the attempt's own outcome it keeps what was
// answered.
func (r report) of(o domain.Outcome) domain.Outcome {
	own := o
	if own.StartedAt.IsZero() {
		own.StartedAt = r.started
	}
	if own.HTTPStatus == 0 {
		own.HTTPStatus = r.http
	}
	out := domain.Outcome{
		Assignment: o.Assignment, Verdict: domain.Succeed, StartedAt: own.StartedAt, FinishedAt: o.FinishedAt,
	}
	if !r.succeeded {
		out = domain.JudgeReported(o.Assignment, r.error, true, own.StartedAt, o.FinishedAt)
	}
	out.HTTPStatus, out.Release, out.Reported = own.HTTPStatus, o.Release, true
	switch {
	case r.succeeded:
		if o.Verdict == domain.Succeed {
			out.Response, out.Headers, out.Truncated, out.Result, out.ResultNote =
				o.Response, o.Headers, o.Truncated, o.Result, o.ResultNote
		}
		if result, note := domain.CheckResult(r.result); result != nil || note != "" {
			out.Result, out.ResultNote = result, note
		}
	case r.accepted:
		out = r.kept.Of(out)
	default:
		out.Response, out.Headers, out.Truncated = o.Response, o.Headers, o.Truncated
	}
	return out
}

// queueReported queues what outcomes need that targets have reported: the deadline of a target goes, the report is
// marked as applied, and a request to cancel the run came too late. It is fenced like the outcomes. The gates are
// locked.
func queueReported(b *pgx.Batch, outcomes []domain.Outcome) {
	var ids []uuid.UUID
	var fences []int64
	for _, o := range outcomes {
		if o.Reported {
			ids, fences = append(ids, o.RunID), append(fences, o.Fence)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(lockReadyToCancel, ids)
	b.Queue(lockRunsToCancel, ids) // before the next statement, which else would not see a cancel that it waited for
	b.Queue(`
		WITH mine AS MATERIALIZED (
		    SELECT r.id
		    FROM punctual.runs r
		    JOIN unnest($1::uuid[], $2::bigint[]) AS u(id, fence) ON r.id = u.id AND r.fence = u.fence
		    WHERE r.id = ANY($1::uuid[]) AND r.status = 'running'),
		gone AS (
		    DELETE FROM punctual.ready y USING mine m WHERE y.run_id = m.id),
		applied AS (
		    UPDATE punctual.reports p SET applied_at = now(), result = NULL, error = NULL
		    FROM mine m
		    WHERE p.run_id = m.id
		    RETURNING p.run_id, p.outcome)
		UPDATE punctual.runs r SET reason = NULL
		FROM applied p
		WHERE r.id = p.run_id AND r.id = ANY($1::uuid[])
		  AND p.outcome = 'succeeded' AND r.reason IN ('cancelled_by_user', 'replaced')`, ids, fences)
}

// The reports that are to be applied. They are looked at in the order in which they were made, so that one that cannot
// be applied holds up no other.
const (
	reportBatch = 100

	// AnyReport is true if a report is to be applied.
	AnyReport = `EXISTS (SELECT FROM punctual.reports WHERE applied_at IS NULL)`

	// FreshReport is true if one is to be applied that was made a moment ago. The bound keeps dead index entries out of
	// the scan.
	FreshReport = `EXISTS (SELECT FROM punctual.reports WHERE applied_at IS NULL AND reported_at > now() - interval '5 s')`

	selectReports = `
SELECT run_id, reported_at FROM punctual.reports
WHERE applied_at IS NULL AND (reported_at, run_id) > ($1, $2) AND run_id <> ALL($4::uuid[])
ORDER BY reported_at, run_id LIMIT $3`

	ofReports = `punctual.runs r
CROSS JOIN (SELECT NULL::uuid AS id WHERE $1::uuid[] IS NULL) c
WHERE r.id = ANY($2::uuid[]) AND r.status = 'running'`
)

// reported are the runs with a report that is to be applied.
var reported = aside.Rows{Kind: aside.Outcome, Table: "reports", ID: "run_id", Are: "r.applied_at IS NULL"}

// ApplyReports ends runs as their targets have reported, for attempts whose replicas do not do so at once: their answer
// has not come, or will never come. Several replicas may do it.
func (s *Claims) ApplyReports(ctx context.Context) (left bool, err error) {
	var since time.Time
	var after uuid.UUID
	for n := reportBatch; n == reportBatch; {
		var ids []uuid.UUID
		limited, cancel := context.WithTimeout(ctx, aside.Whole)
		rows := pg.Query(limited, s.db.Runs, selectReports, since, after, reportBatch, s.aside.Resting(aside.Outcome))
		err := pg.Each(rows, []any{&after, &since}, func() { ids = append(ids, after) })
		cancel()
		if s.aside.SetUnreadable(ctx, reported, err) {
			return true, nil
		}
		if n = len(ids); err == nil && n > 0 {
			err = s.applyReports(ctx, ids)
		}
		if err != nil {
			return false, fmt.Errorf("ending runs as their targets have reported: %w", err)
		}
	}
	return false, nil
}

func (s *Claims) applyReports(ctx context.Context, runs []uuid.UUID) error {
	succeeded := func(r claimedRun, now time.Time) domain.Outcome {
		return domain.Outcome{Assignment: r.Assignment, Verdict: domain.Succeed, StartedAt: r.started, FinishedAt: now}
	}
	_, _, err := s.endApart(ctx, s.db.Runs, closing{which: ofReports, judge: succeeded, reported: true}, runs)
	return err
}

// ForgetReports deletes reports that are older than the runs that are kept.
func (s *Claims) ForgetReports(ctx context.Context, age time.Duration) (forgotten int, left bool, err error) {
	return pg.ForgetOld(ctx, s.db.Chores, "reports", "reported_at", []string{"run_id"}, age)
}
