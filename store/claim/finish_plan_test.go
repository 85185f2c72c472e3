package claim_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/notices"
	"punctual/store/pg"
)

// add adds up the rows that a plan compared and read in vain, and the tables that it read whole.
func add(p Plan, compared, read *float64, scanned *[]string) {
	*compared += p.Compared
	*read += p.InVain
	if p.Node == "Seq Scan" {
		*scanned = append(*scanned, p.Relation)
	}
	for _, child := range p.Plans {
		add(child, compared, read, scanned)
	}
}

// outcomes returns outcomes of the runs that a query selects.
func outcomes(c Replica, status int, sql string) []domain.Outcome {
	c.T.Helper()
	outcomes, err := pg.All(c.T.Context(), c.DB.Callers, func(row pgx.CollectableRow) (o domain.Outcome, err error) {
		o = domain.Outcome{
			Assignment: domain.Assignment{Attempt: 1, Job: &domain.Job{}},
			StartedAt:  time.Now(), FinishedAt: time.Now(), HTTPStatus: status,
		}
		return o, row.Scan(&o.RunID, &o.Fence)
	}, sql)
	Must(c.T, err)
	return outcomes
}

// A finish reads its own runs only, each once. That holds on a day that was never analysed and on a day that was
// analysed when no run was running, with custom and with generic plans.
func TestFinishLooksAtItsOwnRunsOnly(t *testing.T) {
	c := ReplicaOnClone(t)
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, fence, tenant, job_version, lane, attempt,
			status, trigger, claimed_at)
		SELECT ('01' || substr(punctual.partition_bound(current_date)::text, 3, 12)
				|| '8' || substr(md5(i::text), 1, 3)
				|| '-8' || substr(md5(i::text), 4, 3)
				|| '-' || substr(md5(i::text), 7, 12))::uuid,
			gen_random_uuid(), now(), now(), i, 1, 1, $1, 1, 'running', 'schedule', now()
		FROM generate_series(1, 4000) i`, c.Queue*4+1)
	outcomes := outcomes(c, 500, `SELECT id, fence FROM punctual.runs ORDER BY md5(id::text) LIMIT 300`)
	for i := range outcomes {
		outcomes[i].Reason, outcomes[i].RetryIn = domain.ReasonHTTP5xx, time.Hour
	}
	if len(outcomes) != 300 {
		t.Fatal(len(outcomes))
	}
	for _, state := range []string{
		`SELECT`,
		`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE fence > 3900`,
	} {
		c.Exec(state)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, verdict := range []domain.Verdict{domain.Succeed, domain.Await, domain.RetryRun} {
				for i := range outcomes {
					outcomes[i].Verdict = verdict
				}
				looksOnlyAt(c, outcomes, claim.DayOf(outcomes), mode)
			}
			for i := range outcomes {
				outcomes[i].Verdict = domain.Succeed
			}
			if mode == "force_custom_plan" { // such batches always get custom plans
				looksOnlyAt(c, outcomes, days.AnyDay, mode)
			}
		}
		c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now()`)
		c.Exec(`ANALYZE punctual.runs`)
		c.Exec(`UPDATE punctual.runs SET status = 'running', finished_at = NULL`)
	}
}

// looksOnlyAt explains the statement of Finish in a transaction that it rolls back, and fails the test if the statement
// reads other rows.
func looksOnlyAt(c Replica, outcomes []domain.Outcome, on days.Day, mode string) {
	c.T.Helper()
	var b pgx.Batch
	claim.QueueFinish(&b, outcomes, nil, claim.Earlier{}, on, &notices.Following{})
	looks(c, b.QueuedQueries, "coalesce(r.status = 'running'", mode, float64(len(outcomes)))
}

