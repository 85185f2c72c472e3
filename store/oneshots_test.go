package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// shot creates a one-shot and claims its slot.
func (c claimer) shot(name string, options ...option) domain.Assignment {
	c.t.Helper()
	job := c.create(name, append([]option{at(c.now().Add(time.Hour))}, options...)...)
	c.slotAgo(job.ID, 3*time.Second)
	return c.one(c.claim(100, false))
}

func (c crud) schedules() int { return c.count(`SELECT count(*) FROM punctual.schedules`) }

// weekLater has everything that was completed be completed 8 days ago.
func (c crud) weekLater() {
	c.t.Helper()
	c.exec(`UPDATE punctual.completions SET look_at = look_at - interval '8 days', completed_at = completed_at - interval '8 days'`)
	c.exec(`UPDATE punctual.runs SET created_at = created_at - interval '8 days'`)
	c.exec(`UPDATE punctual.schedules SET completed_at = completed_at - interval '8 days'`)
}

func (c crud) forget(want int) {
	c.t.Helper()
	if n, _, err := c.Jobs.ForgetCompletedJobs(c.t.Context()); err != nil || n != want {
		c.t.Errorf("%d jobs forgotten, want %d: %v", n, want, err)
	}
}

// An update would write the entries of indexes again.
func TestTheClaimOfAOneShotDeletesItsSchedule(t *testing.T) {
	c := newClaimer(t)
	c.many(100, "shot", 0, at(c.now()))
	c.create("lasting")
	if n := len(c.claim(100, false).Runs); n != 100 {
		t.Fatalf("%d runs", n)
	}
	if n := c.schedules(); n != 1 {
		t.Errorf("%d schedules", n)
	}
	if n := c.count(`SELECT cardinality(job_ids) FROM punctual.completions`); n != 100 {
		t.Errorf("a completion of %d jobs", n)
	}
}

// A recurring job keeps its row: it is never forgotten, and its runs may be.
func TestTheClaimOfARecurringJobsLastSlotKeepsItsSchedule(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("job")
	c.exec(`UPDATE punctual.job_versions SET definition =
		jsonb_set(definition::jsonb, '{schedule,ends_at}', to_jsonb(to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))`)
	c.one(c.claim(100, false))
	c.exec(`DELETE FROM punctual.runs`)
	if got := c.get(job.ID.String()); got.State != domain.JobCompleted || got.CompletedAt == nil {
		t.Errorf("the job is %s since %v", got.State, got.CompletedAt)
	}
}

// What a caller does with a completed one-shot does not depend on how it was completed.
func TestACompletedOneShotIsAJobLikeOthers(t *testing.T) {
	high := func(d *domain.Definition) { d.Priority = domain.PriorityHigh }
	for name, does := range map[string]func(c claimer, a domain.Assignment){
		"it shows when it was completed": func(c claimer, a domain.Assignment) {
			got := c.get("a")
			if want := c.run(a.RunID).CreatedAt; got.State != domain.JobCompleted || !sameInstant(got.CompletedAt, &want) {
				t.Errorf("%s since %v, want %v", got.State, got.CompletedAt, want)
			}
		},
		"it is shown by the view": func(c claimer, _ domain.Assignment) {
			if got := c.text(`SELECT state || ' ' || priority FROM punctual.job_status`); got != "completed high" {
				t.Error(got)
			}
		},
		"a change of its description leaves it completed": func(c claimer, a domain.Assignment) {
			got := c.edit("a", described("x"))
			if want := c.run(a.RunID).CreatedAt; got.State != domain.JobCompleted || !sameInstant(got.CompletedAt, &want) {
				t.Errorf("%s since %v, want %v", got.State, got.CompletedAt, want)
			}
		},
		"a new schedule starts it again, and its claim completes it again": func(c claimer, a domain.Assignment) {
			if got := c.edit("a", at(c.now().Add(2*time.Hour))); got.State != domain.JobActive || got.NextRunAt == nil {
				t.Fatalf("%s, next at %v", got.State, got.NextRunAt)
			}
			c.slotAgo(a.Job.ID, 0)
			again := c.one(c.claim(100, false))
			if got := c.get("a"); got.State != domain.JobCompleted || again.Lane%4 != 0 || c.schedules() != 0 {
				t.Errorf("%s, in lane %d, %d schedules", got.State, again.Lane, c.schedules())
			}
		},
		"a trigger runs it with its priority": func(c claimer, _ domain.Assignment) {
			c.trigger("a")
			if again := c.one(c.claimReady(100)); again.Lane%4 != 0 || c.get("a").State != domain.JobCompleted {
				t.Errorf("in lane %d, the job is %s", again.Lane, c.get("a").State)
			}
		},
		"a PUT without a change leaves it alone": func(c claimer, a domain.Assignment) {
			if got, created := c.put(a.Job.Definition); created || got.Version != 1 || got.State != domain.JobCompleted {
				t.Errorf("%t, version %d, %s", created, got.Version, got.State)
			}
		},
		"it can be deleted": func(c claimer, a domain.Assignment) {
			c.must(c.Jobs.DeleteJob(c.t.Context(), c.tenant, "a", nil, false))
			wantError(c.t, c.Jobs.DeleteJob(c.t.Context(), c.tenant, a.Job.ID.String(), nil, false), ErrNotFound)
		},
		"it cannot be paused": func(c claimer, _ domain.Assignment) {
			_, err := c.Jobs.PauseJob(c.t.Context(), c.tenant, "a", "", nil)
			wantError(c.t, err, pg.ErrState)
		},
		"another tenant does not see it": func(c claimer, a domain.Assignment) {
			_, err := c.Jobs.GetJob(c.t.Context(), c.newTenant("other").ID, a.Job.ID.String())
			wantError(c.t, err, ErrNotFound)
			wantError(c.t, c.Jobs.DeleteJob(c.t.Context(), c.newTenant("third").ID, a.Job.ID.String(), nil, false), ErrNotFound)
			if c.schedules() != 0 {
				c.t.Error("another tenant gave it a schedule")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			a := c.shot("a", high)
			if n := c.schedules(); n != 0 {
				t.Fatalf("%d schedules", n)
			}
			does(c, a)
		})
	}
}

