package store

import (
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

func (c crud) pause(ref string) jobs.Record {
	c.t.Helper()
	return c.pauseWith(ref, "", nil)
}

func (c crud) pauseWith(ref, note string, until *time.Time) jobs.Record {
	c.t.Helper()
	job, err := c.Jobs.PauseJob(c.t.Context(), c.tenant, ref, note, until)
	c.must(err)
	return job
}

func (c crud) resumed(ref string) jobs.Record {
	c.t.Helper()
	job, err := c.Jobs.ResumeJob(c.t.Context(), c.tenant, ref, "")
	c.must(err)
	return job
}

func TestResumeAccountsForTheSlotsThatPassed(t *testing.T) {
	for _, test := range []struct {
		name    string
		job     []option
		ago     time.Duration // since the next slot was due at the resume; 0: the slot is still to come
		history []string
		state   domain.JobState
	}{
		{name: "none has passed", state: domain.JobActive},
		{
			name: "those of a recurring job are one skip", ago: 5 * time.Hour,
			history: []string{"schedule skipped paused x6"}, state: domain.JobActive,
		},
		{
			name: "also when the policy wants to run each of them",
			job:  []option{missed(domain.MissedFireAll)},
			ago:  5 * time.Hour, history: []string{"schedule skipped paused x6"}, state: domain.JobActive,
		},
		{
			name: "a one-shot fires late", job: []option{delay(time.Hour)}, ago: time.Second,
			history: []string{"catchup pending late"}, state: domain.JobCompleted,
		},
		{
			name: "a one-shot of days ago fires whatever the policy for missed slots",
			job:  []option{delay(time.Hour), missed(domain.MissedSkip), window(time.Hour)},
			ago:  240 * time.Hour, history: []string{"catchup pending late"}, state: domain.JobCompleted,
		},
		{name: "the last slot of a bounded job", job: []option{func(d *domain.Definition) {
			d.Schedule.EndsAt = domain.InstantOf(time.Now().Add(time.Hour))
		}}, ago: 2 * time.Hour, history: []string{"schedule skipped paused x3"}, state: domain.JobActive},
		{name: "a job without a schedule has none", job: []option{never}, state: domain.JobActive},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCRUD(t)
			job := c.create("a", test.job...)
			paused := c.pause("a")
			if paused.State != domain.JobPaused || paused.NextRunAt != nil || paused.PausedAt == nil || paused.Version != 2 {
				t.Fatalf("paused it is %+v", paused)
			}
			if test.ago != 0 {
				c.slotAgo(job.ID, test.ago)
			}
			after := c.resumed("a")
			c.wantHistory(job.ID, test.history...)
			if after.State != test.state || after.Version != 3 || after.PausedAt != nil {
				t.Errorf("resumed it is %+v", after)
			}
			if after.NextRunAt != nil && after.NextRunAt.Before(after.UpdatedAt) {
				t.Errorf("the next slot is due at %v, in the past", after.NextRunAt)
			}
			if n := c.count(`SELECT count(*) FROM punctual.runs WHERE status = 'pending'`); n != c.ready(job.ID) {
				t.Errorf("%d runs are pending and %d ready", n, c.ready(job.ID))
			}
		})
	}
}

func TestAOneShotDueWhilePausedKeepsTheIDOfItsSlot(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a", delay(time.Hour))
	c.pause("a")
	slot := c.slotAgo(job.ID, time.Minute)
	after := c.resumed("a")
	if after.LastRun == nil || after.LastRun.ID != domain.SlotRunID(job.ID, slot) ||
		!after.LastRun.ScheduledFor.Equal(slot) {
		t.Errorf("its run is %+v", after.LastRun)
	}
	if !c.woken() {
		t.Error("the tick loop was not told")
	}
}

func TestAPausedJobThatIsMovedRecordsWhatPassed(t *testing.T) {
	for name, kind := range map[string]option{
		"recurring": every(time.Hour),
		"one-shot":  delay(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCRUD(t)
			job := c.create("a", kind)
			c.pause("a")
			c.slotAgo(job.ID, time.Second)
			after := c.edit("a", at(time.Now().Add(time.Hour)))
			c.wantHistory(job.ID, "schedule skipped paused x1")
			if after.State != domain.JobPaused {
				t.Errorf("it is %s", after.State)
			}
		})
	}
}

