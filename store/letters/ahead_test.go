package letters_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/letters"
)

// ordered counts the runs of backfills and replays that wait in ready.
func ordered(c Fixture) int {
	return c.Count(`SELECT count(*)
		FROM punctual.ready y
		JOIN punctual.runs r ON r.id = y.run_id
		WHERE r.trigger IN ('backfill', 'replay')`)
}

// hours orders a backfill of the last n hours of a new hourly job.
func hours(c Fixture, name string, n, perSecond int) (job uuid.UUID, o letters.Operation) {
	c.T.Helper()
	job = c.Create(name, Every(time.Hour), Overlapping(jobspec.PolicyAllow)).ID
	to := time.Now().Truncate(time.Hour)
	return job, c.Backfill(letters.BackfillRequest{
		Job: name, From: to.Add(-time.Duration(n-1) * time.Hour), To: to, MaxPerSecond: perSecond,
	})
}

func TestWhatIsOrderedWaitsInItsOperation(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(c Replica){
		"backfill": func(c Replica) { hours(c.Fixture, "many", 200, 50) },
		"replay": func(c Replica) {
			c.Create("many")
			c.Die("many", 30)
			c.Start(letters.BulkRequest{Kind: letters.OperationReplay, MaxPerSecond: 50})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Limit("max_runs_per_second", 2)
			order(c)
			for range 20 {
				c.NextBatch()
			}
			if n := ordered(c.Fixture); n != 2 {
				t.Errorf("%d ordered runs wait to be started, of a tenant that may start 2 a second", n)
			}
			c.FinishAll(c.ClaimReady(10).Runs)
			for range 20 {
				c.NextBatch()
			}
			if n := ordered(c.Fixture); n != 2 {
				t.Errorf("%d ordered runs wait to be started, once those before have been", n)
			}
		})
	}
}

func TestAnOperationKeepsAboutASecondAhead(t *testing.T) {
	c := NewReplica(t)
	hours(c.Fixture, "many", 300, 20)
	for range 40 {
		c.NextBatch()
	}
	if n := ordered(c.Fixture); n < 100 || n > 105 {
		t.Errorf("%d wait to be started", n)
	}
	// Ordered runs that wait for their next attempt do not count: the operation makes further runs beside them.
	c.Exec(`UPDATE punctual.ready SET due_at = now() + interval '1 h'`)
	for range 40 {
		c.NextBatch()
	}
	if n := ordered(c.Fixture); n < 200 || n > 210 {
		t.Errorf("%d wait to be started, or to be tried again", n)
	}
}

// A backfill of a job whose host cannot be reached delays no other job's backfill.
func TestOrdersThatWaitForTheirHostHoldUpOnlyTheirJob(t *testing.T) {
	c := NewReplica(t)
	down, _ := hours(c.Fixture, "down", 300, 20)
	for range 3 { // the first batch makes the partitions of the days that it needs
		c.NextBatch()
	}
	before := c.Backfilled(down)
	for _, a := range c.ClaimReady(100).Runs {
		c.Finish(Hold(a, "breaker a.test:443", a.Lease.ClaimedAt, time.Hour))
	}
	up, o := hours(c.Fixture, "up", 10, 20)
	for range 20 {
		c.NextBatch()
	}
	if n := c.Backfilled(down); n != before || n == 0 {
		t.Errorf("%d runs were made after %d that wait for their host", n-before, before)
	}
	if n := c.Backfilled(up); n != o.Matched {
		t.Errorf("%d of %d runs were made of a job whose host can be reached", n, o.Matched)
	}
}

func TestRetriesAndTriggersAreNotBehindWhatIsOrdered(t *testing.T) {
	c := NewReplica(t)
	job, _ := hours(c.Fixture, "many", 300, 0)
	for range 5 {
		c.NextBatch()
	}
	by := c.Create("by-hand", Never)
	c.Trigger("by-hand")
	if a := c.One(c.ClaimWaiting(domain.WorkReady, 100)); a.Job.ID != by.ID || a.Lease.Work != domain.WorkReady {
		t.Errorf("claimed before the trigger: %+v", a)
	}
	orders := c.ClaimWaiting(domain.WorkOrdered, 100)
	if len(orders.Runs) != 100 || orders.Runs[0].Job.ID != job || orders.Runs[0].Lease.Work != domain.WorkOrdered ||
		len(orders.Full) != 1 {
		t.Fatalf("%d of the backfill, full: %v", len(orders.Runs), orders.Full)
	}
	// An ordered run stays an ordered run, however often it is tried.
	c.Finish(Failed(orders.Runs[0]))
	c.Exec(`DELETE FROM punctual.ready WHERE run_id <> $1`, orders.Runs[0].RunID)
	c.Exec(`UPDATE punctual.ready SET due_at = now()`)
	if b := c.ClaimWaiting(domain.WorkReady, 100); len(b.Runs) != 0 {
		t.Error("the retry of an ordered run waits among those of others")
	}
	c.One(c.ClaimWaiting(domain.WorkOrdered, 100))
}
