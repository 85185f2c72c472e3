package claim_test

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
)

// After an outage many jobs catch up, each with a line of missed slots. What a claim looks up of them, it looks up all
// at once: with a call for each run that waits, claims of sixty such jobs kept Postgres busy and came no further.
func TestAClaimOfManyLinesLooksTheirRunsUpAtOnce(t *testing.T) {
	c := OpenReplica(t, pgtest.Clone(t))
	calls := lookUps(c)
	const lines, long = 10, 20
	for i := range lines {
		job := c.Create(fmt.Sprint("line-", i), Every(time.Second), func(d *jobspec.Definition) {
			d.Missed = jobspec.Missed{Policy: jobspec.MissedFireAll, Tolerance: jobspec.DurationOf(time.Second)}
			d.Jitter = jobspec.DurationOf(0)
		})
		c.SlotAgo(job.ID, 3*long*time.Second)
	}
	waiting := func() int { return c.Count(`SELECT count(*) FROM punctual.ready`) }
	for range 30 {
		c.Exec(`UPDATE punctual.schedules SET next_run_at = now() - interval '10 s'`)
		c.Claim(100, false)
		c.ClaimReady(100)
		if waiting() > lines*long {
			break
		}
	}
	if waiting() < lines*long {
		t.Fatalf("%d runs wait, want %d", waiting(), lines*long)
	}
	before := calls()
	c.Exec(`UPDATE punctual.schedules SET next_run_at = now() - interval '10 s'`)
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE waits = 'turn'`)
	c.Claim(100, false)
	c.ClaimReady(100)
	if n := calls() - before; n > lines {
		t.Errorf("two claims looked runs up %d times, of %d that wait", n, waiting())
	}
}

// The end of a batch of runs lets those in that wait at their gates. It looks them up at once, and none if none waits.
func TestTheEndOfManyRunsLooksThoseThatWaitUpAtOnce(t *testing.T) {
	c := OpenReplica(t, pgtest.Clone(t))
	calls := lookUps(c)
	const jobs = 10
	finish := func(waiting int) (n int) {
		t.Helper()
		runs := c.ClaimReady(100).Runs
		if len(runs) != jobs {
			t.Fatalf("%d runs start", len(runs))
		}
		if waiting > 0 {
			for i := range jobs {
				c.Trigger(fmt.Sprint("job-", i))
			}
			if b := c.ClaimReady(100); len(b.Runs) > 0 {
				t.Fatalf("%d runs pass their gates", len(b.Runs))
			}
		}
		before := calls()
		c.FinishAll(runs)
		c.WantCount(waiting, "runs have their turn", `SELECT count(*) FROM punctual.ready WHERE waits = 'turn' AND due_at <= now()`)
		return calls() - before
	}
	for i := range jobs {
		c.Create(fmt.Sprint("job-", i), Overlapping(jobspec.PolicyWait))
		c.Trigger(fmt.Sprint("job-", i))
	}
	if n := finish(jobs); n > 2 {
		t.Errorf("the end of %d runs looked runs up %d times", jobs, n)
	}
	if n := finish(0); n > 1 {
		t.Errorf("the end of runs for which none waits looked runs up %d times", n)
	}
}

// lookUps returns a function that counts the calls of runs_of.
func lookUps(c Replica) func() int {
	c.Exec(`CREATE SEQUENCE public.calls`)
	c.Exec(`ALTER FUNCTION punctual.runs_of(uuid[]) RENAME TO runs_of_uncounted`)
	c.Exec(`CREATE FUNCTION punctual.runs_of(ids uuid[]) RETURNS SETOF punctual.runs LANGUAGE plpgsql STABLE ROWS 10 AS $$
		BEGIN
		    PERFORM nextval('public.calls');
		    RETURN QUERY SELECT * FROM punctual.runs_of_uncounted(ids);
		END $$`)
	return func() int { return c.Count(`SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.calls`) }
}