func TestOneShotsThatWereClaimedAreForgottenAfterAWeek(t *testing.T) {
	ended := func(c claimer, a domain.Assignment) { c.finishAll([]domain.Assignment{a}) }
	t.Run("each after seven days", func(t *testing.T) {
		c := newClaimer(t)
		ended(c, c.shot("old"))
		c.weekLater()
		ended(c, c.shot("recent"))
		c.forget(1)
		c.forget(0)
		if got := c.jobNames(jobs.Filter{}); !slices.Equal(got, []string{"recent"}) {
			t.Errorf("left are %q", got)
		}
		if n := c.count(`SELECT count(*) FROM punctual.completions`); n != 1 {
			t.Errorf("%d completions", n)
		}
		if ago := c.count(`SELECT (now()::date - deleted_at::date) FROM punctual.jobs WHERE state = 'deleted'`); ago != 8 {
			t.Errorf("it was completed %d days ago", ago)
		}
	})
	t.Run("but not while its run has not ended", func(t *testing.T) {
		c := newClaimer(t)
		a := c.shot("busy")
		c.weekLater()
		c.forget(0)
		ended(c, a)
		c.forget(0) // it is looked at again after some hours
		c.exec(`UPDATE punctual.completions SET look_at = now()`)
		c.forget(1)
	})
	t.Run("nor if it was completed again since", func(t *testing.T) {
		c := newClaimer(t)
		a := c.shot("a")
		ended(c, a)
		c.weekLater()
		c.edit("a", at(c.now().Add(time.Hour)))
		c.forget(0)
		c.slotAgo(a.Job.ID, 0)
		ended(c, c.one(c.claim(100, false)))
		c.forget(0)
		c.weekLater()
		c.forget(1)
		if n := c.count(`SELECT count(*) FROM punctual.completions`); n != 0 {
			t.Errorf("%d completions", n)
		}
	})
	t.Run("nor if it was completed again for an earlier instant", func(t *testing.T) {
		c := newClaimer(t)
		a := c.shot("a")
		ended(c, a)
		c.weekLater()
		c.edit("a", at(c.now().Add(-30*time.Minute)))
		ended(c, c.one(c.claim(100, true)))
		c.exec(`DELETE FROM punctual.runs`) // nor if runs are kept for a day only
		c.forget(0)
	})
	t.Run("also if it was changed since", func(t *testing.T) {
		c := newClaimer(t)
		ended(c, c.shot("a"))
		c.edit("a", described("x"))
		c.weekLater()
		c.forget(1)
		if n := c.count(`SELECT count(*) FROM punctual.completions`); n != 0 {
			t.Errorf("%d completions", n)
		}
	})
	t.Run("also if its run is no longer kept, and then it is purged", func(t *testing.T) {
		c := newClaimer(t)
		ended(c, c.shot("a"))
		c.weekLater()
		c.exec(`DELETE FROM punctual.runs`)
		c.forget(1)
		c.exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '60 days'`)
		if n, _, err := c.Jobs.PurgeJobs(t.Context()); err != nil || n != 1 {
			t.Errorf("%d purged, %v", n, err)
		}
	})
}

// An edit that is under way keeps its job, and a job that is being forgotten is not edited back to life.
func TestAnEditAndForgettingDoNotMeet(t *testing.T) {
	c := newClaimer(t)
	a := c.shot("a")
	c.finishAll([]domain.Assignment{a})
	c.weekLater()
	_, err := c.Jobs.EditJob(t.Context(), c.tenant, "a", nil, func(j jobs.Record) (jobs.NewJob, error) {
		c.forget(0)
		j.Definition.Description = "x"
		return jobs.NewJob{Definition: j.Definition}, nil
	})
	c.must(err)
	if got := c.get("a"); got.State != domain.JobCompleted || got.Version != 2 {
		t.Errorf("%s at version %d", got.State, got.Version)
	}

	b := c.shot("b")
	c.finishAll([]domain.Assignment{b})
	tx, err := c.DB.Callers.Begin(t.Context())
	c.must(err)
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`, b.Job.ID)
	c.must(err)
	edited := make(chan error)
	go func() {
		_, err := c.tryEdit(b.Job.ID.String(), at(c.now().Add(time.Hour)))
		edited <- err
	}()
	c.waiting(1)
	_, err = tx.Exec(t.Context(), `UPDATE punctual.jobs SET state = 'deleted', named = false, deleted_at = now() WHERE id = $1`,
		b.Job.ID)
	c.must(err)
	c.must(tx.Commit(t.Context()))
	wantError(t, <-edited, ErrNotFound)
	_, err = c.Jobs.GetJob(t.Context(), c.tenant, b.Job.ID.String())
	wantError(t, err, ErrNotFound)
}

// A claim deletes the row that an edit waits for. The edit finds the job all the same.
func TestAnEditThatWaitsForTheClaimOfAOneShotFindsTheJob(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a", at(c.now().Add(time.Hour)))
	tx, err := c.DB.Callers.Begin(t.Context())
	c.must(err)
	_, err = tx.Exec(t.Context(), `DELETE FROM punctual.schedules WHERE job_id = $1`, job.ID)
	c.must(err)
	edited := make(chan error)
	go func() {
		_, err := c.tryEdit(job.ID.String(), described("x"))
		edited <- err
	}()
	c.waiting(1)
	c.must(tx.Commit(t.Context()))
	c.must(<-edited)
	if got := c.get(job.ID.String()); got.State != domain.JobCompleted || got.Version != 2 {
		t.Errorf("%s at version %d", got.State, got.Version)
	}
}

// A restart that is not committed yet keeps the job's name.
func TestTheNameOfAJobThatIsRestartedIsNotReleased(t *testing.T) {
	c := newClaimer(t)
	a := c.shot("a")
	tx, err := c.DB.Callers.Begin(t.Context())
	c.must(err)
	for _, restart := range []string{
		`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
			SELECT id, now() + interval '1 h', now() + interval '1 h', tenant, 2, 5, true FROM punctual.jobs WHERE id = $1`,
		`INSERT INTO punctual.job_versions (job_id, version, state, definition)
			SELECT job_id, 2, state, definition FROM punctual.job_versions WHERE job_id = $1`,
		`UPDATE punctual.jobs SET version = 2 WHERE id = $1`,
	} {
		_, err := tx.Exec(t.Context(), restart, a.Job.ID)
		c.must(err)
	}
	created := make(chan error)
	go func() {
		_, err := c.tryCreate("a")
		created <- err
	}()
	c.waiting(1)
	c.must(tx.Commit(t.Context()))
	wantError(t, <-created, jobs.ErrNameTaken)
	if got := c.get("a"); got.ID != a.Job.ID || got.State != domain.JobActive {
		t.Errorf("the name means %s, which is %s", got.ID, got.State)
	}
}

// The first claim reads the definitions after it has locked the slots, the others with the slots.
func TestOneShotsAreClaimedWithTheirDefinitions(t *testing.T) {
	c := openClaimer(t, pgtest.DSN(t))
	c.many(30, "shot", 0, at(c.now()), described("x"))
	for range 3 {
		for _, a := range c.claim(10, false).Runs {
			name := value[string](c.crud, `SELECT name FROM punctual.jobs WHERE id = $1`, a.Job.ID)
			if a.Job.Description != "x" || !strings.HasPrefix(name, "shot-") || a.Job.Schedule.Kind() != domain.KindAt {
				t.Errorf("%s: %+v", name, a.Job)
			}
		}
	}
	if n := c.schedules(); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	if n := c.count(`SELECT sum(generic_plans + custom_plans)::int FROM pg_prepared_statements
		WHERE statement LIKE '%SELECT v.job_id, v.version, v.definition%'`); n != 1 {
		t.Errorf("definitions were read apart from the slots in %d of 3 claims, want 1", n)
	}
	broken := c.create("broken", at(c.now().Add(time.Hour)))
	c.slotAgo(broken.ID, 0)
	c.exec(`UPDATE punctual.job_versions SET definition = '{"newer":1}' WHERE job_id = $1`, broken.ID)
	if n := len(c.claim(10, false).Runs); n != 0 || c.schedules() != 1 {
		t.Errorf("%d runs of a definition that cannot be read, %d schedules", n, c.schedules())
	}
}

// What another transaction has locked of a completed one-shot holds up that job alone.
func TestALockedOneShotHoldsUpNoOther(t *testing.T) {
	for name, lock := range map[string]string{
		"that is forgotten": `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`,
		"that is edited": `WITH shared AS (SELECT id FROM punctual.jobs WHERE id = $1 FOR KEY SHARE)
			INSERT INTO punctual.schedules (job_id, tenant, version, lane, enabled, completed_at)
			SELECT id, 1, 1, 5, false, now() FROM shared`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			a := c.shot("a", labelled("team", "x"))
			c.finishAll([]domain.Assignment{a})
			c.team("b", "c")
			free := c.locks(lock, a.Job.ID)
			o := c.startJobs(changing(jobs.DeleteMany, ofTeam))
			c.batch()
			c.wantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			free()
			c.work()
			c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0)
			if state := c.text(`SELECT state FROM punctual.jobs WHERE id = $1`, a.Job.ID); state != "deleted" {
				t.Errorf("it is %s", state)
			}
		})
	}
}

