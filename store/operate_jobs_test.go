package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// ofTeam selects the jobs that labelled("team", "x") marks.
var ofTeam = jobs.Filter{Labels: map[string]string{"team": "x"}}

// alice is who asks for operations in these tests.
var alice = audit.Actor{
	Kind: audit.Token, Name: "alice", Address: netip.MustParseAddr("203.0.113.7"), RequestID: "r-1",
}

func changing(action jobs.Action, f jobs.Filter) letters.JobsRequest {
	return letters.JobsRequest{Change: jobs.Change{Action: action, Filter: f, Note: "why"}}
}

func (c crud) startJobs(r letters.JobsRequest) letters.Operation {
	c.t.Helper()
	o, err := c.For(c.tenant).StartJobs(audit.WithActor(c.t.Context(), alice), r)
	must(c.t, err)
	return o
}

// countJobs is a dry run.
func (c crud) countJobs(r letters.JobsRequest) int {
	c.t.Helper()
	n, err := c.Letters.CountSelectedJobs(c.t.Context(), c.tenant, r)
	must(c.t, err)
	return n
}

// states returns the names of the tenant's jobs by their state, deleted ones included, in alphabetical order.
func (c crud) states() map[string]string {
	c.t.Helper()
	states, err := pg.Map[string, string](c.t.Context(), c.DB.Callers, `
		SELECT punctual.job_state(j, s), string_agg(j.name, ' ' ORDER BY j.name)
		FROM punctual.jobs j LEFT JOIN punctual.schedules s ON s.job_id = j.id WHERE j.tenant = $1 GROUP BY 1`, c.tenant)
	must(c.t, err)
	return states
}

func (c crud) wantStates(want map[string]string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.states()); diff != "" {
		c.t.Error(diff)
	}
}

// team creates jobs with the label that ofTeam selects.
func (c crud) team(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.create(name, labelled("team", "x"))
	}
}

func TestPauseOfManyJobs(t *testing.T) {
	c := newCRUD(t)
	c.team("a", "b", "done", "rests")
	c.create("other")
	due := c.create("due", labelled("team", "x"), halfPast)
	c.complete(c.get("done").ID)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	c.pauseWith("rests", "broken", nil)
	stranger := c.intruder()
	stranger.team("a", "b")
	r := changing(jobs.PauseMany, ofTeam)
	r.Until = &until
	if n := c.countJobs(r); n != 4 {
		t.Errorf("a dry run counts %d", n)
	}
	if n := c.count(`SELECT count(*) FROM punctual.operations`); n != 0 {
		t.Fatal("a dry run started something")
	}
	o := c.startJobs(r)
	c.wantProgress(o.ID, letters.OperationRunning, 4, 0, 0)
	if !c.wants(letters.Chore) {
		t.Error("no heartbeat asks for it")
	}
	c.team("later")
	c.slotAgo(due.ID, time.Second)
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 4, 4, 0)
	c.wantStates(map[string]string{"active": "later other", "paused": "a b due rests", "completed": "done"})
	stranger.wantStates(map[string]string{"active": "a b"})
	if job := c.get("a"); job.PauseNote != "why" || !sameInstant(job.PausedUntil, &until) || job.Version != 2 {
		t.Errorf("%+v", job)
	}
	if job := c.get("rests"); job.PauseNote != "broken" || job.PausedUntil != nil || job.Version != 2 {
		t.Errorf("what was paused before is now %+v", job)
	}
	c.wantHistory(due.ID, "schedule pending") // it was due before the pause
	if n := c.count(`SELECT count(*) FROM punctual.operation_jobs`); n != 0 || c.wants(letters.Chore) {
		t.Errorf("%d rows are left", n)
	}
}

