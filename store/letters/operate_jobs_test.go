package letters_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// countJobs is a dry run.
func countJobs(c Fixture, r letters.JobsRequest) int {
	c.T.Helper()
	n, err := c.Letters.CountSelectedJobs(c.T.Context(), c.Tenant, r)
	Must(c.T, err)
	return n
}

// states returns the names of the tenant's jobs by their state, deleted ones included, in alphabetical order.
func states(c Fixture) map[string]string {
	c.T.Helper()
	states, err := pg.Map[string, string](c.T.Context(), c.DB.Callers, `
		SELECT punctual.job_state(j, s), string_agg(j.name, ' ' ORDER BY j.name)
		FROM punctual.jobs j LEFT JOIN punctual.schedules s ON s.job_id = j.id WHERE j.tenant = $1 GROUP BY 1`, c.Tenant)
	Must(c.T, err)
	return states
}

func wantStates(c Fixture, want map[string]string) {
	c.T.Helper()
	if diff := cmp.Diff(want, states(c)); diff != "" {
		c.T.Error(diff)
	}
}

func TestPauseOfManyJobs(t *testing.T) {
	c := NewFixture(t)
	c.Team("a", "b", "done", "rests")
	c.Create("other")
	due := c.Create("due", Labelled("team", "x"), HalfPast)
	c.Complete(c.Get("done").ID)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	c.PauseWith("rests", "broken", nil)
	stranger := c.Intruder()
	stranger.Team("a", "b")
	r := Changing(jobs.PauseMany, OfTeam)
	r.Until = &until
	if n := countJobs(c, r); n != 4 {
		t.Errorf("a dry run counts %d", n)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.operations`); n != 0 {
		t.Fatal("a dry run started something")
	}
	o := c.StartJobs(r)
	c.WantProgress(o.ID, letters.OperationRunning, 4, 0, 0)
	if !c.Wants(letters.Chore) {
		t.Error("no heartbeat asks for it")
	}
	c.Team("later")
	c.SlotAgo(due.ID, time.Second)
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 4, 4, 0)
	wantStates(c, map[string]string{"active": "later other", "paused": "a b due rests", "completed": "done"})
	wantStates(stranger, map[string]string{"active": "a b"})
	if job := c.Get("a"); job.PauseNote != "why" || !SameInstant(job.PausedUntil, &until) || job.Version != 2 {
		t.Errorf("%+v", job)
	}
	if job := c.Get("rests"); job.PauseNote != "broken" || job.PausedUntil != nil || job.Version != 2 {
		t.Errorf("what was paused before is now %+v", job)
	}
	c.WantHistory(due.ID, "schedule pending") // it was due before the pause
	if n := c.Count(`SELECT count(*) FROM punctual.operation_jobs`); n != 0 || c.Wants(letters.Chore) {
		t.Errorf("%d rows are left", n)
	}
}

func TestResumeOfManyJobs(t *testing.T) {
	c := NewFixture(t)
	c.Team("a", "b", "done")
	c.Create("once", Labelled("team", "x"), At(time.Now().Add(time.Hour)))
	c.Create("other")
	for _, name := range []string{"a", "once", "other"} {
		c.Pause(name)
	}
	c.Complete(c.Get("done").ID)
	c.SlotAgo(c.Get("a").ID, 3*time.Hour)
	c.SlotAgo(c.Get("once").ID, time.Second)
	o := c.StartJobs(Changing(jobs.ResumeMany, OfTeam))
	c.Work()
	if got := c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0); got.SkippedWhilePaused != 4 {
		t.Errorf("%d slots passed while they were paused, want 4", got.SkippedWhilePaused)
	}
	wantStates(c, map[string]string{"active": "a b", "paused": "other", "completed": "done once"})
	c.WantHistory(c.Get("a").ID, "schedule skipped paused x4")
	c.WantHistory(c.Get("once").ID, "catchup pending late")
	if job := c.Get("b"); job.Version != 1 {
		t.Errorf("what was active before has version %d", job.Version)
	}
}

func TestDeleteOfManyJobs(t *testing.T) {
	c := NewFixture(t)
	c.Team("a", "done")
	gated := c.Create("gated", Labelled("team", "x"), Forbid)
	c.Create("other")
	c.Complete(c.Get("done").ID)
	c.Trigger("a")
	run := c.Trigger("gated")
	a := c.Get("a").ID
	c.SlotAgo(a, time.Second)
	if n := countJobs(c, Changing(jobs.DeleteMany, OfTeam)); n != 3 {
		t.Errorf("a dry run counts %d", n)
	}
	o := c.StartJobs(Changing(jobs.DeleteMany, OfTeam))
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
	wantStates(c, map[string]string{"active": "other", "deleted": "a done gated"})
	if got := c.HistoryOf(a); !slices.Contains(got, "schedule skipped job_deleted x1") ||
		!slices.Contains(got, "manual cancelled job_deleted") {
		t.Errorf("history %q", got)
	}
	if got := c.Run(run.ID); got.Status != domain.StatusCancelled {
		t.Errorf("%+v", got)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.exclusive WHERE active_run IS NOT NULL`); n != 0 || c.Ready(gated.ID) != 0 {
		t.Error("a cancelled run still waits or holds the gate")
	}
	c.Team("a") // the name is free
}

