package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
)

// Statistics are missing, dead index entries many. The hot statements read a bounded number of pages.
//
// 100,000 rows were never analysed, an old snapshot keeps dead index entries alive. Only the search for backlog, in a
// twentieth of a replica's time at most, reads dead entries under an old snapshot. The test counts pages, not time.
//
//prove:claims
func TestTheHotStatementsStayIndexScans(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	ctx := t.Context()
	of := func(work domain.Work) scheduler.Claim {
		return scheduler.Claim{Work: work, Quotas: []admit.Quota{{Queue: c.Queue, Slots: 100}}}
	}
	check := func(state string, most int) {
		t.Helper()
		for name, statement := range map[string]struct {
			work     domain.Work
			relation string
		}{
			"due slots": {domain.WorkDue, "schedules"}, "backlog": {domain.WorkLate, "schedules"},
			"ready runs": {domain.WorkReady, "ready"}, "ordered runs": {domain.WorkOrdered, "ready"},
		} {
			p := c.ExplainClaim(of(statement.work))
			scans := p.Scans(statement.relation)
			if len(scans) == 0 || slices.ContainsFunc(scans, func(node string) bool { return node != "Index Scan" }) {
				t.Errorf("%s, %s: read by %v", state, name, scans)
			}
			if pages := p.Hit + p.Read; pages > most {
				t.Errorf("%s, %s: %d pages, want at most %d", state, name, pages, most)
			}
		}
	}
	check("an empty table, never analysed", 200)
	c.Fill(100_000)
	check("a hundred thousand rows, never analysed", 2000)
	c.Exec(`ANALYZE punctual.schedules`)
	check("a hundred thousand rows, analysed", 2000)

	// All due slots move on while an old snapshot keeps the dead entries of the index.
	old, err := c.DB.Callers.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	Must(t, err)
	defer func() { _ = old.Rollback(context.WithoutCancel(ctx)) }()
	var n int
	Must(t, old.QueryRow(ctx, `SELECT count(*) FROM punctual.schedules`).Scan(&n))
	c.Exec(`UPDATE punctual.schedules
		SET next_run_at = next_run_at - interval '1 minute', scheduled_for = scheduled_for - interval '1 minute'
		WHERE next_run_at <= now()`)
	c.Exec(`UPDATE punctual.schedules SET next_run_at = next_run_at + interval '1 day' WHERE next_run_at <= now()`)
	if p := c.ExplainClaim(of(domain.WorkDue)); p.Hit+p.Read > 3000 {
		t.Errorf("under an old snapshot: %d pages for what is due now", p.Hit+p.Read)
	}

	c.Exec(`UPDATE punctual.schedules SET enabled = false`)
	if p := c.ExplainClaim(of(domain.WorkDue)); p.Hit+p.Read > 3000 ||
		slices.Contains(p.Scans("schedules"), "Seq Scan") {
		t.Errorf("a table just drained, under an old snapshot: %d pages, read by %v", p.Hit+p.Read, p.Scans("schedules"))
	}
	Must(t, old.Rollback(ctx))
	c.Exec(`VACUUM punctual.schedules`)
	check("a table that was drained and vacuumed", 2000)
}