// looks explains the statement of a finish that contains a text, in a transaction that it rolls back. It fails the test
// if the statement compares more than so many pairs of rows, reads more than twice as many in vain, or reads a whole
// table of runs.
func looks(c Replica, queries []*pgx.QueuedQuery, text, mode string, most float64) {
	c.T.Helper()
	tx, err := c.DB.Callers.Begin(c.T.Context())
	Must(c.T, err)
	defer func() { _ = tx.Rollback(c.T.Context()) }()
	exec := func(sql string, args ...any) {
		_, err := tx.Exec(c.T.Context(), sql, args...)
		Must(c.T, err)
	}
	exec(pg.ByIndex)
	exec(`SET LOCAL plan_cache_mode = ` + mode)
	explained := 0
	for _, q := range queries {
		if !strings.Contains(q.SQL, text) {
			exec(q.SQL, q.Arguments...)
			continue
		}
		explained++
		exec(`PREPARE finish AS ` + q.SQL)
		args := q.Arguments
		if _, prepared := args[0].(pg.Prepared); prepared {
			args = args[1:]
		}
		var places []string
		for i := range args {
			places = append(places, fmt.Sprintf("$%d", i+1))
		}
		// Only the simple protocol lets a prepared statement be explained with its arguments.
		args = append([]any{pgx.QueryExecModeSimpleProtocol}, args...)
		var raw string
		Must(c.T, tx.QueryRow(c.T.Context(),
			`EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE finish (`+strings.Join(places, ", ")+`)`, args...).Scan(&raw))
		exec(`DEALLOCATE finish`)
		var plans []struct{ Plan Plan }
		Must(c.T, json.Unmarshal([]byte(raw), &plans))
		var compared, read float64
		var scanned []string
		add(plans[0].Plan, &compared, &read, &scanned)
		if compared > most || read > 2*most || len(scanned) > 0 {
			c.T.Errorf("%s: %.0f pairs compared and %.0f rows read in vain, tables read whole: %v; plan %s",
				mode, compared, read, scanned, raw)
		}
	}
	if explained != 1 {
		c.T.Errorf("%d statements were looked at", explained)
	}
}

// So does the end of leases, with all the runs of a day running.
func TestTheEndOfALeaseLooksAtItsOwnRunsOnly(t *testing.T) {
	c := NewReplica(t)
	c.Many(2000, "a", 0, Never)
	var leases, earlier []uuid.UUID
	for range 20 {
		batch := c.Claim(100, false)
		leases = append(leases, batch.Runs[0].Lease.ID)
		for _, a := range batch.Runs[:50] {
			earlier = append(earlier, a.RunID)
		}
	}
	for _, on := range []days.Day{claim.DayOf(nil, earlier...), days.AnyDay} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			if on == days.AnyDay && mode == "force_generic_plan" {
				continue // such batches always get custom plans
			}
			var b pgx.Batch
			claim.QueueFinish(&b, nil, leases[:3], claim.Earlier{Runs: earlier[:150]}, on, &notices.Following{})
			looks(c, b.QueuedQueries, "DELETE FROM punctual.claims", mode, 3*150)
		}
	}
}

// A batch whose runs are of one day is written to that day's table. A batch of several days, or of a day whose table is
// gone, is written to the parent table.
func TestFinishOfOneDayAndOfSeveral(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"a", "b", "c"} {
		c.Manual(name)
	}
	c.Exec(`UPDATE punctual.runs SET status = 'running', claimed_at = now()`)
	outcomes := outcomes(c, 200, `SELECT id, fence FROM punctual.runs ORDER BY id`)
	if len(outcomes) != 3 {
		t.Fatal(len(outcomes))
	}
	today := days.Day(domain.IDTime(outcomes[0].RunID).Format("20060102"))
	if got := claim.DayOf(outcomes[:1]); got != today {
		t.Errorf("day %q, want %q", got, today)
	}
	gone := outcomes[0]
	gone.RunID = domain.NewRunID(time.Now().AddDate(-1, 0, 0))
	if got := claim.DayOf([]domain.Outcome{gone, outcomes[1]}); got != days.AnyDay {
		t.Errorf("two days are %q", got)
	}
	accepted, lost := outcomes[2], gone
	accepted.Verdict, lost.Verdict = domain.Await, domain.Await
	if got := claim.DayOf([]domain.Outcome{accepted}); got != today {
		t.Errorf("accepted work is of day %q, want %q", got, today)
	}
	for _, batch := range [][]domain.Outcome{{lost}, {accepted}} {
		_, err := c.Claims.Finish(t.Context(), batch, nil)
		Must(t, err)
	}
	c.WantCount(1, "run is accepted", `SELECT count(*) FROM punctual.runs WHERE accepted_at IS NOT NULL`)
	for name, batch := range map[string][]domain.Outcome{
		"one day": outcomes[:1], "two days": {gone, outcomes[1]}, "a day without a table": {gone}, "nothing": nil,
	} {
		superseded, err := c.Claims.Finish(t.Context(), batch, nil)
		if want := strings.Count(name, "two days") + strings.Count(name, "without"); err != nil || superseded != want {
			t.Errorf("%s: %d superseded, error %v", name, superseded, err)
		}
	}
	c.WantCount(2, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
}