func TestResumeOfManyJobs(t *testing.T) {
	c := newCRUD(t)
	c.team("a", "b", "done")
	c.create("once", labelled("team", "x"), at(time.Now().Add(time.Hour)))
	c.create("other")
	for _, name := range []string{"a", "once", "other"} {
		c.pause(name)
	}
	c.complete(c.get("done").ID)
	c.slotAgo(c.get("a").ID, 3*time.Hour)
	c.slotAgo(c.get("once").ID, time.Second)
	o := c.startJobs(changing(jobs.ResumeMany, ofTeam))
	c.work()
	if got := c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0); got.SkippedWhilePaused != 4 {
		t.Errorf("%d slots passed while they were paused, want 4", got.SkippedWhilePaused)
	}
	c.wantStates(map[string]string{"active": "a b", "paused": "other", "completed": "done once"})
	c.wantHistory(c.get("a").ID, "schedule skipped paused x4")
	c.wantHistory(c.get("once").ID, "catchup pending late")
	if job := c.get("b"); job.Version != 1 {
		t.Errorf("what was active before has version %d", job.Version)
	}
}

func TestDeleteOfManyJobs(t *testing.T) {
	c := newCRUD(t)
	c.team("a", "done")
	gated := c.create("gated", labelled("team", "x"), forbid)
	c.create("other")
	c.complete(c.get("done").ID)
	c.trigger("a")
	run := c.trigger("gated")
	a := c.get("a").ID
	c.slotAgo(a, time.Second)
	if n := c.countJobs(changing(jobs.DeleteMany, ofTeam)); n != 3 {
		t.Errorf("a dry run counts %d", n)
	}
	o := c.startJobs(changing(jobs.DeleteMany, ofTeam))
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0)
	c.wantStates(map[string]string{"active": "other", "deleted": "a done gated"})
	if got := c.history(a); !slices.Contains(got, "schedule skipped job_deleted x1") ||
		!slices.Contains(got, "manual cancelled job_deleted") {
		t.Errorf("history %q", got)
	}
	if got := c.run(run.ID); got.Status != domain.StatusCancelled {
		t.Errorf("%+v", got)
	}
	if n := c.count(`SELECT count(*) FROM punctual.exclusive WHERE active_run IS NOT NULL`); n != 0 || c.ready(gated.ID) != 0 {
		t.Error("a cancelled run still waits or holds the gate")
	}
	c.team("a") // the name is free
}

// Each job's change is on record as of the caller who asked for the operation, and in the job's own history.
func TestChangesOfManyJobsAreTheirCallers(t *testing.T) {
	c := newCRUD(t)
	c.team("a")
	var since uuid.UUID
	c.entries(&since)
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
		o := c.startJobs(changing(k.action, ofTeam))
		c.work() // as a chore: its context names nobody
		log := c.entries(&since)
		if len(log) != 2 || log[0].Action != audit.OperationCreate || log[0].ResourceID == nil ||
			*log[0].ResourceID != o.ID ||
			string(log[1].Action) != k.want || orEmpty(log[1].Name) != "a" {
			t.Fatalf("%s: %+v", k.action, log)
		}
		for _, entry := range log {
			got := audit.Actor{Kind: entry.ActorKind, Name: orEmpty(entry.Actor), RequestID: orEmpty(entry.RequestID)}
			if got.Address, _ = netip.ParseAddr(orEmpty(entry.Address)); got != alice {
				t.Errorf("%s is by %+v", entry.Action, got)
			}
		}
		if !strings.HasPrefix(string(log[1].Before), k.before) || !strings.HasPrefix(string(log[1].After), k.after) ||
			(k.after == "") != (log[1].After == nil) {
			t.Errorf("%s: from %s to %s", k.action, log[1].Before, log[1].After)
		}
	}
	c.wantCount(3, "versions have the note", `SELECT count(*) FROM punctual.job_versions WHERE note = 'why'`)
}

