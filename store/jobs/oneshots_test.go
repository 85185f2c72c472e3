package jobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// shot creates a one-shot and claims its slot.
func shot(c Replica, name string, options ...Option) domain.Assignment {
	c.T.Helper()
	job := c.Create(name, append([]Option{At(c.Clock().Add(time.Hour))}, options...)...)
	c.SlotAgo(job.ID, 3*time.Second)
	return c.One(c.Claim(100, false))
}

func schedules(c Fixture) int { return c.Count(`SELECT count(*) FROM punctual.schedules`) }

// weekLater has everything that was completed be completed 8 days ago.
func weekLater(c Fixture) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.completions SET look_at = look_at - interval '8 days', completed_at = completed_at - interval '8 days'`)
	c.Exec(`UPDATE punctual.runs SET created_at = created_at - interval '8 days'`)
	c.Exec(`UPDATE punctual.schedules SET completed_at = completed_at - interval '8 days'`)
}

func forget(c Fixture, want int) {
	c.T.Helper()
	if n, _, err := c.Jobs.ForgetCompletedJobs(c.T.Context()); err != nil || n != want {
		c.T.Errorf("%d jobs forgotten, want %d: %v", n, want, err)
	}
}

// An update would write the entries of indexes again.
func TestTheClaimOfAOneShotDeletesItsSchedule(t *testing.T) {
	c := NewReplica(t)
	c.Many(100, "shot", 0, At(c.Clock()))
	c.Create("lasting")
	if n := len(c.Claim(100, false).Runs); n != 100 {
		t.Fatalf("%d runs", n)
	}
	if n := schedules(c.Fixture); n != 1 {
		t.Errorf("%d schedules", n)
	}
	if n := c.Count(`SELECT cardinality(job_ids) FROM punctual.completions`); n != 100 {
		t.Errorf("a completion of %d jobs", n)
	}
}

// A recurring job keeps its row: it is never forgotten, and its runs may be.
func TestTheClaimOfARecurringJobsLastSlotKeepsItsSchedule(t *testing.T) {
	c := NewReplica(t)
	job, _ := c.DueNow("job")
	c.Exec(`UPDATE punctual.job_versions SET definition =
		jsonb_set(definition::jsonb, '{schedule,ends_at}', to_jsonb(to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))`)
	c.One(c.Claim(100, false))
	c.Exec(`DELETE FROM punctual.runs`)
	if got := c.Get(job.ID.String()); got.State != domain.JobCompleted || got.CompletedAt == nil {
		t.Errorf("the job is %s since %v", got.State, got.CompletedAt)
	}
}

// What a caller does with a completed one-shot does not depend on how it was completed.
func TestACompletedOneShotIsAJobLikeOthers(t *testing.T) {
	t.Parallel()
	high := func(d *jobspec.Definition) { d.Priority = jobspec.PriorityHigh }
	for name, does := range map[string]func(c Replica, a domain.Assignment){
		"it shows when it was completed": func(c Replica, a domain.Assignment) {
			got := c.Get("a")
			if want := c.Run(a.RunID).CreatedAt; got.State != domain.JobCompleted || !SameInstant(got.CompletedAt, &want) {
				t.Errorf("%s since %v, want %v", got.State, got.CompletedAt, want)
			}
		},
		"it is shown by the view": func(c Replica, _ domain.Assignment) {
			if got := c.Text(`SELECT state || ' ' || priority FROM punctual.job_status`); got != "completed high" {
				t.Error(got)
			}
		},
		"a change of its description leaves it completed": func(c Replica, a domain.Assignment) {
			got := c.Edit("a", Described("x"))
			if want := c.Run(a.RunID).CreatedAt; got.State != domain.JobCompleted || !SameInstant(got.CompletedAt, &want) {
				t.Errorf("%s since %v, want %v", got.State, got.CompletedAt, want)
			}
		},
		"a new schedule starts it again, and its claim completes it again": func(c Replica, a domain.Assignment) {
			if got := c.Edit("a", At(c.Clock().Add(2*time.Hour))); got.State != domain.JobActive || got.NextRunAt == nil {
				t.Fatalf("%s, next at %v", got.State, got.NextRunAt)
			}
			c.SlotAgo(a.Job.ID, 0)
			again := c.One(c.Claim(100, false))
			if got := c.Get("a"); got.State != domain.JobCompleted || again.Lane%4 != 0 || schedules(c.Fixture) != 0 {
				t.Errorf("%s, in lane %d, %d schedules", got.State, again.Lane, schedules(c.Fixture))
			}
		},
		"a trigger runs it with its priority": func(c Replica, _ domain.Assignment) {
			c.Trigger("a")
			if again := c.One(c.ClaimReady(100)); again.Lane%4 != 0 || c.Get("a").State != domain.JobCompleted {
				t.Errorf("in lane %d, the job is %s", again.Lane, c.Get("a").State)
			}
		},
		"a PUT without a change leaves it alone": func(c Replica, a domain.Assignment) {
			if got, created := c.Put(a.Job.Definition); created || got.Version != 1 || got.State != domain.JobCompleted {
				t.Errorf("%t, version %d, %s", created, got.Version, got.State)
			}
		},
		"it can be deleted": func(c Replica, a domain.Assignment) {
			c.Must(c.Jobs.DeleteJob(c.T.Context(), c.Tenant, "a", nil, false))
			WantError(c.T, c.Jobs.DeleteJob(c.T.Context(), c.Tenant, a.Job.ID.String(), nil, false), store.ErrNotFound)
		},
		"it cannot be paused": func(c Replica, _ domain.Assignment) {
			_, err := c.Jobs.PauseJob(c.T.Context(), c.Tenant, "a", "", nil)
			WantError(c.T, err, pg.ErrState)
		},
		"another tenant does not see it": func(c Replica, a domain.Assignment) {
			_, err := c.Jobs.GetJob(c.T.Context(), c.NewTenant("other").ID, a.Job.ID.String())
			WantError(c.T, err, store.ErrNotFound)
			WantError(c.T, c.Jobs.DeleteJob(c.T.Context(), c.NewTenant("third").ID, a.Job.ID.String(), nil, false), store.ErrNotFound)
			if schedules(c.Fixture) != 0 {
				c.T.Error("another tenant gave it a schedule")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			a := shot(c, "a", high)
			if n := schedules(c.Fixture); n != 0 {
				t.Fatalf("%d schedules", n)
			}
			does(c, a)
		})
	}
}

func TestOneShotsThatWereClaimedAreForgottenAfterAWeek(t *testing.T) {
	t.Parallel()
	ended := func(c Replica, a domain.Assignment) { c.FinishAll([]domain.Assignment{a}) }
	t.Run("each after seven days", func(t *testing.T) {
		c := NewReplica(t)
		ended(c, shot(c, "old"))
		weekLater(c.Fixture)
		ended(c, shot(c, "recent"))
		forget(c.Fixture, 1)
		forget(c.Fixture, 0)
		if got := c.JobNames(jobs.Filter{}); !slices.Equal(got, []string{"recent"}) {
			t.Errorf("left are %q", got)
		}
		if n := c.Count(`SELECT count(*) FROM punctual.completions`); n != 1 {
			t.Errorf("%d completions", n)
		}
		if ago := c.Count(`SELECT (now()::date - deleted_at::date) FROM punctual.jobs WHERE state = 'deleted'`); ago != 8 {
			t.Errorf("it was completed %d days ago", ago)
		}
	})
	t.Run("but not while its run has not ended", func(t *testing.T) {
		c := NewReplica(t)
		a := shot(c, "busy")
		weekLater(c.Fixture)
		forget(c.Fixture, 0)
		ended(c, a)
		forget(c.Fixture, 0) // it is looked at again after some hours
		c.Exec(`UPDATE punctual.completions SET look_at = now()`)
		forget(c.Fixture, 1)
	})
	t.Run("nor if it was completed again since", func(t *testing.T) {
		c := NewReplica(t)
		a := shot(c, "a")
		ended(c, a)
		weekLater(c.Fixture)
		c.Edit("a", At(c.Clock().Add(time.Hour)))
		forget(c.Fixture, 0)
		c.SlotAgo(a.Job.ID, 0)
		ended(c, c.One(c.Claim(100, false)))
		forget(c.Fixture, 0)
		weekLater(c.Fixture)
		forget(c.Fixture, 1)
		if n := c.Count(`SELECT count(*) FROM punctual.completions`); n != 0 {
			t.Errorf("%d completions", n)
		}
	})
	t.Run("nor if it was completed again for an earlier instant", func(t *testing.T) {
		c := NewReplica(t)
		a := shot(c, "a")
		ended(c, a)
		weekLater(c.Fixture)
		c.Edit("a", At(c.Clock().Add(-30*time.Minute)))
		ended(c, c.One(c.Claim(100, true)))
		c.Exec(`DELETE FROM punctual.runs`) // nor if runs are kept for a day only
		forget(c.Fixture, 0)
	})
	t.Run("also if it was changed since", func(t *testing.T) {
		c := NewReplica(t)
		ended(c, shot(c, "a"))
		c.Edit("a", Described("x"))
		weekLater(c.Fixture)
		forget(c.Fixture, 1)
		if n := c.Count(`SELECT count(*) FROM punctual.completions`); n != 0 {
			t.Errorf("%d completions", n)
		}
	})
	t.Run("also if its run is no longer kept, and then it is purged", func(t *testing.T) {
		c := NewReplica(t)
		ended(c, shot(c, "a"))
		weekLater(c.Fixture)
		c.Exec(`DELETE FROM punctual.runs`)
		forget(c.Fixture, 1)
		c.Exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '60 days'`)
		if n, _, err := c.Jobs.PurgeJobs(t.Context()); err != nil || n != 1 {
			t.Errorf("%d purged, %v", n, err)
		}
	})
}

