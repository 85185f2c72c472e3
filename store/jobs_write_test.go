package store

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestCreateJob(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	job := c.create("a", labelled("team", "billing"), described("<&> ü"), func(d *domain.Definition) {
		d.Target.Body = json.RawMessage(`{"b":1.0,"a":"<x> & \u0007"}`)
	})
	if job.Version != 1 || job.State != domain.JobActive || job.NextRunAt == nil ||
		job.Tenant != "default" || job.LastRun != nil {
		t.Errorf("a new job is %+v", job)
	}
	if got := string(c.get("a").Definition.Target.Body); got != `{"b":1.0,"a":"<x> & \u0007"}` {
		t.Errorf("its body came back as %s", got)
	}
	if got := c.get(job.ID.String()).Definition.Description; got != "<&> ü" {
		t.Errorf("its description came back as %q", got)
	}

	_, err := c.tryCreate("a")
	wantError(t, err, jobs.ErrNameTaken)

	_, err = c.tryCreate("b", func(d *domain.Definition) { d.Queue = "nowhere" })
	if blamed := domain.Blame("queue", `there is no queue "nowhere"; there are: default`); !errors.Is(err, blamed) {
		t.Errorf("an unknown queue: %v", err)
	}

	paused := true
	p, err := c.For(c.tenant).CreateJob(ctx, jobs.NewJob{Definition: definition("paused"), Paused: &paused})
	if err != nil || p.State != domain.JobPaused || p.NextRunAt != nil || p.PausedAt == nil {
		t.Errorf("a job created paused is %+v, %v", p, err)
	}
	if p, err = c.Jobs.ResumeJob(ctx, c.tenant, "paused", ""); err != nil || p.NextRunAt == nil {
		t.Errorf("resumed it is %+v, %v", p, err)
	}

	over := c.create("over",
		func(d *domain.Definition) { d.Schedule.EndsAt = domain.InstantOf(time.Now().Add(-time.Hour)) })
	if over.State != domain.JobCompleted || over.CompletedAt == nil {
		t.Errorf("a job with no slot left is %s", over.State)
	}
	if none := c.create("none", never); none.State != domain.JobActive || none.NextRunAt != nil {
		t.Errorf("a job without a schedule is %+v", none)
	}
	if _, err := c.Jobs.GetJob(ctx, c.tenant+1, "a"); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("another tenant sees it: %v", err)
	}
	if _, err := c.Jobs.GetJob(ctx, c.tenant+1, job.ID.String()); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("another tenant sees it by id: %v", err)
	}
}

func TestAJobThatIsDueAtOnceWakesTheTickLoop(t *testing.T) {
	c := newCRUD(t)
	c.create("later")
	if c.woken() {
		t.Error("a job due within the hour woke it")
	}
	c.create("now", at(time.Now().Add(-time.Minute)))
	if !c.woken() {
		t.Error("a job due now did not wake it")
	}
}

func TestOfConcurrentCreatesWithOneNameOneWins(t *testing.T) {
	c := newCRUD(t)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = c.tryCreate("a") })
	}
	wg.Wait()
	wantOneWinner(t, errs, jobs.ErrNameTaken)
	c.wantCount(1, "jobs were written", `SELECT count(*) FROM punctual.schedules`)
}

// wantOneWinner fails the test unless one of several attempts succeeded and the others were refused.
func wantOneWinner(t *testing.T, errs []error, refused error) {
	t.Helper()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantError(t, err, refused)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

func TestOfConcurrentPutsWithOneNameOneCreates(t *testing.T) {
	c := newCRUD(t)
	created := make([]bool, 6)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, created[i], errs[i] = c.Jobs.PutJob(t.Context(), c.tenant, "a", jobs.NewJob{Definition: definition("a")}, nil, false)
		})
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	n := 0
	for _, created := range created {
		if created {
			n++
		}
	}
	if n != 1 || c.get("a").Version != 1 {
		t.Errorf("%d created it, and it is at version %d", n, c.get("a").Version)
	}
}

