package store

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/pg"
)

// plan is a node of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
type plan struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Compared float64 `json:"Rows Removed by Join Filter"`
	InVain   float64 `json:"Rows Removed by Filter"`
	Plans    []plan
}

// scans returns the kinds of nodes that read a relation in the plan.
func (p plan) scans(relation string) (nodes []string) {
	if p.Relation == relation {
		nodes = append(nodes, p.Node)
	}
	for _, child := range p.Plans {
		nodes = append(nodes, child.scans(relation)...)
	}
	return nodes
}

// explain runs a statement, returns its plan with the pages that it read, and rolls its changes back.
func (c claimer) explain(sql string, args ...any) plan {
	c.t.Helper()
	var raw []byte
	err := c.DB.Callers.InTx(c.t.Context(), pg.Everybody, func(tx *pg.Tx) error {
		if err := tx.QueryRow(c.t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&raw); err != nil {
			return err
		}
		return tx.Rollback(c.t.Context())
	})
	var plans []struct{ Plan plan }
	if raw == nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &plans); err != nil || len(plans) != 1 {
		c.t.Fatalf("%d plans, error %v", len(plans), err)
	}
	return plans[0].Plan
}

// explainClaim runs the statement that locks the rows of a claim.
func (c claimer) explainClaim(of scheduler.Claim) plan {
	c.t.Helper()
	sql, arguments := claim.Locking(of)
	return c.explain(sql, arguments[1:]...) // without the argument that has it prepared, because the text is another one
}

// explainContenders runs the statement that finds the waiting tenants.
func (c claimer) explainContenders(of domain.Work) plan {
	c.t.Helper()
	sql, arguments := claim.Contending(of, []int16{c.queue})
	return c.explain(sql, arguments[1:]...)
}

// fill makes n rows of schedules without their jobs. Every tenth has been due for 2 s; row i of the others is due in i
// seconds.
func (c claimer) fill(n int) {
	c.t.Helper()
	c.exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), at, at, 1, 1, $2::smallint * 4 + 1, true
		FROM (SELECT now() + CASE WHEN i % 10 = 0 THEN interval '-2 s' ELSE i * interval '1 s' END AS at
			FROM generate_series(1, $1::int) i) s`, n, c.queue)
}

// The hot statements read a few pages of their index, whatever the table's statistics and history. The test counts
// pages, not time.
func TestTheHotStatementsStayIndexScans(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := claimerOnClone(t)
	ctx := t.Context()
	of := func(work domain.Work) scheduler.Claim {
		return scheduler.Claim{Work: work, Quotas: []admit.Quota{{Queue: c.queue, Slots: 100}}}
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
			p := c.explainClaim(of(statement.work))
			scans := p.scans(statement.relation)
			if len(scans) == 0 || slices.ContainsFunc(scans, func(node string) bool { return node != "Index Scan" }) {
				t.Errorf("%s, %s: read by %v", state, name, scans)
			}
			if pages := p.Hit + p.Read; pages > most {
				t.Errorf("%s, %s: %d pages, want at most %d", state, name, pages, most)
			}
		}
	}
	check("an empty table, never analysed", 200)
	c.fill(100_000)
	check("a hundred thousand rows, never analysed", 2000)
	c.exec(`ANALYZE punctual.schedules`)
	check("a hundred thousand rows, analysed", 2000)

	// All due slots move on while an old snapshot keeps the dead entries of the index.
	old, err := c.DB.Callers.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer func() { _ = old.Rollback(context.WithoutCancel(ctx)) }()
	var n int
	must(t, old.QueryRow(ctx, `SELECT count(*) FROM punctual.schedules`).Scan(&n))
	c.exec(`UPDATE punctual.schedules
		SET next_run_at = next_run_at - interval '1 minute', scheduled_for = scheduled_for - interval '1 minute'
		WHERE next_run_at <= now()`)
	c.exec(`UPDATE punctual.schedules SET next_run_at = next_run_at + interval '1 day' WHERE next_run_at <= now()`)
	if p := c.explainClaim(of(domain.WorkDue)); p.Hit+p.Read > 3000 {
		t.Errorf("under an old snapshot: %d pages for what is due now", p.Hit+p.Read)
	}

	c.exec(`UPDATE punctual.schedules SET enabled = false`)
	if p := c.explainClaim(of(domain.WorkDue)); p.Hit+p.Read > 3000 ||
		slices.Contains(p.scans("schedules"), "Seq Scan") {
		t.Errorf("a table just drained, under an old snapshot: %d pages, read by %v", p.Hit+p.Read, p.scans("schedules"))
	}
	must(t, old.Rollback(ctx))
	c.exec(`VACUUM punctual.schedules`)
	check("a table that was drained and vacuumed", 2000)
}
