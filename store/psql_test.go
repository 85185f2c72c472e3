package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// A question about a day locks and reads the tables of that day.
func TestHistoryBetweenInstantsReadsTheirDaysOnly(t *testing.T) {
	c := NewReplica(t)
	c.FreshDays()
	job, other := c.Create("daily"), c.Create("other")
	for days := range 5 {
		c.Ran(job.ID, c.Ago(days), domain.StatusSucceeded)
	}
	c.Ran(other.ID, c.Ago(2).Add(time.Hour), domain.StatusSucceeded)
	for _, function := range []string{"runs_between", "history_between"} {
		for of, want := range map[string]int{"": 2, fmt.Sprintf(", '%s'", job.ID): 1} {
			tx := c.Transaction()
			from := c.Ago(2)
			sql := fmt.Sprintf(`SELECT count(*) FROM punctual.%s('%s', '%s'%s)`, function,
				from.Format(time.RFC3339Nano), from.Add(time.Hour+time.Millisecond).Format(time.RFC3339Nano), of)
			var n, locked int
			Must(t, tx.QueryRow(t.Context(), sql).Scan(&n))
			Must(t, tx.QueryRow(t.Context(), `
				SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
				WHERE l.pid = pg_backend_pid() AND c.relname ~ '^runs_\d{8}$'`).Scan(&locked))
			Must(t, tx.Rollback(t.Context()))
			if n != want || locked != 1 {
				t.Errorf("%s: %d runs, want %d, and %d days locked", sql, n, want, locked)
			}
		}
	}
	from := c.Ago(2)
	if n := c.Count(`SELECT count(*) FROM punctual.runs_between($1, $1)`, from); n != 0 {
		t.Errorf("%d runs between an instant and itself", n)
	}
}

func TestTheHistoryNamesTheHostOfAReplicaThatHasEnded(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("ran")
	c.Finish(Ended(a, domain.Succeed))
	c.Exec(`DELETE FROM punctual.replicas`)
	const ask = `SELECT coalesce(string_agg(host, ','), '') FROM punctual.run_history WHERE job = 'ran'`
	if host := Value[string](c.Fixture, ask); host == "" {
		t.Error("nobody knows who ran it")
	}
	c.Exec(`UPDATE punctual.replicas_seen SET seen_at = seen_at - interval '2 years'`)
	if n, _, err := c.ForgetOld(t.Context(), "replicas_seen"); n == 0 || err != nil {
		t.Errorf("%d replicas are forgotten, error %v", n, err)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.run_history WHERE job = 'ran' AND host IS NULL`); n != 1 {
		t.Errorf("%d runs of a replica that is forgotten", n)
	}
}

// A replica that runs for longer than the retention is not forgotten.
func TestAReplicaThatRunsIsNotForgotten(t *testing.T) {
	c := NewReplica(t)
	c.Exec(`UPDATE punctual.replicas_seen SET seen_at = now() - interval '2 years'`)
	Must(t, c.Replicas.NoteReplicas(t.Context()))
	if n, _, err := c.ForgetOld(t.Context(), "replicas_seen"); n != 0 || err != nil {
		t.Errorf("%d replicas are forgotten, error %v", n, err)
	}
}

func TestWaitingStepsAreShown(t *testing.T) {
	c := NewReplica(t)
	c.Create("etl", Steps("a", "b", "c<a,b", "d<c"))
	c.StartWorkflow("etl", "")
	waiting := func() string {
		return strings.Join(Column[string](c.Fixture, `
			SELECT step || '<' || array_to_string(waits_for, ',') FROM punctual.waiting_steps WHERE job = 'etl' ORDER BY step`), " ")
	}
	if got := waiting(); got != "c<a,b d<c" {
		t.Errorf("at the start: %q", got)
	}
	steps := c.ClaimSteps()
	c.Finish(Ended(steps["a"], domain.Succeed))
	if got := waiting(); got != "c<b d<c" {
		t.Errorf("after a: %q", got)
	}
	c.Finish(Ended(steps["b"], domain.Succeed))
	c.GoOn()
	if got := waiting(); got != "d<c" {
		t.Errorf("after b: %q", got)
	}
}