// Each job's change is on record as of the caller who asked for the operation, and in the job's own history.
func TestChangesOfManyJobsAreTheirCallers(t *testing.T) {
	c := NewFixture(t)
	c.Team("a")
	var since uuid.UUID
	c.Entries(&since)
	for _, k := range []struct {
		action        jobs.Action
		want          string
		before, after string
	}{
		{jobs.PauseMany, "job.pause", `{"version":1,"state":"active"}`, `{"version":2,"state":"paused","note":"why"}`},
		{
			jobs.ResumeMany, "job.resume", `{"version":2,"state":"paused","note":"why"}`,
			`{"version":3,"state":"active","note":"why"}`,
		},
		{jobs.DeleteMany, "job.delete", `{"version":3,"state":"active","definition":{`, ``},
	} {
		o := c.StartJobs(Changing(k.action, OfTeam))
		c.Work() // as a chore: its context names nobody
		log := c.Entries(&since)
		if len(log) != 2 || log[0].Action != audit.OperationCreate || log[0].ResourceID == nil ||
			*log[0].ResourceID != o.ID ||
			string(log[1].Action) != k.want || OrEmpty(log[1].Name) != "a" {
			t.Fatalf("%s: %+v", k.action, log)
		}
		for _, entry := range log {
			got := audit.Actor{Kind: entry.ActorKind, Name: OrEmpty(entry.Actor), RequestID: OrEmpty(entry.RequestID)}
			if got.Address, _ = netip.ParseAddr(OrEmpty(entry.Address)); got != Alice {
				t.Errorf("%s is by %+v", entry.Action, got)
			}
		}
		if !strings.HasPrefix(string(log[1].Before), k.before) || !strings.HasPrefix(string(log[1].After), k.after) ||
			(k.after == "") != (log[1].After == nil) {
			t.Errorf("%s: from %s to %s", k.action, log[1].Before, log[1].After)
		}
	}
	c.WantCount(3, "versions have the note", `SELECT count(*) FROM punctual.job_versions WHERE note = 'why'`)
}

