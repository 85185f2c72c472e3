package jobs_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestCreateJob(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	job := c.Create("a", Labelled("team", "billing"), Described("<&> ü"), func(d *jobspec.Definition) {
		d.Target.Body = json.RawMessage(`{"b":1.0,"a":"<x> & \u0007"}`)
	})
	if job.Version != 1 || job.State != domain.JobActive || job.NextRunAt == nil ||
		job.Tenant != "default" || job.LastRun != nil {
		t.Errorf("a new job is %+v", job)
	}
	if got := string(c.Get("a").Definition.Target.Body); got != `{"b":1.0,"a":"<x> & \u0007"}` {
		t.Errorf("its body came back as %s", got)
	}
	if got := c.Get(job.ID.String()).Definition.Description; got != "<&> ü" {
		t.Errorf("its description came back as %q", got)
	}

	_, err := c.TryCreate("a")
	WantError(t, err, jobs.ErrNameTaken)

	_, err = c.TryCreate("b", func(d *jobspec.Definition) { d.Queue = "nowhere" })
	if blamed := jobspec.Blame("queue", `there is no queue "nowhere"; there are: default`); !errors.Is(err, blamed) {
		t.Errorf("an unknown queue: %v", err)
	}

	paused := true
	p, err := c.For(c.Tenant).CreateJob(ctx, jobs.NewJob{Definition: Definition("paused"), Paused: &paused})
	if err != nil || p.State != domain.JobPaused || p.NextRunAt != nil || p.PausedAt == nil {
		t.Errorf("a job created paused is %+v, %v", p, err)
	}
	if p, err = c.Jobs.ResumeJob(ctx, c.Tenant, "paused", ""); err != nil || p.NextRunAt == nil {
		t.Errorf("resumed it is %+v, %v", p, err)
	}

	over := c.Create("over",
		func(d *jobspec.Definition) { d.Schedule.EndsAt = jobspec.InstantOf(time.Now().Add(-time.Hour)) })
	if over.State != domain.JobCompleted || over.CompletedAt == nil {
		t.Errorf("a job with no slot left is %s", over.State)
	}
	if none := c.Create("none", Never); none.State != domain.JobActive || none.NextRunAt != nil {
		t.Errorf("a job without a schedule is %+v", none)
	}
	if _, err := c.Jobs.GetJob(ctx, c.Tenant+1, "a"); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("another tenant sees it: %v", err)
	}
	if _, err := c.Jobs.GetJob(ctx, c.Tenant+1, job.ID.String()); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("another tenant sees it by id: %v", err)
	}
}

func TestAJobThatIsDueAtOnceWakesTheTickLoop(t *testing.T) {
	c := NewFixture(t)
	c.Create("later")
	if c.Woken() {
		t.Error("a job due within the hour woke it")
	}
	c.Create("now", At(time.Now().Add(-time.Minute)))
	if !c.Woken() {
		t.Error("a job due now did not wake it")
	}
}

func TestOfConcurrentCreatesWithOneNameOneWins(t *testing.T) {
	c := NewFixture(t)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = c.TryCreate("a") })
	}
	wg.Wait()
	WantOneWinner(t, errs, jobs.ErrNameTaken)
	c.WantCount(1, "jobs were written", `SELECT count(*) FROM punctual.schedules`)
}

func TestOfConcurrentPutsWithOneNameOneCreates(t *testing.T) {
	c := NewFixture(t)
	created := make([]bool, 6)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, created[i], errs[i] = c.Jobs.PutJob(t.Context(), c.Tenant, "a", jobs.NewJob{Definition: Definition("a")}, nil, false)
		})
	}
	wg.Wait()
	Must(t, errors.Join(errs...))
	n := 0
	for _, created := range created {
		if created {
			n++
		}
	}
	if n != 1 || c.Get("a").Version != 1 {
		t.Errorf("%d created it, and it is at version %d", n, c.Get("a").Version)
	}
}