func TestPutJob(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	for _, test := range []struct {
		name     string
		before   domain.Definition
		complete bool
		put      domain.Definition
		version  int32
		state    domain.JobState
		moved    bool // the next slot must change
	}{
		{
			name: "without a change it writes nothing", before: definition("j"), put: definition("j"),
			version: 1, state: domain.JobActive,
		},
		{
			name: "a default written out is no change", before: definition("j"),
			put:     definition("j", func(d *domain.Definition) { d.Priority = domain.PriorityNormal }),
			version: 1, state: domain.JobActive,
		},
		{
			name: "a description does not move the next slot", before: definition("j"), put: definition("j", described("x")),
			version: 2, state: domain.JobActive,
		},
		{
			name: "the same period written otherwise is a change that does not move the next slot", before: definition("j"),
			put:     definition("j", func(d *domain.Definition) { _ = d.Schedule.Every.UnmarshalText([]byte("60m")) }),
			version: 2, state: domain.JobActive,
		},
		{
			name: "another period moves the next slot", before: definition("j"),
			put: definition("j", every(7*time.Hour+time.Second)), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a delay that is written again is not armed again", before: definition("j", delay(time.Hour)),
			put: definition("j", delay(time.Hour)), version: 1, state: domain.JobActive,
		},
		{
			name: "nor with a default written out", before: definition("j", delay(time.Hour)),
			put: definition("j", delay(time.Hour), allDefaults), version: 1, state: domain.JobActive,
		},
		{
			name: "a delay is armed again by any change", before: definition("j", delay(time.Hour)),
			put: definition("j", delay(time.Hour), described("x")), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a jitter of none written out is no change", before: definition("j"), put: definition("j", allDefaults),
			version: 1, state: domain.JobActive,
		},
		{
			name: "an instant that has fired does not fire again", before: definition("j", at(past)), complete: true,
			put: definition("j", at(past)), version: 1, state: domain.JobCompleted,
		},
		{
			name: "nor with another description", before: definition("j", at(past)), complete: true,
			put: definition("j", at(past), described("x")), version: 2, state: domain.JobCompleted,
		},
		{
			name: "another instant does", before: definition("j", at(past)), complete: true,
			put: definition("j", at(past.Add(time.Second))), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a delay that has fired does not fire again", before: definition("j", delay(time.Hour)), complete: true,
			put: definition("j", delay(time.Hour)), version: 1, state: domain.JobCompleted,
		},
		{
			name: "but by any change", before: definition("j", delay(time.Hour)), complete: true,
			put: definition("j", delay(time.Hour), described("x")), version: 2, state: domain.JobActive, moved: true,
		},
		{
			name: "a schedule can be taken away", before: definition("j"), put: definition("j", never), version: 2,
			state: domain.JobActive, moved: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCRUD(t)
			before := c.create("j", func(d *domain.Definition) { *d = test.before })
			if test.complete {
				c.complete(before.ID)
				before = c.get("j")
			}
			after, created := c.put(test.put)
			if created || after.ID != before.ID {
				t.Fatalf("it made a new job")
			}
			if after.Version != test.version || after.State != test.state {
				t.Errorf("version %d, %s; want version %d, %s", after.Version, after.State, test.version, test.state)
			}
			if moved := !sameInstant(before.NextScheduledFor, after.NextScheduledFor); moved != test.moved {
				t.Errorf("the next slot was %v and is %v", before.NextScheduledFor, after.NextScheduledFor)
			}
			c.wantCount(int(after.Version), "versions are recorded",
				`SELECT count(*) FROM punctual.job_versions WHERE job_id = $1`, after.ID)
			c.wantCount(int(after.Version), "version of the schedule",
				`SELECT version FROM punctual.schedules WHERE job_id = $1`, after.ID)
		})
	}
}

// allDefaults writes out the defaults that the API shows with a job.
func allDefaults(d *domain.Definition) {
	*d = d.WithDefaults()
	d.Jitter = d.EffectiveJitter(0)
}

// A pause and its end leave a delay alone in whatever form they are written, and verify agrees.
func TestAPutThatOnlyPausesLeavesADelayAlone(t *testing.T) {
	c := newCRUD(t)
	before := c.create("j", delay(time.Hour))
	for _, paused := range []bool{true, false} {
		d := definition("j", delay(time.Hour), allDefaults)
		after, _, err := c.Jobs.PutJob(t.Context(), c.tenant, "j", jobs.NewJob{Definition: d, Paused: &paused}, nil, false)
		must(t, err)
		if paused != (after.State == domain.JobPaused) {
			t.Errorf("paused %t: it is %s", paused, after.State)
		}
	}
	if after := c.get("j"); after.Version != 3 || !sameInstant(before.NextScheduledFor, after.NextScheduledFor) {
		t.Errorf("version %d, slot %v, was %v", after.Version, after.NextScheduledFor, before.NextScheduledFor)
	}
	c.wantCount(1, "texts of one definition",
		`SELECT count(DISTINCT definition::text) FROM punctual.job_versions WHERE job_id = $1`, before.ID)
}