// A change selects the jobs that a list with the same filter shows. Pauses and resumes leave out completed ones.
func TestChangesSelectWhatListsShow(t *testing.T) {
	c := newCRUD(t)
	c.exec(`INSERT INTO punctual.queues (name) VALUES ('slow')`)
	c.team("etl-1", "etl-2", "etl_done")
	c.create("slow", func(d *domain.Definition) { d.Queue = "slow" }, described("Loads 100% of ETL"))
	c.create("gone", labelled("team", "x"))
	c.complete(c.get("etl_done").ID)
	c.pause("etl-2")
	c.deleteJob("gone")
	stranger := c.intruder()
	stranger.team("etl-1")
	for name, f := range map[string]jobs.Filter{
		"all": {}, "by state": {State: domain.JobPaused}, "completed": {State: domain.JobCompleted},
		"by queue": {Queue: "slow"}, "of no queue": {Queue: "none"}, "by label": ofTeam,
		"by prefix": {NamePrefix: "etl-"}, "by text": {Query: "etl"}, "by a text with marks": {Query: "100%"},
		"by everything": {
			State: domain.JobActive, Queue: "default", Labels: ofTeam.Labels, NamePrefix: "etl", Query: "-",
		},
	} {
		listed, _, err := c.Jobs.ListJobs(t.Context(), c.tenant, f)
		must(t, err)
		unended := 0
		for _, job := range listed {
			if job.State != domain.JobCompleted {
				unended++
			}
		}
		for action, want := range map[jobs.Action]int{
			jobs.DeleteMany: len(listed), jobs.PauseMany: unended, jobs.ResumeMany: unended,
		} {
			r := changing(action, f)
			if got := c.countJobs(r); got != want {
				t.Errorf("%s, %s: a dry run counts %d, want %d", name, action, got, want)
			}
			o := c.startJobs(r)
			if o.Matched != want || o.State == letters.OperationDone != (want == 0) {
				t.Errorf("%s, %s: %+v, want %d", name, action, o, want)
			}
		}
	}
}

// The jobs whose change another caller makes, prevents or no longer wants are left as they are.
func TestJobsThatChangeBeforeTheirTurn(t *testing.T) {
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
			c := newCRUD(t)
			c.team("a-same", "b-paused", "c-done", "d-gone")
			due := c.create("s-due", labelled("team", "x"), at(time.Now().Add(time.Hour)))
			c.team("z-unlabelled")
			o := c.startJobs(changing(action, ofTeam))
			c.pauseWith("b-paused", "mine", nil)
			c.complete(c.get("c-done").ID)
			c.deleteJob("d-gone")
			c.slotAgo(due.ID, 0) // a pause comes too late for its only slot
			c.edit("z-unlabelled", func(d *domain.Definition) { d.Labels = nil })
			c.work()
			got := c.wantProgress(o.ID, letters.OperationDone, 6, want.done, want.failed)
			if !strings.HasPrefix(orEmpty(got.Error), want.says) {
				t.Errorf("it says %q", orEmpty(got.Error))
			}
			c.wantStates(want.states)
			if action == jobs.PauseMany {
				if job := c.get("b-paused"); job.PauseNote != "mine" {
					t.Errorf("%+v", job)
				}
				c.wantHistory(due.ID) // the pause that was refused has left nothing
			}
		})
	}
}

func TestAPauseThatWouldBeOverPausesNothing(t *testing.T) {
	c := newCRUD(t)
	c.team("a")
	r := changing(jobs.PauseMany, ofTeam)
	r.Until = new(time.Now().Add(-time.Minute))
	o := c.startJobs(r)
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 1, 0, 1)
	c.wantStates(map[string]string{"active": "a"})
}