func TestPutJob(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Minute)
	for _, test := range []struct {
		name     string
		before   jobspec.Definition
		complete bool
		put      jobspec.Definition
		version  int32
		state    domain.JobState
		moved    bool // the next slot must change
	}{
		{
			name: "without a change it writes nothing", before: Definition("j"), put: Definition("j"),
			version: 1, state: domain.JobActive,
		},
		{
			name: "a default written out is no change", before: Definition("j"),
			put:     Definition("j", func(d *jobspec.Definition) { d.Priority = jobspec.PriorityNormal }),
			version: 1, state: domain.JobActive,
		},
		{
			name: "a description does not move the next slot", before: Definition("j"), put: Definition("j", Described("x")),
			version: 2, state: domain.JobActive,
		},
		{
			name: "the same period written otherwise is a change that does not move the next slot", before: Definition("j"),
			put:     Definition("j", func(d *jobspec.Definition) { _ = d.Schedule.Every.UnmarshalText([]byte("60m")) }),
			version: 2, state: domain.JobActive,
		},
		{
			name: "another period moves the next slot", before: Definition("j"),
			put: Definition("j", Every(7*time.Hour+time.Second)), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a delay that is written again is not armed again", before: Definition("j", Delay(time.Hour)),
			put: Definition("j", Delay(time.Hour)), version: 1, state: domain.JobActive,
		},
		{
			name: "nor with a default written out", before: Definition("j", Delay(time.Hour)),
			put: Definition("j", Delay(time.Hour), allDefaults), version: 1, state: domain.JobActive,
		},
		{
			name: "a delay is armed again by any change", before: Definition("j", Delay(time.Hour)),
			put: Definition("j", Delay(time.Hour), Described("x")), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a jitter of none written out is no change", before: Definition("j"), put: Definition("j", allDefaults),
			version: 1, state: domain.JobActive,
		},
		{
			name: "an instant that has fired does not fire again", before: Definition("j", At(past)), complete: true,
			put: Definition("j", At(past)), version: 1, state: domain.JobCompleted,
		},
		{
			name: "nor with another description", before: Definition("j", At(past)), complete: true,
			put: Definition("j", At(past), Described("x")), version: 2, state: domain.JobCompleted,
		},
		{
			name: "another instant does", before: Definition("j", At(past)), complete: true,
			put: Definition("j", At(past.Add(time.Second))), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a delay that has fired does not fire again", before: Definition("j", Delay(time.Hour)), complete: true,
			put: Definition("j", Delay(time.Hour)), version: 1, state: domain.JobCompleted,
		},
		{
			name: "but by any change", before: Definition("j", Delay(time.Hour)), complete: true,
			put: Definition("j", Delay(time.Hour), Described("x")), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a schedule can be taken away", before: Definition("j"), put: Definition("j", Never), version: 2,
			state: domain.JobActive, moved: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewFixture(t)
			before := c.Create("j", func(d *jobspec.Definition) { *d = test.before })
			if test.complete {
				c.Complete(before.ID)
				before = c.Get("j")
			}
			after, created := c.Put(test.put)
			if created || after.ID != before.ID {
				t.Fatalf("it made a new job")
			}
			if after.Version != test.version || after.State != test.state {
				t.Errorf("version %d, %s; want version %d, %s", after.Version, after.State, test.version, test.state)
			}
			if moved := !SameInstant(before.NextScheduledFor, after.NextScheduledFor); moved != test.moved {
				t.Errorf("the next slot was %v and is %v", before.NextScheduledFor, after.NextScheduledFor)
			}
			c.WantCount(int(after.Version), "versions are recorded",
				`SELECT count(*) FROM punctual.job_versions WHERE job_id = $1`, after.ID)
			c.WantCount(int(after.Version), "version of the schedule",
				`SELECT version FROM punctual.schedules WHERE job_id = $1`, after.ID)
		})
	}
}

// allDefaults writes out the defaults that the API shows with a job.
func allDefaults(d *jobspec.Definition) {
	*d = d.WithDefaults()
	d.Jitter = d.EffectiveJitter(0)
}

// A pause and its end leave a delay alone in whatever form they are written, and verify agrees.
func TestAPutThatOnlyPausesLeavesADelayAlone(t *testing.T) {
	c := NewFixture(t)
	before := c.Create("j", Delay(time.Hour))
	for _, paused := range []bool{true, false} {
		d := Definition("j", Delay(time.Hour), allDefaults)
		after, _, err := c.Jobs.PutJob(t.Context(), c.Tenant, "j", jobs.NewJob{Definition: d, Paused: &paused}, nil, false)
		Must(t, err)
		if paused != (after.State == domain.JobPaused) {
			t.Errorf("paused %t: it is %s", paused, after.State)
		}
	}
	if after := c.Get("j"); after.Version != 3 || !SameInstant(before.NextScheduledFor, after.NextScheduledFor) {
		t.Errorf("version %d, slot %v, was %v", after.Version, after.NextScheduledFor, before.NextScheduledFor)
	}
	c.WantCount(1, "texts of one definition",
		`SELECT count(DISTINCT definition::text) FROM punctual.job_versions WHERE job_id = $1`, before.ID)
}

