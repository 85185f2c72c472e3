package store

import (
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// swallowed resumes a job, and says what its pause swallowed.
func (c crud) swallowed(ref string) string {
	c.t.Helper()
	rec, err := c.ResumeJob(c.t.Context(), c.tenant, ref, "")
	must(c.t, err)
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
func startingAt(at time.Time) option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Every: domain.DurationOf(time.Hour), StartsAt: domain.InstantOf(at)}
	}
}

func TestAResumeSaysWhichSlotsPassedMeanwhile(t *testing.T) {
	// pausedSince pauses a job as of an instant at which the given slot was its next one.
	pausedSince := func(c crud, ref string, since, next time.Time) {
		c.pause(ref)
		c.exec(`UPDATE punctual.jobs SET paused_at = $2 WHERE name = $1`, ref, since)
		c.setNext(c.get(ref).ID, next)
	}
	c := newCRUD(t)
	c.partitionsBack(2)
	hour := c.create("a", halfPast).NextScheduledFor.UTC().Add(-time.Hour) // its last slot
	three := "3ns from " + hour.Add(-2*time.Hour).Format(time.DateTime) + " to " + hour.Format(time.DateTime)
	pausedSince(c, "a", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := c.swallowed("a"); got != three {
		t.Errorf("the pause swallowed %s, want %s", got, three)
	}
	if got := c.swallowed("a"); got != "nothing" {
		t.Errorf("an active job is resumed: %s", got)
	}
	c.pause("a")
	if got := c.swallowed("a"); got != "nothing" {
		t.Errorf("a short pause swallowed %s", got)
	}
	if rec := c.edit("a", described("x")); rec.SkippedWhilePaused != nil {
		t.Errorf("an edit of an active job: %s", swallowedBy(rec))
	}

	c.create("often", every(time.Second))
	pausedSince(c, "often", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := c.swallowed("often"); got[:5] != "many " {
		t.Errorf("a busy job's pause swallowed %s", got)
	}
	// What an edit during the pause has recorded counts too.
	c.create("edited", startingAt(hour.Add(-100*time.Hour)))
	pausedSince(c, "edited", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	c.edit("edited", startingAt(hour.Add(-10*time.Hour)))
	if got := c.swallowed("edited"); got != three {
		t.Errorf("the pause of an edited job swallowed %s, want %s", got, three)
	}
	// A definition that says paused: false ends a pause, too.
	c.create("put", startingAt(hour.Add(-100*time.Hour)))
	pausedSince(c, "put", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	rec, _, err := c.PutJob(t.Context(), c.tenant, "put", jobs.NewJob{
		Definition: definition("put", startingAt(hour.Add(-100*time.Hour))), Paused: new(false),
	}, nil, false)
	must(t, err)
	if got := swallowedBy(rec); got != three {
		t.Errorf("the pause of a replaced job swallowed %s, want %s", got, three)
	}
	once := c.create("once", at(time.Now().Add(time.Hour)))
	pausedSince(c, "once", hour.Add(-150*time.Minute), hour.Add(-2*time.Hour))
	if got := c.swallowed("once"); got != "nothing" || once.ID != c.get("once").ID {
		t.Errorf("a one-shot fires late; its pause swallowed %s", got)
	}
}
