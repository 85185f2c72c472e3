package jobs_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

func TestResumeAccountsForTheSlotsThatPassed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		job     []Option
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
			job:  []Option{Missed(jobspec.MissedFireAll)},
			ago:  5 * time.Hour, history: []string{"schedule skipped paused x6"}, state: domain.JobActive,
		},
		{
			name: "a one-shot fires late", job: []Option{Delay(time.Hour)}, ago: time.Second,
			history: []string{"catchup pending late"}, state: domain.JobCompleted,
		},
		{
			name: "a one-shot of days ago fires whatever the policy for missed slots",
			job:  []Option{Delay(time.Hour), Missed(jobspec.MissedSkip), Window(time.Hour)},
			ago:  240 * time.Hour, history: []string{"catchup pending late"}, state: domain.JobCompleted,
		},
		{name: "the last slot of a bounded job", job: []Option{func(d *jobspec.Definition) {
			d.Schedule.EndsAt = jobspec.InstantOf(time.Now().Add(time.Hour))
		}}, ago: 2 * time.Hour, history: []string{"schedule skipped paused x3"}, state: domain.JobActive},
		{name: "a job without a schedule has none", job: []Option{Never}, state: domain.JobActive},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("a", test.job...)
			paused := c.Pause("a")
			if paused.State != domain.JobPaused || paused.NextRunAt != nil || paused.PausedAt == nil || paused.Version != 2 {
				t.Fatalf("paused it is %+v", paused)
			}
			if test.ago != 0 {
				c.SlotAgo(job.ID, test.ago)
			}
			after := c.Resumed("a")
			c.WantHistory(job.ID, test.history...)
			if after.State != test.state || after.Version != 3 || after.PausedAt != nil {
				t.Errorf("resumed it is %+v", after)
			}
			if after.NextRunAt != nil && after.NextRunAt.Before(after.UpdatedAt) {
				t.Errorf("the next slot is due at %v, in the past", after.NextRunAt)
			}
			if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE status = 'pending'`); n != c.Ready(job.ID) {
				t.Errorf("%d runs are pending and %d ready", n, c.Ready(job.ID))
			}
		})
	}
}

func TestAOneShotDueWhilePausedKeepsTheIDOfItsSlot(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a", Delay(time.Hour))
	c.Pause("a")
	slot := c.SlotAgo(job.ID, time.Minute)
	after := c.Resumed("a")
	if after.LastRun == nil || after.LastRun.ID != domain.SlotRunID(job.ID, slot) ||
		!after.LastRun.ScheduledFor.Equal(slot) {
		t.Errorf("its run is %+v", after.LastRun)
	}
	if !c.Woken() {
		t.Error("the tick loop was not told")
	}
}

func TestAPausedJobThatIsMovedRecordsWhatPassed(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]Option{
		"recurring": Every(time.Hour),
		"one-shot":  Delay(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("a", kind)
			c.Pause("a")
			c.SlotAgo(job.ID, time.Second)
			after := c.Edit("a", At(time.Now().Add(time.Hour)))
			c.WantHistory(job.ID, "schedule skipped paused x1")
			if after.State != domain.JobPaused {
				t.Errorf("it is %s", after.State)
			}
		})
	}
}

func TestPauseJob(t *testing.T) {
	t.Parallel()
	t.Run("what is due already runs", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a")
		c.SlotAgo(job.ID, time.Second)
		c.Pause("a")
		c.WantHistory(job.ID, "schedule pending")
	})
	t.Run("pausing again changes note and until, and writes nothing when they are the same", func(t *testing.T) {
		c := NewFixture(t)
		ctx := t.Context()
		c.Create("a")
		first := c.Pause("a")
		until := time.Now().Add(time.Hour)
		for range 2 {
			job, err := c.Jobs.PauseJob(ctx, c.Tenant, "a", "holiday", &until)
			if err != nil || job.PauseNote != "holiday" || !SameInstant(job.PausedUntil, &until) || job.Version != 3 ||
				!SameInstant(job.PausedAt, first.PausedAt) {
				t.Errorf("%+v, %v", job, err)
			}
		}
	})
	t.Run("resuming an active job does nothing", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		if job := c.Resumed("a"); job.Version != 1 {
			t.Errorf("version %d", job.Version)
		}
	})
	t.Run("a completed job can be neither paused nor resumed", func(t *testing.T) {
		c := NewFixture(t)
		c.Complete(c.Create("a", Delay(time.Hour)).ID)
		_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "a", "", nil)
		WantError(t, err, store.ErrState)
		_, err = c.Jobs.ResumeJob(t.Context(), c.Tenant, "a", "")
		WantError(t, err, store.ErrState)
	})
	t.Run("a one-shot that is due cannot be paused any more", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a", Delay(time.Hour))
		c.SlotAgo(job.ID, time.Second)
		_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "a", "", nil)
		WantError(t, err, store.ErrState)
		if got := c.Get("a"); got.State != domain.JobActive || got.NextRunAt == nil {
			t.Errorf("it is %+v", got)
		}
	})
}

func TestEachJobIsResumedOnceWhenItsPauseIsOver(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for name, until := range map[string]*time.Time{"over": &past, "over-too": &past, "later": &future, "open": nil} {
		c.Create(name)
		c.PauseWith(name, "", until)
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
	if total += c.ResumeDue(); total != 2 {
		t.Errorf("%d were resumed", total)
	}
	active, _, err := c.Jobs.ListJobs(ctx, c.Tenant, jobs.Filter{State: domain.JobActive})
	if err != nil || len(active) != 2 {
		t.Errorf("%d are active (%v)", len(active), err)
	}
}

func TestAPausedJobSaysWhoPausedIt(t *testing.T) {
	c := NewFixture(t)
	_, key, err := c.Tenants.CreateKey(t.Context(), c.Tenant, tenants.NewKey{Name: "bob", Role: "editor"})
	c.Must(err)
	byBob := "key bob (" + key.ID.String() + ")"
	bob := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Key, Name: key.ID.String(), KeyName: "bob"})
	eve := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Token, Name: "eve"})
	desk := c.For(c.Tenant)
	paused := true
	ways := map[string]func(name string){
		"by itself": func(name string) {
			c.Create(name)
			_, err := c.Jobs.PauseJob(bob, c.Tenant, name, "", nil)
			c.Must(err)
		},
		"created": func(name string) {
			_, err := desk.CreateJob(bob, jobs.NewJob{Definition: Definition(name), Paused: &paused})
			c.Must(err)
		},
		"replaced": func(name string) {
			c.Create(name)
			_, _, err := c.Jobs.PutJob(
				bob, c.Tenant, name, jobs.NewJob{Definition: Definition(name), Paused: &paused}, nil, false,
			)
			c.Must(err)
		},
		"in a batch": func(name string) {
			_, err := desk.CreateJobs(bob, []jobs.NewJob{
				{Definition: Definition(name), Paused: &paused}, {Definition: Definition(name + "-active")},
			}, jobs.ConflictError)
			c.Must(err)
		},
		"with many": func(name string) {
			c.Create(name, Labelled("team", "x"))
			_, err := desk.StartJobs(bob, Changing(jobs.PauseMany, jobs.Filter{NamePrefix: name}))
			c.Must(err)
			c.Work()
		},
		"again": func(name string) {
			c.Create(name)
			_, err := c.Jobs.PauseJob(eve, c.Tenant, name, "", nil)
			c.Must(err)
			_, err = c.Jobs.PauseJob(bob, c.Tenant, name, "for longer", nil)
			Must(c.T, err)
		},
	}
	for way, pause := range ways {
		name := strings.ReplaceAll(way, " ", "-")
		pause(name)
		if job := c.Get(name); job.State != domain.JobPaused || job.PausedBy != byBob {
			t.Errorf("paused %s: %s by %q", way, job.State, job.PausedBy)
		}
		edited, _, err := c.Jobs.PutJob(eve, c.Tenant, name, jobs.NewJob{Definition: Definition(name, Described("new"))}, nil, false)
		Must(c.T, err)
		if edited.PausedBy != byBob {
			t.Errorf("paused %s, then edited: by %q", way, edited.PausedBy)
		}
		if job := c.Resumed(name); job.PausedBy != "" {
			t.Errorf("paused %s, then resumed: by %q", way, job.PausedBy)
		}
	}
	c.WantCount(0, "jobs that are not paused say who paused them",
		`SELECT count(*) FROM punctual.jobs WHERE paused_by IS NOT NULL`)
}