// A change selects the jobs that a list with the same filter shows. Pauses and resumes leave out completed ones.
func TestChangesSelectWhatListsShow(t *testing.T) {
	c := NewFixture(t)
	c.Exec(`INSERT INTO punctual.queues (name) VALUES ('slow')`)
	c.Team("etl-1", "etl-2", "etl_done")
	c.Create("slow", func(d *jobspec.Definition) { d.Queue = "slow" }, Described("Loads 100% of ETL"))
	c.Create("gone", Labelled("team", "x"))
	c.Complete(c.Get("etl_done").ID)
	c.Pause("etl-2")
	c.DeleteJob("gone")
	stranger := c.Intruder()
	stranger.Team("etl-1")
	for name, f := range map[string]jobs.Filter{
		"all": {}, "by state": {State: domain.JobPaused}, "completed": {State: domain.JobCompleted},
		"by queue": {Queue: "slow"}, "of no queue": {Queue: "none"}, "by label": OfTeam,
		"by prefix": {NamePrefix: "etl-"}, "by text": {Query: "etl"}, "by a text with marks": {Query: "100%"},
		"by everything": {
			State: domain.JobActive, Queue: "default", Labels: OfTeam.Labels, NamePrefix: "etl", Query: "-",
		},
	} {
		listed, _, err := c.Jobs.ListJobs(t.Context(), c.Tenant, f)
		Must(t, err)
		unended := 0
		for _, job := range listed {
			if job.State != domain.JobCompleted {
				unended++
			}
		}
		for action, want := range map[jobs.Action]int{
			jobs.DeleteMany: len(listed), jobs.PauseMany: unended, jobs.ResumeMany: unended,
		} {
			r := Changing(action, f)
			if got := countJobs(c, r); got != want {
				t.Errorf("%s, %s: a dry run counts %d, want %d", name, action, got, want)
			}
			o := c.StartJobs(r)
			if o.Matched != want || o.State == letters.OperationDone != (want == 0) {
				t.Errorf("%s, %s: %+v, want %d", name, action, o, want)
			}
		}
	}
}

// A job changes before its turn in an operation. If it no longer matches, it stays as it is.
//
//prove:claims
func TestJobsThatChangeBeforeTheirTurn(t *testing.T) {
	t.Parallel()
	for action, want := range map[jobs.Action]struct {
		done, failed int
		says         string
		states       map[string]string
	}{
		jobs.PauseMany: {2, 4, `job "z-unlabelled" no longer matches the filter`, map[string]string{
			"active": "s-due z-unlabelled", "paused": "a-same b-paused", "completed": "c-done", "deleted": "d-gone",
		}},
		jobs.DeleteMany: {5, 1, `job "z-unlabelled" no longer matches the filter`, map[string]string{
			"active": "z-unlabelled", "deleted": "a-same b-paused c-done d-gone s-due",
		}},
	} {
		t.Run(string(action), func(t *testing.T) {
			c := NewFixture(t)
			c.Team("a-same", "b-paused", "c-done", "d-gone")
			due := c.Create("s-due", Labelled("team", "x"), At(time.Now().Add(time.Hour)))
			c.Team("z-unlabelled")
			o := c.StartJobs(Changing(action, OfTeam))
			c.PauseWith("b-paused", "mine", nil)
			c.Complete(c.Get("c-done").ID)
			c.DeleteJob("d-gone")
			c.SlotAgo(due.ID, 0) // a pause comes too late for its only slot
			c.Edit("z-unlabelled", func(d *jobspec.Definition) { d.Labels = nil })
			c.Work()
			got := c.WantProgress(o.ID, letters.OperationDone, 6, want.done, want.failed)
			if !strings.HasPrefix(OrEmpty(got.Error), want.says) {
				t.Errorf("it says %q", OrEmpty(got.Error))
			}
			wantStates(c, want.states)
			if action == jobs.PauseMany {
				if job := c.Get("b-paused"); job.PauseNote != "mine" {
					t.Errorf("%+v", job)
				}
				c.WantHistory(due.ID) // the pause that was refused has left nothing
			}
		})
	}
}

func TestAPauseThatWouldBeOverPausesNothing(t *testing.T) {
	c := NewFixture(t)
	c.Team("a")
	r := Changing(jobs.PauseMany, OfTeam)
	r.Until = new(time.Now().Add(-time.Minute))
	o := c.StartJobs(r)
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 1, 0, 1)
	wantStates(c, map[string]string{"active": "a"})
}