func TestAnInstantFurtherBackThanRunsAreKeptIsRefused(t *testing.T) {
	c := newCRUD(t)
	old := domain.InstantOf(time.Now().Add(-31 * 24 * time.Hour))
	ancient := func(d *domain.Definition) { d.Schedule = domain.Schedule{At: old} }
	tooOld := func(err error) bool {
		blamed := domain.BlamesOf(err)
		return len(blamed) == 1 && blamed[0].Field == "schedule.at" && strings.Contains(blamed[0].Message, old.String())
	}
	if _, err := c.tryCreate("j", ancient); !tooOld(err) {
		t.Errorf("a create: %v", err)
	}
	before := c.create("j")
	if _, err := c.tryPut(definition("j", ancient)); !tooOld(err) {
		t.Errorf("a put: %v", err)
	}
	if after := c.get("j"); after.Version != before.Version {
		t.Errorf("version %d", after.Version)
	}
	// Once the job has fired, its instant is not refused, because it does not fire again.
	c.exec(`UPDATE punctual.job_versions
		SET definition = jsonb_set(definition::jsonb, '{schedule}', jsonb_build_object('at', $2::text))::json
		WHERE job_id = $1`, before.ID, old.String())
	c.complete(before.ID)
	if _, err := c.tryPut(definition("j", ancient, described("x"))); err != nil {
		t.Errorf("a put of the same instant: %v", err)
	}
	if after := c.get("j"); after.State != domain.JobCompleted || after.Version != before.Version+1 {
		t.Errorf("it is %s at version %d", after.State, after.Version)
	}
}

func TestPutJobWithConditions(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	one, two := int32(1), int32(2)
	_, _, err := c.Jobs.PutJob(ctx, c.tenant, "a", jobs.NewJob{Definition: definition("a")}, &one, false)
	wantError(t, err, jobs.ErrVersion)
	_, created, err := c.Jobs.PutJob(ctx, c.tenant, "a", jobs.NewJob{Definition: definition("a")}, nil, true)
	if err != nil || !created {
		t.Errorf("create only: %v", err)
	}
	_, _, err = c.Jobs.PutJob(ctx, c.tenant, "a", jobs.NewJob{Definition: definition("a")}, nil, true)
	wantError(t, err, jobs.ErrVersion)
	_, _, err = c.Jobs.PutJob(ctx, c.tenant, "a", jobs.NewJob{Definition: definition("a", described("x"))}, &two, false)
	wantError(t, err, jobs.ErrVersion)
	job, _, err := c.Jobs.PutJob(ctx, c.tenant, "a", jobs.NewJob{Definition: definition("a", described("x"))}, &one, false)
	if err != nil || job.Version != 2 {
		t.Errorf("at the right version: %+v, %v", job, err)
	}
	wantError(t, c.Jobs.DeleteJob(ctx, c.tenant, "a", &one, false), jobs.ErrVersion)
}

func TestPutJobPausesAndResumesOnlyWhenItSaysSo(t *testing.T) {
	c := newCRUD(t)
	c.create("a")
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
		job, _, err := c.Jobs.PutJob(t.Context(), c.tenant, "a",
			jobs.NewJob{Definition: definition("a"), Paused: step.paused}, nil, false)
		if err != nil || job.State != step.state {
			t.Fatalf("with %v it is %s, want %s (%v)", step.paused, job.State, step.state, err)
		}
	}
	if v := c.get("a").Version; v != 3 {
		t.Errorf("two changes led to version %d", v)
	}
}

func TestOfConcurrentEditsOfOneVersionOneWins(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a")
	errs := make([]error, 5)
	var wg sync.WaitGroup
	c.inTurn(job.ID, len(errs), func() {
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = c.Jobs.EditJob(t.Context(), c.tenant, "a", &job.Version, func(j jobs.Record) (jobs.NewJob, error) {
					j.Definition.Description = uuid.NewString()
					return jobs.NewJob{Definition: j.Definition}, nil
				})
			})
		}
	})
	wg.Wait()
	wantOneWinner(t, errs, jobs.ErrVersion)
	if v := c.get("a").Version; v != 2 {
		t.Errorf("version %d", v)
	}
	c.wantCount(0, "a version is valid from before the one it replaced", `SELECT count(*)
		FROM (SELECT valid_from < lag(valid_from) OVER (ORDER BY version) AS earlier FROM punctual.job_versions) v
		WHERE earlier`)
}

