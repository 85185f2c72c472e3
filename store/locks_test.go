package store_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/forecast"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/days"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Runs are kept for years. No statement locks more than with a week of days.
//
// No read, claim or finish. Every partition that a statement names costs ten locks, and the lock table is the whole
// cluster's.
//
//prove:data
func TestLocksDoNotGrowWithTheDaysThatAreKept(t *testing.T) {
	t.Parallel()
	pgtest.Exhaustive(t, "it makes tables of 400 days")
	days := []int{8, 98, 400}
	few, many := days[len(days)-2], days[len(days)-1]
	counts := map[int]map[string]int{}
	for _, kept := range days {
		counts[kept] = locksOver(t, kept)
	}
	for _, what := range slices.Sorted(maps.Keys(counts[many])) {
		t.Logf("%-40s %5d %5d %5d", what, counts[days[0]][what], counts[few][what], counts[many][what])
		// Tidying retires a day only where one is past its retention.
		if a, b := counts[few][what], counts[many][what]; b > a && what != "chore: tidying" {
			t.Errorf("%s: %d locks with %d days, %d with %d", what, a, few, b, many)
		}
		if n := counts[many][what]; n > 350 {
			t.Errorf("%s: %d locks", what, n)
		}
	}
}

// locksOver does all that a replica does in a database that keeps a number of days, with a run on each of them, and
// counts the locks that each piece of work holds at once.
func locksOver(t *testing.T, kept int) map[string]int {
	t.Helper()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	for day := 2; day < kept-7; day++ {
		c.Exec(`SELECT punctual.create_partitions(d, d) FROM (SELECT (now() AT TIME ZONE 'UTC')::date - $1::int) d(d)`, day)
	}
	daily := c.Create("daily", Every(24*time.Hour))
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, status,
			trigger)
		SELECT (left(punctual.partition_bound(d::date)::text, 14) || '8' || substr(gen_random_uuid()::text, 16))::uuid,
			$1, d, d, d, 1, 1, 5, 'succeeded', 'schedule'
		FROM generate_series(date_trunc('day', now(), 'UTC') - ($2 - 8) * interval '1 day', now(), interval '1 day') d`,
		daily.ID, kept)
	c.Close()
	meter, through := pgtest.NewLockMeter(t, pgtest.TCP(t, pgtest.Server(t), dsn))
	w := busy{Replica: AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: through, MaxConns: 2, Retention: 365 * 24 * time.Hour, Master: pgtest.Master(t),
	})), kept: kept, locks: map[string]int{}, meter: meter}
	w.read()
	w.write()
	w.dispatch()
	w.tidy()
	return w.locks
}

// busy counts the locks of the work that it does.
type busy struct {
	Replica
	kept  int // days
	meter *pgtest.LockMeter
	locks map[string]int
}

// counts does a piece of work, and remembers the most locks that it held at once.
func (b busy) counts(what string, work func() error) {
	b.T.Helper()
	b.meter.Most()
	if err := work(); err != nil {
		b.T.Errorf("%s: %v", what, err)
	}
	n, statements := b.meter.Most()
	if n > 350 && b.locks[what] <= 350 {
		b.T.Logf("%s: %d locks by\n%s", what, n, statements)
	}
	b.locks[what] = max(b.locks[what], n)
}

// read reads what the API shows.
func (b busy) read() {
	ctx, yes := b.T.Context(), true
	b.counts("a target's call", func() error {
		a := b.Accepted("async")
		b.MustBeat(a, `{"at": 1}`)
		_, err := b.Runs.CompleteRun(ctx, a.RunID, a.RunToken, nil)
		return err
	})
	job := b.Create("new")
	rare := b.Create("rare")
	now := b.Clock()
	past, since := now.Add(-20*24*time.Hour), now.Add(-28*24*time.Hour)
	for what, f := range map[string]runs.Filter{
		"all": {}, "full": {Page: pg.Page{Limit: 500}}, "dead": {Status: domain.StatusDead},
		"pending": {Status: domain.StatusPending}, "running": {Status: domain.StatusRunning},
		"of a trigger": {Trigger: domain.TriggerReplay}, "late": {Late: &yes}, "of a job": {JobID: &job.ID},
		"of a name": {Job: "new"}, "of a reason": {JobID: &job.ID, Reason: domain.ReasonTimeout},
		"of labels": {Labels: map[string]string{"a": "b"}}, "before": {To: &past}, "since": {From: &since},
		"between": {From: &since, To: &past},
	} {
		b.counts("runs "+what, func() error { _, _, err := b.Runs.ListRuns(ctx, 1, f); return err })
	}
	page, next, err := b.Runs.ListRuns(ctx, 1, runs.Filter{JobID: &job.ID})
	if (next != "") != (b.kept > runs.MostDays) || len(page) > 0 || err != nil {
		b.T.Errorf("with %d days a page of a job without runs has %d and goes on at %q, %v", b.kept, len(page), next, err)
	}
	_, next, err = b.Runs.ListRuns(ctx, 1, runs.Filter{JobID: &job.ID, Page: pg.Page{Cursor: next}})
	if next != "" || err != nil {
		b.T.Errorf("its next page goes on at %q, %v", next, err)
	}
	for what, f := range map[string]jobs.Filter{
		"all": {}, "with recent runs": {Recent: 20}, "completed": {State: domain.JobCompleted},
	} {
		b.counts("jobs "+what, func() error { _, _, err := b.Jobs.ListJobs(ctx, 1, f); return err })
	}
	for _, name := range []string{"new", rare.ID.String(), "daily"} {
		b.counts("a job", func() error { _, err := b.Jobs.GetJob(ctx, 1, name); return err })
		b.counts("stats", func() error { _, err := b.Runs.JobStats(ctx, 1, name); return err })
		for _, at := range []time.Time{now, since} {
			b.counts("explain", func() error {
				_, err := b.History.ExplainJob(ctx, 1, name, func(*time.Location) (time.Time, error) { return at, nil })
				return err
			})
		}
	}
	b.counts("dead letters", func() error {
		_, _, err := b.Letters.ListDeadLetters(ctx, 1, letters.DeadLetterFilter{})
		return err
	})
	b.counts("groups of dead letters", func() error {
		_, _, err := b.Letters.ListGroups(ctx, 1, letters.DeadLetterFilter{})
		return err
	})
	b.counts("queues", func() error { _, _, err := b.Fleet.QueueDepths(ctx, 1); return err })
	b.counts("a freeze", func() error { _, err := b.Freezes.FreezeState(ctx, 1); return err })
	b.counts("a forecast", func() error {
		_, err := b.Jobs.Forecast(ctx, 1, forecast.Window{From: now, To: now.Add(time.Hour), Step: time.Minute})
		return err
	})
	b.counts("metrics", func() error {
		collect(store.Collector{b.Store, func() map[int32]scheduler.Punctual { return nil }})
		return nil
	})
}

// collect collects metrics.
func collect(c prometheus.Collector) {
	metrics := make(chan prometheus.Metric, 10_000)
	c.Collect(metrics)
	close(metrics)
}

// write does what callers ask for.
func (b busy) write() {
	ctx := b.T.Context()
	b.counts("a new job", func() error { b.Create("written", Every(24*time.Hour)); return nil })
	b.counts("a trigger", func() error { b.Trigger("written"); return nil })
	b.counts("an edit", func() error { b.Edit("written", Described("x")); return nil })
	b.counts("a pause", func() error { b.Pause("written"); return nil })
	b.counts("a resume", func() error { b.Resumed("written"); return nil })
	b.counts("a cancel", func() error { b.Cancel(b.Trigger("written").ID); return nil })
	b.counts("a deletion", func() error { b.DeleteJob("written"); return nil })
	b.Create("dying")
	dead := b.Die("dying", 3)
	b.counts("overview", func() error { _, err := b.Overview.Overview(ctx, 1); return err })
	b.counts("failing jobs", func() error { _, err := b.Overview.FailingJobs(ctx, 1); return err })
	b.counts("overdue jobs", func() error { _, err := b.Overview.OverdueJobs(ctx, 1); return err })
	b.counts("a replay", func() error { b.Replay(dead[0]); return nil })
	b.counts("an operation", func() error {
		b.Start(letters.BulkRequest{Kind: letters.OperationReplay})
		b.NextBatch()
		return nil
	})
	b.counts("a backfill", func() error {
		from := b.Clock().Add(-20 * 24 * time.Hour)
		r := letters.BackfillRequest{Job: "daily", From: from, To: b.Clock(), Rerun: true}
		_, err := b.Letters.CountBackfill(ctx, b.Plan(letters.BackfillRequest{Job: "daily", From: from, To: b.Clock()}))
		b.Backfill(r)
		for range 4 {
			b.NextBatch()
		}
		return err
	})
}

// dispatch does what the loops do.
func (b busy) dispatch() {
	ctx := b.T.Context()
	b.Many(30, "due", 0)
	b.Create("gated", Every(time.Minute), Overlapping(jobspec.PolicyForbid))
	b.Trigger("gated")
	var outcomes []domain.Outcome
	b.counts("a claim", func() error {
		for _, batch := range []domain.Batch{b.Claim(10, false), b.Claim(10, true)} {
			for i, a := range batch.Runs {
				if i == 0 {
					outcomes = append(outcomes, Failed(a))
				} else {
					outcomes = append(outcomes, Succeeded(a))
				}
			}
		}
		return nil
	})
	b.counts("a claim of what waits", func() error {
		for _, a := range b.ClaimReady(10).Runs {
			outcomes = append(outcomes, Succeeded(a))
		}
		return nil
	})
	b.counts("a finish of one", func() error { b.Finish(outcomes[1]); return nil })
	b.counts("a finish", func() error { b.Finish(outcomes...); return nil })
	b.counts("a claim of ordered work", func() error { b.ClaimWaiting(domain.WorkOrdered, 10); return nil })
	b.counts("what is due next", func() error {
		_, err := b.Claims.NextDue(ctx, scheduler.LookInto{{b.Queue}, {b.Queue}, {b.Queue}, {b.Queue}}, false)
		return err
	})
	b.counts("a heartbeat", func() error { _, err := b.Replicas.Renew(ctx, b.ReplicaID, scheduler.Condition{}); return err })
	b.Claim(10, false)
	b.Lose(b.ReplicaID)
	b.counts("a recovery", func() error { b.Recover(); return nil })
}

// tidy does the chores.
func (b busy) tidy() {
	ctx := b.T.Context()
	for _, chore := range b.Chores() {
		b.counts("chore: "+chore.Name, func() error { _, _, err := chore.Batch(ctx); return err })
	}
	m := measured(b.Fixture, 100, map[string]string{})
	b.counts("metrics of jobs", func() error { collect(m); return nil })
	b.counts("verify", func() error {
		_, err := b.History.Verify(ctx, history.VerifyOptions{From: b.Clock().Add(-3 * 24 * time.Hour), To: b.Clock()})
		return err
	})
	for kind, chore := range map[string]func(context.Context) (int, bool, error){
		"completed jobs": b.Jobs.ForgetCompletedJobs, "deleted jobs": b.Jobs.PurgeJobs, "versions": b.Jobs.ForgetVersions,
	} {
		b.Exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '2 years' WHERE state = 'deleted'`)
		b.counts("forgetting "+kind, func() error { _, _, err := chore(ctx); return err })
	}
	b.counts("making days", func() error {
		var slots []time.Time
		for day := range 20 {
			slots = append(slots, b.Clock().AddDate(-2, 0, day))
		}
		return b.Days.EnsureFor(ctx, b.DB.Chores, slots)
	})
	b.counts("retiring days", func() error {
		return days.New(b.DB, b.Archives, 10*24*time.Hour, 10*24*time.Hour, b.Options.Log).Retire(ctx)
	})
}