func TestPauseJob(t *testing.T) {
	t.Run("what is due already runs", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a")
		c.slotAgo(job.ID, time.Second)
		c.pause("a")
		c.wantHistory(job.ID, "schedule pending")
	})
	t.Run("pausing again changes note and until, and writes nothing when they are the same", func(t *testing.T) {
		c := newCRUD(t)
		ctx := t.Context()
		c.create("a")
		first := c.pause("a")
		until := time.Now().Add(time.Hour)
		for range 2 {
			job, err := c.Jobs.PauseJob(ctx, c.tenant, "a", "holiday", &until)
			if err != nil || job.PauseNote != "holiday" || !sameInstant(job.PausedUntil, &until) || job.Version != 3 ||
				!sameInstant(job.PausedAt, first.PausedAt) {
				t.Errorf("%+v, %v", job, err)
			}
		}
	})
	t.Run("resuming an active job does nothing", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		if job := c.resumed("a"); job.Version != 1 {
			t.Errorf("version %d", job.Version)
		}
	})
	t.Run("a completed job can be neither paused nor resumed", func(t *testing.T) {
		c := newCRUD(t)
		c.complete(c.create("a", delay(time.Hour)).ID)
		_, err := c.Jobs.PauseJob(t.Context(), c.tenant, "a", "", nil)
		wantError(t, err, ErrState)
		_, err = c.Jobs.ResumeJob(t.Context(), c.tenant, "a", "")
		wantError(t, err, ErrState)
	})
	t.Run("a one-shot that is due cannot be paused any more", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", delay(time.Hour))
		c.slotAgo(job.ID, time.Second)
		_, err := c.Jobs.PauseJob(t.Context(), c.tenant, "a", "", nil)
		wantError(t, err, ErrState)
		if got := c.get("a"); got.State != domain.JobActive || got.NextRunAt == nil {
			t.Errorf("it is %+v", got)
		}
	})
}

func TestEachJobIsResumedOnceWhenItsPauseIsOver(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for name, until := range map[string]*time.Time{"over": &past, "over-too": &past, "later": &future, "open": nil} {
		c.create(name)
		c.pauseWith(name, "", until)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 4 {
		wg.Go(func() {
			n, _, err := c.Jobs.ResumeDue(ctx)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	wg.Wait()
	if total += c.resumeDue(); total != 2 {
		t.Errorf("%d were resumed", total)
	}
	active, _, err := c.Jobs.ListJobs(ctx, c.tenant, jobs.Filter{State: domain.JobActive})
	if err != nil || len(active) != 2 {
		t.Errorf("%d are active (%v)", len(active), err)
	}
}

func TestAPausedJobSaysWhoPausedIt(t *testing.T) {
	c := newCRUD(t)
	_, key, err := c.Tenants.CreateKey(t.Context(), c.tenant, tenants.NewKey{Name: "bob", Role: "editor"})
	c.must(err)
	byBob := "key bob (" + key.ID.String() + ")"
	bob := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Key, Name: key.ID.String(), KeyName: "bob"})
	eve := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Token, Name: "eve"})
	desk := c.For(c.tenant)
	paused := true
	ways := map[string]func(name string){
		"by itself": func(name string) {
			c.create(name)
			_, err := c.Jobs.PauseJob(bob, c.tenant, name, "", nil)
			c.must(err)
		},
		"created": func(name string) {
			_, err := desk.CreateJob(bob, jobs.NewJob{Definition: definition(name), Paused: &paused})
			c.must(err)
		},
		"replaced": func(name string) {
			c.create(name)
			_, _, err := c.Jobs.PutJob(
				bob, c.tenant, name, jobs.NewJob{Definition: definition(name), Paused: &paused}, nil, false,
			)
			c.must(err)
		},
		"in a batch": func(name string) {
			_, err := desk.CreateJobs(bob, []jobs.NewJob{
				{Definition: definition(name), Paused: &paused}, {Definition: definition(name + "-active")},
			}, jobs.ConflictError)
			c.must(err)
		},
		"with many": func(name string) {
			c.create(name, labelled("team", "x"))
			_, err := desk.StartJobs(bob, changing(jobs.PauseMany, jobs.Filter{NamePrefix: name}))
			c.must(err)
			c.work()
		},
		"again": func(name string) {
			c.create(name)
			_, err := c.Jobs.PauseJob(eve, c.tenant, name, "", nil)
			c.must(err)
			_, err = c.Jobs.PauseJob(bob, c.tenant, name, "for longer", nil)
			must(c.t, err)
		},
	}
	for way, pause := range ways {
		name := strings.ReplaceAll(way, " ", "-")
		pause(name)
		if job := c.get(name); job.State != domain.JobPaused || job.PausedBy != byBob {
			t.Errorf("paused %s: %s by %q", way, job.State, job.PausedBy)
		}
		edited, _, err := c.Jobs.PutJob(eve, c.tenant, name, jobs.NewJob{Definition: definition(name, described("new"))}, nil, false)
		must(c.t, err)
		if edited.PausedBy != byBob {
			t.Errorf("paused %s, then edited: by %q", way, edited.PausedBy)
		}
		if job := c.resumed(name); job.PausedBy != "" {
			t.Errorf("paused %s, then resumed: by %q", way, job.PausedBy)
		}
	}
	c.wantCount(0, "jobs that are not paused say who paused them",
		`SELECT count(*) FROM punctual.jobs WHERE paused_by IS NOT NULL`)
}
