package jobs_test

import (
	"fmt"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// swallowed resumes a job, and says what its pause swallowed.
func swallowed(c Fixture, ref string) string {
	c.T.Helper()
	rec, err := c.Jobs.ResumeJob(c.T.Context(), c.Tenant, ref, "")
	Must(c.T, err)
	return swallowedBy(rec)
}

func swallowedBy(rec jobs.Record) string {
	s := rec.SkippedWhilePaused
	switch {
	case s == nil:
		return "nothing"
	case s.Count == nil:
		return "many from " + s.First.Format(time.DateTime) + " to " + s.Last.Format(time.DateTime)
	}
	return time.Duration(*s.Count).String() + " from " + s.First.Format(time.DateTime) + " to " + s.Last.Format(time.DateTime)
}

// startingAt gives a job an hourly schedule from an instant on.
func startingAt(at time.Time) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(time.Hour), StartsAt: jobspec.InstantOf(at)}
	}
}

func TestAResumeSaysWhichSlotsPassedMeanwhile(t *testing.T) {
	// pausedSince pauses a job as of an instant at which the given slot was its next one.
	pausedSince := func(c Fixture, ref string, since, next time.Time) {
		c.Pause(ref)
		c.Exec(`UPDATE punctual.jobs SET paused_at = $2 WHERE name = $1`, ref, since)
		c.SetNext(c.Get(ref).ID, next)
	}
	c := NewFixture(t)
	c.PartitionsBack(2)
	hour := c.Create("a", HalfPast).NextScheduledFor.UTC().Add(-time.Hour) // its last slot
	three := "3ns from " + hour.Add(-2*time.Hour).Format(time.DateTime) + " to " + hour.Format(time.DateTime)
	pausedSince(c, "a", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := swallowed(c, "a"); got != three {
		t.Errorf("the pause swallowed %s, want %s", got, three)
	}
	if got := swallowed(c, "a"); got != "nothing" {
		t.Errorf("an active job is resumed: %s", got)
	}
	c.Pause("a")
	if got := swallowed(c, "a"); got != "nothing" {
		t.Errorf("a short pause swallowed %s", got)
	}
	if rec := c.Edit("a", Described("x")); rec.SkippedWhilePaused != nil {
		t.Errorf("an edit of an active job: %s", swallowedBy(rec))
	}

	c.Create("often", Every(time.Second))
	pausedSince(c, "often", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := swallowed(c, "often"); got[:5] != "many " {
		t.Errorf("a busy job's pause swallowed %s", got)
	}
	// What an edit during the pause has recorded counts too.
	c.Create("edited", startingAt(hour.Add(-100*time.Hour)))
	pausedSince(c, "edited", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	c.Edit("edited", startingAt(hour.Add(-10*time.Hour)))
	if got := swallowed(c, "edited"); got != three {
		t.Errorf("the pause of an edited job swallowed %s, want %s", got, three)
	}
	// A definition that says paused: false ends a pause, too.
	c.Create("put", startingAt(hour.Add(-100*time.Hour)))
	pausedSince(c, "put", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	rec, _, err := c.Jobs.PutJob(t.Context(), c.Tenant, "put", jobs.NewJob{
		Definition: Definition("put", startingAt(hour.Add(-100*time.Hour))), Paused: new(false),
	}, nil, false)
	Must(t, err)
	if got := swallowedBy(rec); got != three {
		t.Errorf("the pause of a replaced job swallowed %s, want %s", got, three)
	}
	once := c.Create("once", At(time.Now().Add(time.Hour)))
	pausedSince(c, "once", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := swallowed(c, "once"); got != "nothing" || once.ID != c.Get("once").ID {
		t.Errorf("a one-shot fires late; its pause swallowed %s", got)
	}
}

// A pause that ends by itself says in its entry of the audit log which slots it swallowed, and so does a resume.
func TestTheEntryOfAResumeSaysWhichSlotsPassed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c Fixture){
		"the pause is over": func(c Fixture) {
			c.Exec(`UPDATE punctual.jobs SET paused_until = now()`)
			resumed, _, err := c.Jobs.ResumeDue(t.Context())
			if Must(t, err); resumed != 1 {
				t.Errorf("%d jobs are resumed", resumed)
			}
		},
		"somebody resumes it": func(c Fixture) { c.Resumed("a") },
	} {
		t.Run(name, func(t *testing.T) {
			c := NewFixture(t)
			c.PartitionsBack(2)
			job := c.Create("a", HalfPast)
			hour := job.NextScheduledFor.UTC().Add(-time.Hour) // its last slot
			c.Pause("a")
			c.SetNext(job.ID, hour.Add(-2*time.Hour))
			end(c)
			slots := fmt.Sprintf(`{"first":%q,"last":%q,"count":3}`,
				hour.Add(-2*time.Hour).Format(time.RFC3339), hour.Format(time.RFC3339))
			if n := c.Count(`SELECT count(*) FROM punctual.audit_log
				WHERE action = 'job.resume' AND after ->> 'skipped_while_paused' = $1`, slots); n != 1 {
				t.Errorf("%d entries say %s", n, slots)
			}
		})
	}
}