func TestAnInstantFurtherBackThanRunsAreKeptIsRefused(t *testing.T) {
	c := NewFixture(t)
	old := jobspec.InstantOf(time.Now().Add(-31 * 24 * time.Hour))
	ancient := func(d *jobspec.Definition) { d.Schedule = jobspec.Schedule{At: old} }
	tooOld := func(err error) bool {
		blamed := jobspec.BlamesOf(err)
		return len(blamed) == 1 && blamed[0].Field == "schedule.at" && strings.Contains(blamed[0].Message, old.String())
	}
	if _, err := c.TryCreate("j", ancient); !tooOld(err) {
		t.Errorf("a create: %v", err)
	}
	before := c.Create("j")
	if _, err := c.TryPut(Definition("j", ancient)); !tooOld(err) {
		t.Errorf("a put: %v", err)
	}
	if after := c.Get("j"); after.Version != before.Version {
		t.Errorf("version %d", after.Version)
	}
	// Once the job has fired, its instant is not refused, because it does not fire again.
	c.Exec(`UPDATE punctual.job_versions
		SET definition = jsonb_set(definition::jsonb, '{schedule}', jsonb_build_object('at', $2::text))::json
		WHERE job_id = $1`, before.ID, old.String())
	c.Complete(before.ID)
	if _, err := c.TryPut(Definition("j", ancient, Described("x"))); err != nil {
		t.Errorf("a put of the same instant: %v", err)
	}
	if after := c.Get("j"); after.State != domain.JobCompleted || after.Version != before.Version+1 {
		t.Errorf("it is %s at version %d", after.State, after.Version)
	}
}

func TestPutJobWithConditions(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	one, two := int32(1), int32(2)
	_, _, err := c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: Definition("a")}, &one, false)
	WantError(t, err, jobs.ErrVersion)
	_, created, err := c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: Definition("a")}, nil, true)
	if err != nil || !created {
		t.Errorf("create only: %v", err)
	}
	_, _, err = c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: Definition("a")}, nil, true)
	WantError(t, err, jobs.ErrVersion)
	_, _, err = c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: Definition("a", Described("x"))}, &two, false)
	WantError(t, err, jobs.ErrVersion)
	job, _, err := c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: Definition("a", Described("x"))}, &one, false)
	if err != nil || job.Version != 2 {
		t.Errorf("at the right version: %+v, %v", job, err)
	}
	WantError(t, c.Jobs.DeleteJob(ctx, c.Tenant, "a", &one, false), jobs.ErrVersion)
}

func TestPutJobPausesAndResumesOnlyWhenItSaysSo(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	yes, no := true, false
	for _, step := range []struct {
		paused *bool
		state  domain.JobState
	}{
		{nil, domain.JobActive},
		{&yes, domain.JobPaused},
		{nil, domain.JobPaused},
		{&yes, domain.JobPaused},
		{&no, domain.JobActive},
	} {
		job, _, err := c.Jobs.PutJob(t.Context(), c.Tenant, "a",
			jobs.NewJob{Definition: Definition("a"), Paused: step.paused}, nil, false)
		if err != nil || job.State != step.state {
			t.Fatalf("with %v it is %s, want %s (%v)", step.paused, job.State, step.state, err)
		}
	}
	if v := c.Get("a").Version; v != 3 {
		t.Errorf("two changes led to version %d", v)
	}
}

func TestOfConcurrentEditsOfOneVersionOneWins(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a")
	errs := make([]error, 5)
	var wg sync.WaitGroup
	inTurn(c, job.ID, len(errs), func() {
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = c.Jobs.EditJob(t.Context(), c.Tenant, "a", &job.Version, func(j jobs.Record) (jobs.NewJob, error) {
					j.Definition.Description = uuid.NewString()
					return jobs.NewJob{Definition: j.Definition}, nil
				})
			})
		}
	})
	wg.Wait()
	WantOneWinner(t, errs, jobs.ErrVersion)
	if v := c.Get("a").Version; v != 2 {
		t.Errorf("version %d", v)
	}
	c.WantCount(0, "a version is valid from before the one it replaced", `SELECT count(*)
		FROM (SELECT valid_from < lag(valid_from) OVER (ORDER BY version) AS earlier FROM punctual.job_versions) v
		WHERE earlier`)
}