// An edit that is under way keeps its job, and a job that is being forgotten is not edited back to life.
func TestAnEditAndForgettingDoNotMeet(t *testing.T) {
	c := NewReplica(t)
	a := shot(c, "a")
	c.FinishAll([]domain.Assignment{a})
	weekLater(c.Fixture)
	_, err := c.Jobs.EditJob(t.Context(), c.Tenant, "a", nil, func(j jobs.Record) (jobs.NewJob, error) {
		forget(c.Fixture, 0)
		j.Definition.Description = "x"
		return jobs.NewJob{Definition: j.Definition}, nil
	})
	c.Must(err)
	if got := c.Get("a"); got.State != domain.JobCompleted || got.Version != 2 {
		t.Errorf("%s at version %d", got.State, got.Version)
	}

	b := shot(c, "b")
	c.FinishAll([]domain.Assignment{b})
	tx, err := c.DB.Callers.Begin(t.Context())
	c.Must(err)
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`, b.Job.ID)
	c.Must(err)
	edited := make(chan error)
	go func() {
		_, err := c.TryEdit(b.Job.ID.String(), At(c.Clock().Add(time.Hour)))
		edited <- err
	}()
	c.Waiting(1)
	_, err = tx.Exec(t.Context(), `UPDATE punctual.jobs SET state = 'deleted', named = false, deleted_at = now() WHERE id = $1`,
		b.Job.ID)
	c.Must(err)
	c.Must(tx.Commit(t.Context()))
	WantError(t, <-edited, store.ErrNotFound)
	_, err = c.Jobs.GetJob(t.Context(), c.Tenant, b.Job.ID.String())
	WantError(t, err, store.ErrNotFound)
}

// A claim deletes the row that an edit waits for. The edit finds the job all the same.
func TestAnEditThatWaitsForTheClaimOfAOneShotFindsTheJob(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a", At(c.Clock().Add(time.Hour)))
	tx, err := c.DB.Callers.Begin(t.Context())
	c.Must(err)
	_, err = tx.Exec(t.Context(), `DELETE FROM punctual.schedules WHERE job_id = $1`, job.ID)
	c.Must(err)
	edited := make(chan error)
	go func() {
		_, err := c.TryEdit(job.ID.String(), Described("x"))
		edited <- err
	}()
	c.Waiting(1)
	c.Must(tx.Commit(t.Context()))
	c.Must(<-edited)
	if got := c.Get(job.ID.String()); got.State != domain.JobCompleted || got.Version != 2 {
		t.Errorf("%s at version %d", got.State, got.Version)
	}
}

// A restart that is not committed yet keeps the job's name.
func TestTheNameOfAJobThatIsRestartedIsNotReleased(t *testing.T) {
	c := NewReplica(t)
	a := shot(c, "a")
	tx, err := c.DB.Callers.Begin(t.Context())
	c.Must(err)
	for _, restart := range []string{
		`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
			SELECT id, now() + interval '1 h', now() + interval '1 h', tenant, 2, 5, true FROM punctual.jobs WHERE id = $1`,
		`INSERT INTO punctual.job_versions (job_id, version, state, definition)
			SELECT job_id, 2, state, definition FROM punctual.job_versions WHERE job_id = $1`,
		`UPDATE punctual.jobs SET version = 2 WHERE id = $1`,
	} {
		_, err := tx.Exec(t.Context(), restart, a.Job.ID)
		c.Must(err)
	}
	created := make(chan error)
	go func() {
		_, err := c.TryCreate("a")
		created <- err
	}()
	c.Waiting(1)
	c.Must(tx.Commit(t.Context()))
	WantError(t, <-created, jobs.ErrNameTaken)
	if got := c.Get("a"); got.ID != a.Job.ID || got.State != domain.JobActive {
		t.Errorf("the name means %s, which is %s", got.ID, got.State)
	}
}

// The first claim reads the definitions after it has locked the slots, the others with the slots.
func TestOneShotsAreClaimedWithTheirDefinitions(t *testing.T) {
	c := OpenReplica(t, pgtest.DSN(t))
	c.Many(30, "shot", 0, At(c.Clock()), Described("x"))
	for range 3 {
		for _, a := range c.Claim(10, false).Runs {
			name := Value[string](c.Fixture, `SELECT name FROM punctual.jobs WHERE id = $1`, a.Job.ID)
			if a.Job.Description != "x" || !strings.HasPrefix(name, "shot-") || a.Job.Schedule.Kind() != jobspec.KindAt {
				t.Errorf("%s: %+v", name, a.Job)
			}
		}
	}
	if n := schedules(c.Fixture); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	if n := c.Count(`SELECT sum(generic_plans + custom_plans)::int FROM pg_prepared_statements
		WHERE statement LIKE '%SELECT v.job_id, v.version, v.definition%'`); n != 1 {
		t.Errorf("definitions were read apart from the slots in %d of 3 claims, want 1", n)
	}
	broken := c.Create("broken", At(c.Clock().Add(time.Hour)))
	c.SlotAgo(broken.ID, 0)
	c.Exec(`UPDATE punctual.job_versions SET definition = '{"newer":1}' WHERE job_id = $1`, broken.ID)
	if n := len(c.Claim(10, false).Runs); n != 0 || schedules(c.Fixture) != 1 {
		t.Errorf("%d runs of a definition that cannot be read, %d schedules", n, schedules(c.Fixture))
	}
}

// What another transaction has locked of a completed one-shot holds up that job alone.
func TestALockedOneShotHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"that is forgotten": `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`,
		"that is edited": `WITH shared AS (SELECT id FROM punctual.jobs WHERE id = $1 FOR KEY SHARE)
			INSERT INTO punctual.schedules (job_id, tenant, version, lane, enabled, completed_at)
			SELECT id, 1, 1, 5, false, now() FROM shared`,
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			a := shot(c, "a", Labelled("team", "x"))
			c.FinishAll([]domain.Assignment{a})
			c.Team("b", "c")
			free := c.Locks(lock, a.Job.ID)
			o := c.StartJobs(Changing(jobs.DeleteMany, OfTeam))
			c.Batch()
			c.WantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			free()
			c.Work()
			c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
			if state := c.Text(`SELECT state FROM punctual.jobs WHERE id = $1`, a.Job.ID); state != "deleted" {
				t.Errorf("it is %s", state)
			}
		})
	}
}

// Nobody takes a recurring job whose row is gone for a completed one.
func TestARecurringJobWithoutAScheduleIsNotCompleted(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a")
	c.Exec(`DELETE FROM punctual.schedules`)
	if got := c.Get(job.ID.String()); got.State != domain.JobActive || got.NextRunAt != nil {
		t.Errorf("%s, next at %v", got.State, got.NextRunAt)
	}
	_, err := c.TryEdit(job.ID.String(), Described("x"))
	WantError(t, err, store.ErrNotFound)
}

// A list of completed jobs pages through one-shots without a schedule and other jobs with one, newest first.
func TestCompletedJobsArePagedThrough(t *testing.T) {
	c := NewFixture(t)
	var want []string
	for i := range 7 {
		name := string(rune('a' + i))
		c.Complete(c.Create(name, []Option{Delay(time.Hour), Every(time.Hour)}[i%2]).ID)
		c.Create(name+"-active", []Option{Delay(time.Hour), Every(time.Hour)}[i%2])
		want = append([]string{name}, want...)
	}
	f := jobs.Filter{State: domain.JobCompleted, Page: pg.Page{Limit: 2}}
	var got []string
	for pages := 0; pages == 0 || f.Cursor != "" && pages < 10; pages++ {
		list, next, err := c.Jobs.ListJobs(t.Context(), c.Tenant, f)
		c.Must(err)
		for _, j := range list {
			got = append(got, j.Definition.Name)
		}
		f.Cursor = next
	}
	if !slices.Equal(got, want) {
		t.Errorf("completed are %q", got)
	}
}

// Completed one-shots are most of the jobs, or hardly any.
func TestAListOfCompletedJobsReadsItsPage(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Many(15_000, "every", -1e15, Every(time.Hour))
	c.Many(15_000, "once", -1e15, At(c.Clock()))
	c.Exec(`DELETE FROM punctual.schedules s USING punctual.jobs j WHERE j.id = s.job_id AND j.kind = 'at'`)
	c.Exec(`ANALYZE`)
	watch := c.Reopened(t, dsn)
	// How far a page looks is read from an index of jobs, which would have to be vacuumed for that.
	read := watch.PagesRead(`^(schedules|job_versions)$`, func() {
		list, next, err := watch.Jobs.ListJobs(t.Context(), watch.Tenant, jobs.Filter{State: domain.JobCompleted})
		if err != nil || len(list) != 50 || next == "" {
			t.Errorf("%d jobs, then %q, %v", len(list), next, err)
		}
	})
	if read > 1000 {
		t.Errorf("%d pages were read", read)
	}
}

// A page looks into so many one-shots. If none of them is completed, it is empty and its cursor goes on.
func TestAListOfCompletedJobsGoesOnAfterManyOneShots(t *testing.T) {
	c := NewReplica(t)
	a := shot(c, "a")
	c.Many(21_000, "once", -1e15, At(c.Clock()))
	list, next, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{State: domain.JobCompleted})
	if err != nil || len(list) != 0 || next == "" {
		t.Fatalf("%d jobs, then %q, %v", len(list), next, err)
	}
	page := pg.Page{Cursor: next}
	list, next, err = c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{State: domain.JobCompleted, Page: page})
	if err != nil || len(list) != 1 || list[0].ID != a.Job.ID || next != "" {
		t.Errorf("%d jobs, then %q, %v", len(list), next, err)
	}
}
