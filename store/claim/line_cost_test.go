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
	c.Exec(`CREATE SEQUENCE public.calls`)
	c.Exec(`ALTER FUNCTION punctual.runs_of(uuid[]) RENAME TO runs_of_uncounted`)
	c.Exec(`CREATE FUNCTION punctual.runs_of(ids uuid[]) RETURNS SETOF punctual.runs LANGUAGE plpgsql STABLE ROWS 10 AS $$
		BEGIN
		    PERFORM nextval('public.calls');
		    RETURN QUERY SELECT * FROM punctual.runs_of_uncounted(ids);
		END $$`)
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
	before := c.Count(`SELECT last_value FROM public.calls`)
	c.Exec(`UPDATE punctual.schedules SET next_run_at = now() - interval '10 s'`)
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE waits = 'turn'`)
	c.Claim(100, false)
	c.ClaimReady(100)
	if calls := c.Count(`SELECT last_value FROM public.calls`) - before; calls > lines {
		t.Errorf("two claims looked runs up %d times, of %d that wait", calls, waiting())
	}
}