func TestEditJob(t *testing.T) {
	t.Parallel()
	t.Run("the error of edit comes back and nothing is written", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		refused := errors.New("refused")
		_, err := c.Jobs.EditJob(t.Context(), c.Tenant, "a", nil, func(jobs.Record) (jobs.NewJob, error) { return jobs.NewJob{}, refused })
		WantError(t, err, refused)
	})
	t.Run("a name that is taken is refused", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Create("b")
		_, err := c.TryEdit("a", func(d *jobspec.Definition) { d.Name = "b" })
		WantError(t, err, jobs.ErrNameTaken)
	})
	t.Run("a job can be renamed", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a")
		c.Edit("a", func(d *jobspec.Definition) { d.Name = "b" })
		if c.Get("b").ID != job.ID {
			t.Error("the new name does not mean it")
		}
		c.Create("a")
	})
	t.Run("a completed job gives its name to one that is renamed", func(t *testing.T) {
		c := NewFixture(t)
		old := c.Create("b", Delay(time.Hour))
		c.Complete(old.ID)
		job := c.Create("a")
		c.Edit("a", func(d *jobspec.Definition) { d.Name = "b" })
		if c.Get("b").ID != job.ID {
			t.Error("the new name does not mean it")
		}
		if got := c.Get(old.ID.String()); got.State != domain.JobCompleted {
			t.Errorf("the old one is %s", got.State)
		}
	})
	t.Run("queue and priority change the lane", func(t *testing.T) {
		c := NewFixture(t)
		queues, err := c.Replicas.EnsureQueues(t.Context(), []string{"slow", "default"})
		if err != nil || len(queues) != 2 {
			t.Fatal(queues, err)
		}
		job := c.Create("a")
		c.Edit("a", func(d *jobspec.Definition) { d.Queue, d.Priority = "slow", jobspec.PriorityLow })
		if lane := c.Count(`SELECT lane FROM punctual.schedules WHERE job_id = $1`, job.ID); lane != int(queues["slow"])*4+2 {
			t.Errorf("lane %d", lane)
		}
	})
	t.Run("a policy that forbids overlap makes a gate", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a")
		c.Edit("a", Forbid)
		if c.Count(`SELECT count(*) FROM punctual.exclusive WHERE job_id = $1`, job.ID) != 1 {
			t.Error("there is none")
		}
	})
	t.Run("jitter moves when the next slot is due but not the slot", func(t *testing.T) {
		c := NewFixture(t)
		before := c.Create("a")
		after := c.Edit("a", jittered)
		if !SameInstant(before.NextScheduledFor, after.NextScheduledFor) || SameInstant(before.NextRunAt, after.NextRunAt) {
			t.Errorf("slot %v due %v became slot %v due %v",
				before.NextScheduledFor, before.NextRunAt, after.NextScheduledFor, after.NextRunAt)
		}
	})
	t.Run("a completed job starts again when its schedule changes, not when its description does", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a", Delay(time.Hour))
		c.Complete(job.ID)
		if got := c.Edit("a", Described("x")); got.State != domain.JobCompleted || got.Version != 2 {
			t.Errorf("described anew it is %s", got.State)
		}
		if got := c.Edit(job.ID.String(), Delay(2*time.Hour)); got.State != domain.JobActive || got.CompletedAt != nil ||
			got.NextRunAt == nil {
			t.Errorf("rescheduled it is %+v", got)
		}
	})
	t.Run("a completed job whose name is taken cannot start again", func(t *testing.T) {
		c := NewFixture(t)
		job := c.Create("a", Delay(time.Hour))
		c.Complete(job.ID)
		c.Create("a")
		_, err := c.TryEdit(job.ID.String(), Delay(2*time.Hour))
		WantError(t, err, jobs.ErrNameTaken)
	})
}