func TestCancelOfAnOperationOnJobs(t *testing.T) {
	c := NewFixture(t)
	c.Team("a", "b", "c", "d", "e")
	r := Changing(jobs.DeleteMany, OfTeam)
	r.MaxPerSecond = 8
	o := c.StartJobs(r)
	c.Batch()
	c.WantProgress(o.ID, letters.OperationRunning, 5, 2, 0)
	for range 2 {
		if got, err := c.Letters.CancelOperation(t.Context(), c.Tenant, o.ID); err != nil ||
			got.State != letters.OperationCancelled {
			t.Fatalf("%+v (%v)", got, err)
		}
	}
	if c.Batch() {
		t.Error("work is left")
	}
	c.WantProgress(o.ID, letters.OperationCancelled, 5, 2, 0)
	wantStates(c, map[string]string{"active": "c d e", "deleted": "a b"})
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.operation_jobs`)
}

func TestAnOperationOnJobsKeepsToItsRate(t *testing.T) {
	c := NewFixture(t)
	c.Team("a", "b", "c", "d", "e", "f", "g", "h", "i")
	r := Changing(jobs.PauseMany, jobs.Filter{})
	r.MaxPerSecond = 10
	o := c.StartJobs(r)
	c.Work() // as fast as possible: the operation's row says when the next batch is too early
	c.WantProgress(o.ID, letters.OperationDone, 9, 9, 0)
	wantAtRate(c)
}

func TestAnOperationOnNoJobsIsDoneAtOnce(t *testing.T) {
	c := NewFixture(t)
	o := c.StartJobs(Changing(jobs.DeleteMany, jobs.Filter{}))
	c.WantProgress(o.ID, letters.OperationDone, 0, 0, 0)
}

// A batch holds its jobs until it is committed, and callers give up on a held job after 3 s.
func TestBatchesOfAnOperationOnJobsGetSmallerWhileTheDatabaseIsSlow(t *testing.T) {
	c := NewFixture(t)
	crowd(c, 60)
	o := c.StartJobs(Changing(jobs.PauseMany, jobs.Filter{}))
	hurry := c.Before("UPDATE", "jobs", `PERFORM pg_sleep(0.032);`)
	done := []int{0}
	for range 3 {
		c.Batch()
		done = append(done, c.Operation(o.ID).Done)
	}
	for i, most := range []int{25, 12, 12} {
		if n := done[i+1] - done[i]; n > most || n == 0 {
			t.Errorf("batch %d changed %d jobs, want 1 to %d: %v", i+1, n, most, done)
		}
	}
	hurry()
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 60, 60, 0)
	wantEachChangedOnce(c, 60)
}

// A batch of an operation is cut off before its commit. Another replica repeats it.
//
//prove:claims
func TestAnotherReplicaGoesOnWithAnOperationOnJobs(t *testing.T) {
	c := NewFixture(t)
	crowd(c, 250)
	o := c.StartJobs(Changing(jobs.PauseMany, jobs.Filter{}))
	c.Batch()
	c.WantProgress(o.ID, letters.OperationRunning, 250, 25, 0)

	spare := c.Before("UPDATE", "operations", `PERFORM pg_terminate_backend(pg_backend_pid());`)
	if _, _, err := c.Letters.Operate(t.Context()); err == nil {
		t.Fatal("the batch succeeded")
	}
	spare()
	c.WantProgress(o.ID, letters.OperationRunning, 250, 25, 0)
	c.WantCount(25, "jobs are paused", `SELECT count(*) FROM punctual.jobs WHERE state = 'paused'`)

	heir := NewFixtureOn(t, c.Options.DatabaseURL)
	heir.Work()
	c.WantProgress(o.ID, letters.OperationDone, 250, 250, 0)
	wantEachChangedOnce(c, 250)
}

func TestReplicasAtOnceChangeEachJobOnce(t *testing.T) {
	c := NewFixture(t)
	crowd(c, 250)
	var started []uuid.UUID
	for range 2 { // of two operations on the same jobs, the second finds what the first has done
		r := Changing(jobs.PauseMany, jobs.Filter{})
		r.MaxPerSecond = 1000
		started = append(started, c.StartJobs(r).ID)
	}
	workAtOnce(c).Wait()
	for _, id := range started {
		c.WantProgress(id, letters.OperationDone, 250, 250, 0)
	}
	wantEachChangedOnce(c, 250)
}

// crowd creates n jobs.
func crowd(c Fixture, n int) {
	c.T.Helper()
	all := make([]jobspec.Definition, n)
	for i := range all {
		all[i] = Definition(fmt.Sprintf("job-%03d", i))
	}
	if _, err := c.CreateMany(jobs.ConflictError, all...); err != nil {
		c.T.Fatal(err)
	}
}

// wantEachChangedOnce fails the test unless n jobs are paused, each with one entry in the audit log.
func wantEachChangedOnce(c Fixture, n int) {
	c.T.Helper()
	if got := c.Count(`SELECT count(*) FROM punctual.jobs WHERE state = 'paused' AND version = 2`); got != n {
		c.T.Errorf("%d jobs were paused once", got)
	}
	if all, of := c.Count(`SELECT count(*) FROM punctual.audit_log WHERE action = 'job.pause' AND actor = 'alice'`),
		c.Count(`SELECT count(DISTINCT job_id) FROM punctual.audit_log WHERE action = 'job.pause'`); all != n || of != n {
		c.T.Errorf("%d entries about %d jobs", all, of)
	}
}

// A locked job holds up no other in an operation on many.
//
//prove:claims
func TestALockedJobHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, rows := range []string{
		`schedules WHERE job_id = $1`, `exclusive WHERE job_id = $1`, `jobs WHERE id = $1`,
	} {
		t.Run(rows, func(t *testing.T) {
			c := NewReplica(t)
			locked := c.Create("a-locked", Labelled("team", "x"), Forbid)
			c.Team("b", "c")
			free := c.Stranger(rows, locked.ID)
			o := c.StartJobs(Changing(jobs.PauseMany, OfTeam))
			c.Batch()
			c.WantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			wantStates(c.Fixture, map[string]string{"active": "a-locked", "paused": "b c"})
			c.NextBatch()
			c.WantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			free()
			c.Work()
			c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		})
	}
}

// An operation that cannot get a lock lets others go first.
func TestALockedOperationHoldsUpNoOther(t *testing.T) {
	c := NewFixture(t)
	c.Team("a")
	first := c.StartJobs(Changing(jobs.PauseMany, OfTeam))
	dead := c.Die("a", 1)
	second := c.Start(letters.BulkRequest{Kind: letters.OperationResolve})
	free := c.Locks(`LOCK TABLE punctual.job_versions IN SHARE MODE`)
	c.Batch() // waits for the table, and is put off
	c.WantProgress(first.ID, letters.OperationRunning, 1, 0, 0)
	c.Batch()
	c.WantProgress(second.ID, letters.OperationDone, 1, 1, 0)
	if got := c.DeadLetters(letters.DeadLetterFilter{Resolved: resolved}); !slices.Equal(got, dead) {
		t.Errorf("resolved are %v", got)
	}
	free()
	c.Work()
	c.WantProgress(first.ID, letters.OperationDone, 1, 1, 0)
}

func TestOperationsOnJobsWorkInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		c.Create("a", Labelled("team", "x"), Forbid, Described("text"))
		filter := jobs.Filter{Queue: "default", Labels: OfTeam.Labels, NamePrefix: "a", Query: "tex"}
		for _, action := range []jobs.Action{jobs.PauseMany, jobs.ResumeMany, jobs.DeleteMany} {
			r := Changing(action, filter)
			r.Filter.State = domain.JobActive
			if action == jobs.ResumeMany {
				r.Filter.State = domain.JobPaused
			}
			r.Until = new(time.Now().Add(time.Hour))
			if n := countJobs(c, r); n != 1 {
				t.Errorf("%s: %d counted", action, n)
			}
			o := c.StartJobs(r)
			c.Work()
			c.WantProgress(o.ID, letters.OperationDone, 1, 1, 0)
		}
		started := c.StartJobs(Changing(jobs.PauseMany, jobs.Filter{}))
		c.WantProgress(started.ID, letters.OperationDone, 0, 0, 0)
	})
}
