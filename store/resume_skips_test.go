package store

import (
	"fmt"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// swallowed resumes a job, and says what its pause swallowed.
func (c crud) swallowed(ref string) string {
	c.t.Helper()
	rec, err := c.Jobs.ResumeJob(c.t.Context(), c.tenant, ref, "")
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
	rec, _, err := c.Jobs.PutJob(t.Context(), c.tenant, "put", jobs.NewJob{
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

// A pause that ends by itself says in its entry of the audit log which slots it swallowed, and so does a resume.
func TestTheEntryOfAResumeSaysWhichSlotsPassed(t *testing.T) {
	for name, end := range map[string]func(c crud){
		"the pause is over": func(c crud) {
			c.exec(`UPDATE punctual.jobs SET paused_until = now()`)
			resumed, _, err := c.Jobs.ResumeDue(t.Context())
			if must(t, err); resumed != 1 {
				t.Errorf("%d jobs are resumed", resumed)
			}
		},
		"somebody resumes it": func(c crud) { c.resumed("a") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCRUD(t)
			c.partitionsBack(2)
			job := c.create("a", halfPast)
			hour := job.NextScheduledFor.UTC().Add(-time.Hour) // its last slot
			c.pause("a")
			c.setNext(job.ID, hour.Add(-2*time.Hour))
			end(c)
			slots := fmt.Sprintf(`{"first":%q,"last":%q,"count":3}`,
				hour.Add(-2*time.Hour).Format(time.RFC3339), hour.Format(time.RFC3339))
			if n := c.count(`SELECT count(*) FROM punctual.audit_log
				WHERE action = 'job.resume' AND after ->> 'skipped_while_paused' = $1`, slots); n != 1 {
				t.Errorf("%d entries say %s", n, slots)
			}
		})
	}
}