func TestEditSettlesWhatIsDueUnderTheOldDefinition(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		job     []Option
		ago     time.Duration
		jitter  time.Duration // from the slot to its due time
		change  Option
		history []string
		state   domain.JobState
	}{
		{
			name: "a slot due now becomes a run", job: []Option{Rarely}, ago: time.Second,
			change: Every(2 * time.Hour), history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "also when only the description changes", job: []Option{Rarely}, ago: time.Second,
			change: Described("x"), history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "of missed slots the newest runs and the others are recorded",
			job:  []Option{HalfPast, Tolerant}, ago: 10 * time.Hour, change: Every(2 * time.Hour),
			history: []string{"catchup pending late", "schedule pending", "schedule skipped missed x9"}, state: domain.JobActive,
		},
		{
			name: "missed slots that are skipped are recorded",
			job:  []Option{Rarely, Missed(jobspec.MissedSkip)},
			ago:  5 * time.Minute, change: Every(2 * time.Hour),
			history: []string{"schedule skipped missed x1"}, state: domain.JobActive,
		},
		{
			name: "each missed slot runs that the policy wants to run, though no run may overlap another",
			job:  []Option{HalfPast, Tolerant, Forbid, Missed(jobspec.MissedFireAll)},
			ago:  3 * time.Hour, change: Every(2 * time.Hour),
			history: []string{
				"catchup pending late", "catchup pending late", "catchup pending late", "schedule skipped overlap x1",
			}, state: domain.JobActive,
		},
		{
			name: "a slot that jitter holds back becomes a run when the schedule changes", ago: time.Second, jitter: time.Minute,
			job: []Option{Rarely, jittered}, change: Every(2 * time.Hour),
			history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "but is left alone by other changes", ago: time.Second, jitter: time.Minute,
			job: []Option{Rarely, jittered}, change: Described("x"), state: domain.JobActive,
		},
		{
			name: "a one-shot that is due fires, and its job is completed",
			job:  []Option{Delay(time.Hour)}, ago: time.Second,
			change: func(d *jobspec.Definition) {
				*d = Definition("a", At(time.Now().Add(-time.Second)), Described("x"))
			},
			history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "a one-shot of days ago fires too", job: []Option{Delay(time.Hour)}, ago: 72 * time.Hour,
			change: Never, history: []string{"catchup pending late"}, state: domain.JobActive,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("a", test.job...)
			c.SlotAgo(job.ID, test.ago)
			if test.jitter != 0 {
				c.Exec(`UPDATE punctual.schedules SET next_run_at = now() + '1 minute' WHERE job_id = $1`, job.ID)
			}
			after := c.Edit("a", test.change)
			c.WantHistory(job.ID, test.history...)
			if after.State != test.state {
				t.Errorf("the job is %s", after.State)
			}
			past := after.Definition.Schedule.Kind() == jobspec.KindAt // the schedule keeps its instant
			if after.NextRunAt != nil && test.jitter == 0 && !past && after.NextRunAt.Before(after.UpdatedAt) {
				t.Errorf("the next slot is due at %v, in the past", after.NextRunAt)
			}
			if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND job_version <> 1`, job.ID); n > 0 {
				t.Errorf("%d are pinned to the new version", n)
			}
			if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE status = 'pending'`); n != c.Ready(job.ID) {
				t.Errorf("%d runs are pending and %d ready", n, c.Ready(job.ID))
			}
		})
	}
}

func TestForbidSettlesADueSlotAsOverlap(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a", Forbid)
	run := c.Trigger("a")
	c.Exec(`UPDATE punctual.exclusive SET active_run = $2 WHERE job_id = $1`, job.ID, run.ID)
	c.SlotAgo(job.ID, time.Second)
	c.Edit("a", Described("x"))
	runs, _, err := c.Runs.ListRuns(t.Context(), c.Tenant, runs.Filter{Job: "a", Reason: domain.ReasonOverlap})
	if err != nil || len(runs) != 1 || runs[0].BlockedBy == nil || *runs[0].BlockedBy != run.ID {
		t.Errorf("%+v, %v", runs, err)
	}
}

// A completed job whose row still holds the name does not keep another completed job of that name from starting again.
func TestACompletedJobStartsAgainThoughAnotherCompletedOneHasItsName(t *testing.T) {
	c := NewFixture(t)
	first := c.Create("job", Delay(time.Hour))
	c.Complete(first.ID)
	second := c.Create("job", Delay(time.Hour))
	c.Complete(second.ID)
	again := c.Edit(first.ID.String(), Every(time.Hour))
	if again.State != domain.JobActive || c.Get("job").ID != first.ID || c.Get(second.ID.String()).State != domain.JobCompleted {
		t.Errorf("it is %s; the other is %s", again.State, c.Get(second.ID.String()).State)
	}
}

// inTurn locks the job's schedule, calls others, and unlocks the schedule once n statements wait for locks.
func inTurn(c Fixture, job uuid.UUID, n int, others func()) {
	c.T.Helper()
	free := c.Stranger(`schedules WHERE job_id = $1`, job)
	others()
	c.Waiting(n)
	free()
}

// jittered gives a job a jitter whose offset exceeds a few seconds for nearly all ids. The tests set next_run_at
// themselves.
func jittered(d *jobspec.Definition) { d.Jitter = jobspec.DurationOf(20 * time.Minute) }
