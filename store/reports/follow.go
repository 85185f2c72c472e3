package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
)

// Follower decides between the outcomes of attempts and what their targets have reported. It implements claim.Follower.
// Safe for concurrent use.
type Follower struct{ known atomic.Pointer[tenants] }

// tenants are those whose targets may report, as they were at an instant.
type tenants struct {
	report map[int32]bool
	read   time.Time
}

// believed is for how long they are believed. A target may report of runs that were claimed 15 s after its tenant was
// set to report.
const believed = 10 * time.Second

const selectReporting = `
SELECT coalesce(json_object_agg(id, true), '{}') FROM punctual.tenants WHERE reports_since IS NOT NULL`

// Facts implements replicas.Learner.
func (f *Follower) Facts() string { return selectReporting }

// Learn implements replicas.Learner.
func (f *Follower) Learn(raw []byte) error {
	t := tenants{read: time.Now()}
	if err := json.Unmarshal(raw, &t.report); err != nil {
		return fmt.Errorf("reading which tenants report: %w", err)
	}
	f.known.Store(&t)
	return nil
}

// Follow implements claim.Follower. A transaction of a tenant sees no other.
func (f *Follower) Follow(ctx context.Context, q pg.Querier, tenant int32) (claim.Following, error) {
	if tenant != pg.Everybody {
		var reports bool
		err := q.QueryRow(ctx, `SELECT reports_since IS NOT NULL FROM punctual.tenants WHERE id = $1`, tenant).Scan(&reports)
		return &following{reporting: map[int32]bool{tenant: reports}},
			pg.Wrap(fmt.Sprintf("reading whether tenant %d reports", tenant), err)
	}
	t := f.known.Load()
	if t == nil || time.Since(t.read) >= believed {
		t = &tenants{read: time.Now()}
		if err := q.QueryRow(ctx, selectReporting).Scan(&t.report); err != nil {
			return nil, fmt.Errorf("reading which tenants report: %w", err)
		}
		f.known.Store(t)
	}
	return &following{reporting: t.report}, nil
}

// following decides in one transaction. It implements claim.Following.
type following struct {
	claim.Nothing
	reporting map[int32]bool

	asked   map[uuid.UUID]bool   // the runs about which it decides
	closed  map[uuid.UUID]bool   // those whose targets have no transaction open. True: no report, and none can come
	reports map[uuid.UUID]report // by run
}

// closeReports ends attempts that have no report, except those of runs whose targets have a transaction open.
var closeReports = `SELECT run, closed FROM punctual.close_reports(` + attempts.Arrays() + `)`

var attempts = pg.Columns[*domain.Outcome]{
	pg.Col("id", "uuid", func(o *domain.Outcome) uuid.UUID { return o.RunID }),
	pg.Col("tenant", "int", func(o *domain.Outcome) int32 { return o.Job.Tenant }),
	pg.Col("fence", "bigint", func(o *domain.Outcome) int64 { return o.Fence }),
}

// holdReports locks reports that have committed, except those that another transaction writes anew or applies.
const holdReports = `
SELECT run_id, false FROM punctual.reports WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR UPDATE SKIP LOCKED`

// readReports reads the reports of attempts, with what is on record of these.
const readReports = `
SELECT p.run_id, p.fence, p.outcome = 'succeeded', p.result, coalesce(p.error, ''), p.applied_at IS NOT NULL,
       coalesce(r.started_at, now()), coalesce(r.http_status, 0), r.accepted_at,
       ` + claim.KeptColumns + `
FROM punctual.reports p
JOIN punctual.runs r ON r.id = p.run_id AND r.id = ANY($1::uuid[])
LEFT JOIN punctual.run_data d ON d.run_id = p.run_id AND d.run_id = ANY($1::uuid[])
WHERE p.run_id = ANY($1::uuid[]) AND p.outcome IS NOT NULL`

// QueueRead implements claim.Following. Accepted work goes on, so nothing is decided about it. What ends only as it was
// reported needs no row that says that it has ended otherwise.
func (f *following) QueueRead(b *pgx.Batch, outcomes []domain.Outcome) {
	*f = following{reporting: f.reporting}
	var ends []*domain.Outcome
	var ids, reported []uuid.UUID
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.Verdict == domain.Await, !o.Reported && !f.reporting[o.Job.Tenant]:
			continue
		case o.Reported:
			reported = append(reported, o.RunID)
		default:
			ends = append(ends, o)
		}
		ids = append(ids, outcomes[i].RunID)
	}
	if len(ids) == 0 {
		return
	}
	f.asked, f.closed, f.reports = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]report{}
	for _, id := range ids {
		f.asked[id] = true
	}
	if len(ends) > 0 {
		b.Queue(closeReports, attempts.Args(ends)...).Query(pg.IntoMap(f.closed))
	}
	if len(reported) > 0 {
		b.Queue(holdReports, reported).Query(pg.IntoMap(f.closed))
	}
	b.Queue(readReports, ids).Query(func(rows pgx.Rows) error {
		var r report
		return pg.Each(rows, append([]any{
			&r.run, &r.fence, &r.succeeded, &r.result, &r.error, &r.applied, &r.started, &r.http, &r.accepted,
		}, r.kept.Into()...), func() { f.reports[r.run] = r })
	})
}

// Decide implements claim.Following. An outcome waits for a transaction of its target.
func (f *following) Decide(o domain.Outcome) (domain.Outcome, claim.Decision) {
	closed, held := f.closed[o.RunID]
	r, reported := f.reports[o.RunID]
	switch {
	case !f.asked[o.RunID] || closed || o.Verdict == domain.Await:
		return o, claim.ToWrite
	case reported && r.applied && r.fence == o.Fence:
		return r.of(o), claim.IsWritten
	case !held:
		return o, claim.MustWait
	case reported && !r.applied:
		return r.of(o), claim.ToWrite
	case o.Reported:
		return o, claim.IsWritten
	}
	return o, claim.ToWrite // the attempt has ended before
}

// applyReports marks reports as applied whose attempts this transaction has ended. A run's xmin is then the
// transaction's own id.
var applyReports = `
UPDATE punctual.reports p SET applied_at = now(), result = NULL, error = NULL
FROM ` + attempts.Unnest("u") + `
JOIN punctual.runs r ON r.id = u.id AND r.fence = u.fence AND r.id = ANY($1::uuid[])
WHERE p.run_id = r.id AND r.xmin = pg_current_xact_id()::xid`

// QueueEnds implements claim.Following.
func (f *following) QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, _ days.Day) {
	var reported []*domain.Outcome
	for i := range outcomes {
		if outcomes[i].Reported {
			reported = append(reported, &outcomes[i])
		}
	}
	if len(reported) > 0 {
		b.Queue(applyReports, attempts.Args(reported)...)
	}
}