func TestEditJob(t *testing.T) {
	t.Run("the error of edit comes back and nothing is written", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		refused := errors.New("refused")
		_, err := c.Jobs.EditJob(t.Context(), c.tenant, "a", nil, func(jobs.Record) (jobs.NewJob, error) { return jobs.NewJob{}, refused })
		wantError(t, err, refused)
	})
	t.Run("a name that is taken is refused", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.create("b")
		_, err := c.tryEdit("a", func(d *domain.Definition) { d.Name = "b" })
		wantError(t, err, jobs.ErrNameTaken)
	})
	t.Run("a job can be renamed", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a")
		c.edit("a", func(d *domain.Definition) { d.Name = "b" })
		if c.get("b").ID != job.ID {
			t.Error("the new name does not mean it")
		}
		c.create("a")
	})
	t.Run("a completed job gives its name to one that is renamed", func(t *testing.T) {
		c := newCRUD(t)
		old := c.create("b", delay(time.Hour))
		c.complete(old.ID)
		job := c.create("a")
		c.edit("a", func(d *domain.Definition) { d.Name = "b" })
		if c.get("b").ID != job.ID {
			t.Error("the new name does not mean it")
		}
		if got := c.get(old.ID.String()); got.State != domain.JobCompleted {
			t.Errorf("the old one is %s", got.State)
		}
	})
	t.Run("queue and priority change the lane", func(t *testing.T) {
		c := newCRUD(t)
		queues, err := c.Claims.EnsureQueues(t.Context(), []string{"slow", "default"})
		if err != nil || len(queues) != 2 {
			t.Fatal(queues, err)
		}
		job := c.create("a")
		c.edit("a", func(d *domain.Definition) { d.Queue, d.Priority = "slow", domain.PriorityLow })
		if lane := c.count(`SELECT lane FROM punctual.schedules WHERE job_id = $1`, job.ID); lane != int(queues["slow"])*4+2 {
			t.Errorf("lane %d", lane)
		}
	})
	t.Run("a policy that forbids overlap makes a gate", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a")
		c.edit("a", forbid)
		if c.count(`SELECT count(*) FROM punctual.exclusive WHERE job_id = $1`, job.ID) != 1 {
			t.Error("there is none")
		}
	})
	t.Run("jitter moves when the next slot is due but not the slot", func(t *testing.T) {
		c := newCRUD(t)
		before := c.create("a")
		after := c.edit("a", jittered)
		if !sameInstant(before.NextScheduledFor, after.NextScheduledFor) || sameInstant(before.NextRunAt, after.NextRunAt) {
			t.Errorf("slot %v due %v became slot %v due %v",
				before.NextScheduledFor, before.NextRunAt, after.NextScheduledFor, after.NextRunAt)
		}
	})
	t.Run("a completed job starts again when its schedule changes, not when its description does", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", delay(time.Hour))
		c.complete(job.ID)
		if got := c.edit("a", described("x")); got.State != domain.JobCompleted || got.Version != 2 {
			t.Errorf("described anew it is %s", got.State)
		}
		if got := c.edit(job.ID.String(), delay(2*time.Hour)); got.State != domain.JobActive || got.CompletedAt != nil ||
			got.NextRunAt == nil {
			t.Errorf("rescheduled it is %+v", got)
		}
	})
	t.Run("a completed job whose name is taken cannot start again", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", delay(time.Hour))
		c.complete(job.ID)
		c.create("a")
		_, err := c.tryEdit(job.ID.String(), delay(2*time.Hour))
		wantError(t, err, jobs.ErrNameTaken)
	})
}

