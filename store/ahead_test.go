package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/letters"
)

// ordered counts the runs of backfills and replays that wait in ready.
func (c crud) ordered() int {
	return c.count(`SELECT count(*)
		FROM punctual.ready y
		JOIN punctual.runs r ON r.id = y.run_id
		WHERE r.trigger IN ('backfill', 'replay')`)
}

// hours orders a backfill of the last n hours of a new hourly job.
func (c crud) hours(name string, n, perSecond int) (job uuid.UUID, o letters.Operation) {
	c.t.Helper()
	job = c.create(name, every(time.Hour), overlapping(domain.PolicyAllow)).ID
	to := time.Now().Truncate(time.Hour)
	return job, c.backfill(letters.BackfillRequest{
		Job: name, From: to.Add(-time.Duration(n-1) * time.Hour), To: to, MaxPerSecond: perSecond,
	})
}

func TestWhatIsOrderedWaitsInItsOperation(t *testing.T) {
	for name, order := range map[string]func(c claimer){
		"backfill": func(c claimer) { c.hours("many", 200, 50) },
		"replay": func(c claimer) {
			c.create("many")
			c.die("many", 30)
			c.start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 50})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.limit("max_runs_per_second", 2)
			order(c)
			for range 20 {
				c.nextBatch()
			}
			if n := c.ordered(); n != 2 {
				t.Errorf("%d ordered runs wait to be started, of a tenant that may start 2 a second", n)
			}
			c.finishAll(c.claimReady(10).Runs)
			for range 20 {
				c.nextBatch()
			}
			if n := c.ordered(); n != 2 {
				t.Errorf("%d ordered runs wait to be started, once those before have been", n)
			}
		})
	}
}

func TestAnOperationKeepsAboutASecondAhead(t *testing.T) {
	c := newClaimer(t)
	c.hours("many", 300, 20)
	for range 40 {
		c.nextBatch()
	}
	if n := c.ordered(); n < 100 || n > 105 {
		t.Errorf("%d wait to be started", n)
	}
	// Ordered runs that wait for their next attempt do not count: the operation makes further runs beside them.
	c.exec(`UPDATE punctual.ready SET due_at = now() + interval '1 h'`)
	for range 40 {
		c.nextBatch()
	}
	if n := c.ordered(); n < 200 || n > 210 {
		t.Errorf("%d wait to be started, or to be tried again", n)
	}
}

// A backfill of a job whose host cannot be reached delays no other job's backfill.
func TestOrdersThatWaitForTheirHostHoldUpOnlyTheirJob(t *testing.T) {
	c := newClaimer(t)
	down, _ := c.hours("down", 300, 20)
	for range 3 { // the first batch makes the partitions of the days that it needs
		c.nextBatch()
	}
	before := c.backfilled(down)
	for _, a := range c.claimReady(100).Runs {
		c.finish(hold(a, "breaker a.test:443", a.Lease.ClaimedAt, time.Hour))
	}
	up, o := c.hours("up", 10, 20)
	for range 20 {
		c.nextBatch()
	}
	if n := c.backfilled(down); n != before || n == 0 {
		t.Errorf("%d runs were made after %d that wait for their host", n-before, before)
	}
	if n := c.backfilled(up); n != o.Matched {
		t.Errorf("%d of %d runs were made of a job whose host can be reached", n, o.Matched)
	}
}

func TestRetriesAndTriggersAreNotBehindWhatIsOrdered(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.hours("many", 300, 0)
	for range 5 {
		c.nextBatch()
	}
	by := c.create("by-hand", never)
	c.trigger("by-hand")
	if a := c.one(c.claimWaiting(domain.WorkReady, 100)); a.Job.ID != by.ID || a.Lease.Work != domain.WorkReady {
		t.Errorf("claimed before the trigger: %+v", a)
	}
	orders := c.claimWaiting(domain.WorkOrdered, 100)
	if len(orders.Runs) != 100 || orders.Runs[0].Job.ID != job || orders.Runs[0].Lease.Work != domain.WorkOrdered ||
		len(orders.Full) != 1 {
		t.Fatalf("%d of the backfill, full: %v", len(orders.Runs), orders.Full)
	}
	// An ordered run stays an ordered run, however often it is tried.
	c.finish(failed(orders.Runs[0]))
	c.exec(`DELETE FROM punctual.ready WHERE run_id <> $1`, orders.Runs[0].RunID)
	c.exec(`UPDATE punctual.ready SET due_at = now()`)
	if b := c.claimWaiting(domain.WorkReady, 100); len(b.Runs) != 0 {
		t.Error("the retry of an ordered run waits among those of others")
	}
	c.one(c.claimWaiting(domain.WorkOrdered, 100))
}