func TestCancelOfAnOperationOnJobs(t *testing.T) {
	c := newCRUD(t)
	c.team("a", "b", "c", "d", "e")
	r := changing(jobs.DeleteMany, ofTeam)
	r.MaxPerSecond = 8
	o := c.startJobs(r)
	c.batch()
	c.wantProgress(o.ID, letters.OperationRunning, 5, 2, 0)
	for range 2 {
		if got, err := c.Letters.CancelOperation(t.Context(), c.tenant, o.ID); err != nil ||
			got.State != letters.OperationCancelled {
			t.Fatalf("%+v (%v)", got, err)
		}
	}
	if c.batch() {
		t.Error("work is left")
	}
	c.wantProgress(o.ID, letters.OperationCancelled, 5, 2, 0)
	c.wantStates(map[string]string{"active": "c d e", "deleted": "a b"})
	c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.operation_jobs`)
}

func TestAnOperationOnJobsKeepsToItsRate(t *testing.T) {
	c := newCRUD(t)
	c.team("a", "b", "c", "d", "e", "f", "g", "h", "i")
	r := changing(jobs.PauseMany, jobs.Filter{})
	r.MaxPerSecond = 10
	o := c.startJobs(r)
	c.work() // as fast as possible: the operation's row says when the next batch is too early
	c.wantProgress(o.ID, letters.OperationDone, 9, 9, 0)
	c.wantAtRate()
}

func TestAnOperationOnNoJobsIsDoneAtOnce(t *testing.T) {
	c := newCRUD(t)
	o := c.startJobs(changing(jobs.DeleteMany, jobs.Filter{}))
	c.wantProgress(o.ID, letters.OperationDone, 0, 0, 0)
}

// A batch holds its jobs until it is committed, and callers give up on a held job after 3 s.
func TestBatchesOfAnOperationOnJobsGetSmallerWhileTheDatabaseIsSlow(t *testing.T) {
	c := newCRUD(t)
	c.crowd(60)
	o := c.startJobs(changing(jobs.PauseMany, jobs.Filter{}))
	hurry := c.before("UPDATE", "jobs", `PERFORM pg_sleep(0.032);`)
	done := []int{0}
	for range 3 {
		c.batch()
		done = append(done, c.operation(o.ID).Done)
	}
	for i, most := range []int{25, 12, 12} {
		if n := done[i+1] - done[i]; n > most || n == 0 {
			t.Errorf("batch %d changed %d jobs, want 1 to %d: %v", i+1, n, most, done)
		}
	}
	hurry()
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 60, 60, 0)
	c.wantEachChangedOnce(60)
}

// A replica dies after it has written the changes of a batch and before it commits. Another replica goes on.
func TestAnotherReplicaGoesOnWithAnOperationOnJobs(t *testing.T) {
	c := newCRUD(t)
	c.crowd(250)
	o := c.startJobs(changing(jobs.PauseMany, jobs.Filter{}))
	c.batch()
	c.wantProgress(o.ID, letters.OperationRunning, 250, 25, 0)

	spare := c.before("UPDATE", "operations", `PERFORM pg_terminate_backend(pg_backend_pid());`)
	if _, _, err := c.Letters.Operate(t.Context()); err == nil {
		t.Fatal("the batch succeeded")
	}
	spare()
	c.wantProgress(o.ID, letters.OperationRunning, 250, 25, 0)
	c.wantCount(25, "jobs are paused", `SELECT count(*) FROM punctual.jobs WHERE state = 'paused'`)

	heir := newCRUDOn(t, c.Options.DatabaseURL)
	heir.work()
	c.wantProgress(o.ID, letters.OperationDone, 250, 250, 0)
	c.wantEachChangedOnce(250)
}

func TestReplicasAtOnceChangeEachJobOnce(t *testing.T) {
	c := newCRUD(t)
	c.crowd(250)
	var started []uuid.UUID
	for range 2 { // of two operations on the same jobs, the second finds what the first has done
		r := changing(jobs.PauseMany, jobs.Filter{})
		r.MaxPerSecond = 1000
		started = append(started, c.startJobs(r).ID)
	}
	c.workAtOnce().Wait()
	for _, id := range started {
		c.wantProgress(id, letters.OperationDone, 250, 250, 0)
	}
	c.wantEachChangedOnce(250)
}

// crowd creates n jobs.
func (c crud) crowd(n int) {
	c.t.Helper()
	all := make([]domain.Definition, n)
	for i := range all {
		all[i] = definition(fmt.Sprintf("job-%03d", i))
	}
	if _, err := c.createMany(jobs.ConflictError, all...); err != nil {
		c.t.Fatal(err)
	}
}

// wantEachChangedOnce fails the test unless n jobs are paused, each with one entry in the audit log.
func (c crud) wantEachChangedOnce(n int) {
	c.t.Helper()
	if got := c.count(`SELECT count(*) FROM punctual.jobs WHERE state = 'paused' AND version = 2`); got != n {
		c.t.Errorf("%d jobs were paused once", got)
	}
	if all, of := c.count(`SELECT count(*) FROM punctual.audit_log WHERE action = 'job.pause' AND actor = 'alice'`),
		c.count(`SELECT count(DISTINCT job_id) FROM punctual.audit_log WHERE action = 'job.pause'`); all != n || of != n {
		c.t.Errorf("%d entries about %d jobs", all, of)
	}
}

// What another transaction has locked of a job holds up that job alone.
func TestALockedJobHoldsUpNoOther(t *testing.T) {
	for _, rows := range []string{
		`schedules WHERE job_id = $1`, `exclusive WHERE job_id = $1`, `jobs WHERE id = $1`,
	} {
		t.Run(rows, func(t *testing.T) {
			c := newClaimer(t)
			locked := c.create("a-locked", labelled("team", "x"), forbid)
			c.team("b", "c")
			free := c.stranger(rows, locked.ID)
			o := c.startJobs(changing(jobs.PauseMany, ofTeam))
			c.batch()
			c.wantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			c.wantStates(map[string]string{"active": "a-locked", "paused": "b c"})
			c.nextBatch()
			c.wantProgress(o.ID, letters.OperationRunning, 3, 2, 0)
			free()
			c.work()
			c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		})
	}
}

// An operation that cannot get a lock lets others go first.
func TestALockedOperationHoldsUpNoOther(t *testing.T) {
	c := newCRUD(t)
	c.team("a")
	first := c.startJobs(changing(jobs.PauseMany, ofTeam))
	dead := c.die("a", 1)
	second := c.start(letters.BulkRequest{Kind: letters.OperationResolve})
	free := c.locks(`LOCK TABLE punctual.job_versions IN SHARE MODE`)
	c.batch() // waits for the table, and is put off
	c.wantProgress(first.ID, letters.OperationRunning, 1, 0, 0)
	c.batch()
	c.wantProgress(second.ID, letters.OperationDone, 1, 1, 0)
	if got := c.letters(letters.DeadLetterFilter{Resolved: resolved}); !slices.Equal(got, dead) {
		t.Errorf("resolved are %v", got)
	}
	free()
	c.work()
	c.wantProgress(first.ID, letters.OperationDone, 1, 1, 0)
}

func TestOperationsOnJobsWorkInEveryExecMode(t *testing.T) {
	eachExecMode(t, func(t *testing.T, c crud) {
		c.create("a", labelled("team", "x"), forbid, described("text"))
		filter := jobs.Filter{Queue: "default", Labels: ofTeam.Labels, NamePrefix: "a", Query: "tex"}
		for _, action := range []jobs.Action{jobs.PauseMany, jobs.ResumeMany, jobs.DeleteMany} {
			r := changing(action, filter)
			r.Filter.State = domain.JobActive
			if action == jobs.ResumeMany {
				r.Filter.State = domain.JobPaused
			}
			r.Until = new(time.Now().Add(time.Hour))
			if n := c.countJobs(r); n != 1 {
				t.Errorf("%s: %d counted", action, n)
			}
			o := c.startJobs(r)
			c.work()
			c.wantProgress(o.ID, letters.OperationDone, 1, 1, 0)
		}
		started := c.startJobs(changing(jobs.PauseMany, jobs.Filter{}))
		c.wantProgress(started.ID, letters.OperationDone, 0, 0, 0)
	})
}