func TestEditSettlesWhatIsDueUnderTheOldDefinition(t *testing.T) {
	for _, test := range []struct {
		name    string
		job     []option
		ago     time.Duration
		jitter  time.Duration // from the slot to its due time
		change  option
		history []string
		state   domain.JobState
	}{
		{
			name: "a slot due now becomes a run", job: []option{rarely}, ago: time.Second,
			change: every(2 * time.Hour), history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "also when only the description changes", job: []option{rarely}, ago: time.Second,
			change: described("x"), history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "of missed slots the newest runs and the others are recorded",
			job:  []option{halfPast, tolerant}, ago: 10 * time.Hour, change: every(2 * time.Hour),
			history: []string{"catchup pending late", "schedule pending", "schedule skipped missed x9"}, state: domain.JobActive,
		},
		{
			name: "missed slots that are skipped are recorded",
			job:  []option{rarely, missed(domain.MissedSkip)},
			ago:  5 * time.Minute, change: every(2 * time.Hour),
			history: []string{"schedule skipped missed x1"}, state: domain.JobActive,
		},
		{
			name: "each missed slot runs that the policy wants to run, though no run may overlap another",
			job:  []option{halfPast, tolerant, forbid, missed(domain.MissedFireAll)},
			ago:  3 * time.Hour, change: every(2 * time.Hour),
			history: []string{
				"catchup pending late", "catchup pending late", "catchup pending late", "schedule skipped overlap x1",
			}, state: domain.JobActive,
		},
		{
			name: "a slot that jitter holds back becomes a run when the schedule changes", ago: time.Second, jitter: time.Minute,
			job: []option{rarely, jittered}, change: every(2 * time.Hour),
			history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "but is left alone by other changes", ago: time.Second, jitter: time.Minute,
			job: []option{rarely, jittered}, change: described("x"), state: domain.JobActive,
		},
		{
			name: "a one-shot that is due fires, and its job is completed",
			job:  []option{delay(time.Hour)}, ago: time.Second,
			change: func(d *domain.Definition) {
				*d = definition("a", at(time.Now().Add(-time.Second)), described("x"))
			},
			history: []string{"schedule pending"}, state: domain.JobActive,
		},
		{
			name: "a one-shot of days ago fires too", job: []option{delay(time.Hour)}, ago: 72 * time.Hour,
			change: never, history: []string{"catchup pending late"}, state: domain.JobActive,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCRUD(t)
			job := c.create("a", test.job...)
			c.slotAgo(job.ID, test.ago)
			if test.jitter != 0 {
				c.exec(`UPDATE punctual.schedules SET next_run_at = now() + '1 minute' WHERE job_id = $1`, job.ID)
			}
			after := c.edit("a", test.change)
			c.wantHistory(job.ID, test.history...)
			if after.State != test.state {
				t.Errorf("the job is %s", after.State)
			}
			past := after.Definition.Schedule.Kind() == domain.KindAt // the schedule keeps its instant
			if after.NextRunAt != nil && test.jitter == 0 && !past && after.NextRunAt.Before(after.UpdatedAt) {
				t.Errorf("the next slot is due at %v, in the past", after.NextRunAt)
			}
			if n := c.count(`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND job_version <> 1`, job.ID); n > 0 {
				t.Errorf("%d are pinned to the new version", n)
			}
			if n := c.count(`SELECT count(*) FROM punctual.runs WHERE status = 'pending'`); n != c.ready(job.ID) {
				t.Errorf("%d runs are pending and %d ready", n, c.ready(job.ID))
			}
		})
	}
}

func TestForbidSettlesADueSlotAsOverlap(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a", forbid)
	run := c.trigger("a")
	c.exec(`UPDATE punctual.exclusive SET active_run = $2 WHERE job_id = $1`, job.ID, run.ID)
	c.slotAgo(job.ID, time.Second)
	c.edit("a", described("x"))
	runs, _, err := c.Runs.ListRuns(t.Context(), c.tenant, runs.Filter{Job: "a", Reason: domain.ReasonOverlap})
	if err != nil || len(runs) != 1 || runs[0].BlockedBy == nil || *runs[0].BlockedBy != run.ID {
		t.Errorf("%+v, %v", runs, err)
	}
}

// A completed job whose row still holds the name does not keep another completed job of that name from starting again.
func TestACompletedJobStartsAgainThoughAnotherCompletedOneHasItsName(t *testing.T) {
	c := newCRUD(t)
	first := c.create("job", delay(time.Hour))
	c.complete(first.ID)
	second := c.create("job", delay(time.Hour))
	c.complete(second.ID)
	again := c.edit(first.ID.String(), every(time.Hour))
	if again.State != domain.JobActive || c.get("job").ID != first.ID || c.get(second.ID.String()).State != domain.JobCompleted {
		t.Errorf("it is %s; the other is %s", again.State, c.get(second.ID.String()).State)
	}
}
