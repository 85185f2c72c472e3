package store

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A job whose gate was lost, in a restore or by hand, is not due for ever.
func TestALostGateIsMended(t *testing.T) {
	c := newClaimer(t)
	c.dueNow("slots", forbid)
	c.create("by-hand", forbid, never)
	c.trigger("by-hand")
	c.exec(`DELETE FROM punctual.exclusive`)
	if b := c.claim(10, false); len(b.Runs) != 0 {
		t.Error("a slot was claimed without a gate")
	}
	if a := c.one(c.claim(10, false)); a.Job.Name != "slots" {
		t.Errorf("claimed %s", a.Job.Name)
	}
	c.claimReady(10)
	c.exec(`UPDATE punctual.ready SET due_at = now()`)
	if a := c.one(c.claimReady(10)); a.Job.Name != "by-hand" {
		t.Errorf("claimed %s", a.Job.Name)
	}
}

// A job gets its gate while somebody triggers it: the trigger holds the job's row and must not wait for the gate,
// whose holder may be waiting for that row.
func TestATriggerDoesNotWaitForAGateThatAppeared(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a", never)
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := c.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
		return tx
	}
	do := func(tx pgx.Tx, sql string) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), sql, job.ID); err != nil {
			t.Fatal(err)
		}
	}
	edit, deletion := begin(), begin()
	do(edit, `SELECT FROM punctual.jobs WHERE id = $1 FOR NO KEY UPDATE`)
	triggered := make(chan error, 1)
	go func() {
		_, err := c.TriggerJob(t.Context(), c.tenant, "a", TriggerRequest{})
		triggered <- err
	}()
	for deadline := time.Now().Add(time.Minute); c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the trigger does not wait for the job")
		}
	}
	c.exec(`INSERT INTO punctual.exclusive (job_id) VALUES ($1)`, job.ID)
	do(deletion, `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`)
	do(edit, `UPDATE punctual.job_versions SET definition = (definition::jsonb || '{"concurrency_policy":"forbid"}')::json WHERE job_id = $1`)
	if err := edit.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-triggered:
		if !errors.Is(err, ErrState) {
			t.Errorf("error %v, want ErrState", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the trigger waits for the gate")
	}
}