// Nobody takes a recurring job whose row is gone for a completed one.
func TestARecurringJobWithoutAScheduleIsNotCompleted(t *testing.T) {
	c := newCRUD(t)
	job := c.create("a")
	c.exec(`DELETE FROM punctual.schedules`)
	if got := c.get(job.ID.String()); got.State != domain.JobActive || got.NextRunAt != nil {
		t.Errorf("%s, next at %v", got.State, got.NextRunAt)
	}
	_, err := c.tryEdit(job.ID.String(), described("x"))
	wantError(t, err, ErrNotFound)
}

// A list of completed jobs pages through one-shots without a schedule and other jobs with one, newest first.
func TestCompletedJobsArePagedThrough(t *testing.T) {
	c := newCRUD(t)
	var want []string
	for i := range 7 {
		name := string(rune('a' + i))
		c.complete(c.create(name, []option{delay(time.Hour), every(time.Hour)}[i%2]).ID)
		c.create(name+"-active", []option{delay(time.Hour), every(time.Hour)}[i%2])
		want = append([]string{name}, want...)
	}
	f := jobs.Filter{State: domain.JobCompleted, Page: pg.Page{Limit: 2}}
	var got []string
	for pages := 0; pages == 0 || f.Cursor != "" && pages < 10; pages++ {
		list, next, err := c.Jobs.ListJobs(t.Context(), c.tenant, f)
		c.must(err)
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
	c := openClaimer(t, dsn)
	c.many(15_000, "every", -1e15, every(time.Hour))
	c.many(15_000, "once", -1e15, at(c.now()))
	c.exec(`DELETE FROM punctual.schedules s USING punctual.jobs j WHERE j.id = s.job_id AND j.kind = 'at'`)
	c.exec(`ANALYZE`)
	c.Close()
	watch := openClaimer(t, dsn)
	// How far a page looks is read from an index of jobs, which would have to be vacuumed for that.
	read := watch.pagesRead(`^(schedules|job_versions)$`, func() {
		list, next, err := watch.Jobs.ListJobs(t.Context(), watch.tenant, jobs.Filter{State: domain.JobCompleted})
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
	c := newClaimer(t)
	a := c.shot("a")
	c.many(21_000, "once", -1e15, at(c.now()))
	list, next, err := c.Jobs.ListJobs(t.Context(), c.tenant, jobs.Filter{State: domain.JobCompleted})
	if err != nil || len(list) != 0 || next == "" {
		t.Fatalf("%d jobs, then %q, %v", len(list), next, err)
	}
	page := pg.Page{Cursor: next}
	list, next, err = c.Jobs.ListJobs(t.Context(), c.tenant, jobs.Filter{State: domain.JobCompleted, Page: page})
	if err != nil || len(list) != 1 || list[0].ID != a.Job.ID || next != "" {
		t.Errorf("%d jobs, then %q, %v", len(list), next, err)
	}
}
