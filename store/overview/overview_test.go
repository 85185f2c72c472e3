package overview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/overview"
)

// wantOverdue compares what is overdue: how many slots and runs, the job with the oldest, and all jobs.
func wantOverdue(c Fixture, what string, slots, runs int, oldest string, names ...string) {
	c.T.Helper()
	o := c.Figures().Overdue
	got := ""
	if o.Oldest != nil {
		got = o.Oldest.Job
	}
	if o.Slots != slots || o.Runs != runs || o.Jobs != len(names) || got != oldest {
		c.T.Errorf("%s: %d slots, %d runs of %d jobs, the oldest of %q; want %d, %d, %d, %q", what, o.Slots, o.Runs, o.Jobs, got,
			slots, runs, len(names), oldest)
	}
	among, err := c.Overview.OverdueJobs(c.T.Context(), c.Tenant)
	Must(c.T, err)
	if among == nil {
		among = []uuid.UUID{}
	}
	if got := c.JobNames(jobs.Filter{Among: among}); !slices.Equal(got, names) {
		c.T.Errorf("%s: the jobs are %q, want %q", what, got, names)
	}
}

func TestWhatShouldHaveBegunIsOverdue(t *testing.T) {
	c := NewReplica(t)
	other := c.Intruder()
	wantOverdue(c.Fixture, "no jobs", 0, 0, "")
	slot := c.Create("slot", Rarely)
	wantOverdue(c.Fixture, "a slot to come", 0, 0, "")
	c.SlotAgo(slot.ID, 3*time.Second)
	wantOverdue(c.Fixture, "a slot of just now", 0, 0, "")
	due := c.SlotAgo(slot.ID, 30*time.Second)
	wantOverdue(c.Fixture, "a slot of half a minute ago", 1, 0, "slot", "slot")
	if o := c.Figures().Overdue.Oldest; !o.DueAt.Equal(due) || o.JobID != slot.ID || o.Run != nil {
		t.Errorf("the oldest is %+v, due %s", o, due)
	}

	c.Create("run", Never)
	run := c.Trigger("run")
	set := func(change string) {
		t.Helper()
		c.Exec(`UPDATE punctual.ready SET `+change+` WHERE run_id = $1`, run.ID)
	}
	wantOverdue(c.Fixture, "a run of just now", 1, 0, "slot", "slot")
	set(`due_at = now() - interval '1 min'`)
	wantOverdue(c.Fixture, "a run of a minute ago", 1, 1, "run", "run", "slot")
	if o := c.Figures().Overdue.Oldest; o.Run == nil || *o.Run != run.ID {
		t.Errorf("the oldest is %+v", o)
	}
	set(`waits = 'gate'`)
	wantOverdue(c.Fixture, "a run that waits for another", 1, 0, "slot", "slot")
	set(`waits = 'host', waits_on = 'breaker a:80', since = now() - interval '1 min', until = now()`)
	wantOverdue(c.Fixture, "a run that waits for its host", 1, 1, "run", "run", "slot")
	set(`due_at = now() - interval '1 min'`)
	wantOverdue(c.Fixture, "and is due", 1, 1, "run", "run", "slot")
	set(`waits = 'turn', waits_on = NULL, since = NULL, until = NULL, lane = lane | 3`)
	wantOverdue(c.Fixture, "a run of a backfill", 1, 0, "slot", "slot")
	set(`waits = 'target'`)
	wantOverdue(c.Fixture, "the deadline of a target", 1, 0, "slot", "slot")

	c.Pause("slot")
	wantOverdue(c.Fixture, "a job that is paused", 0, 0, "")
	wantOverdue(other, "another tenant", 0, 0, "")
}

// failingJobs describes the failing jobs, those with the newest failures first.
func failingJobs(c Fixture) (lines []string) {
	c.T.Helper()
	f := c.Figures().Failing
	ids, err := c.Overview.FailingJobs(c.T.Context(), c.Tenant)
	if err != nil || len(ids) != len(f.Jobs) || f.Count != len(f.Jobs) || f.More {
		c.T.Fatalf("%d of %d failing jobs are shown, %d are listed (%v)", len(f.Jobs), f.Count, len(ids), err)
	}
	for i, j := range f.Jobs {
		if ids[i] != j.JobID {
			c.T.Errorf("%s is listed where %s is shown", ids[i], j.JobID)
		}
		line := fmt.Sprintf("%s failed %d times, %d letters", j.Job, j.Failures, j.Letters)
		if j.Reason == nil || *j.Reason != domain.ReasonHTTP5xx || j.Error == nil || j.HTTPStatus == nil {
			line += fmt.Sprintf(", for the reason %v (%v)", j.Reason, j.Error)
		}
		if j.NextTryAt != nil {
			line += ", tried again"
		}
		lines = append(lines, line)
	}
	return lines
}

func wantFailing(c Fixture, what string, want ...string) {
	c.T.Helper()
	if diff := cmp.Diff(want, failingJobs(c)); diff != "" {
		c.T.Fatalf("%s (-want +got): %s", what, diff)
	}
}

func TestAJobFailsUntilItSucceeds(t *testing.T) {
	c := NewReplica(t)
	other := c.Intruder()
	wantFailing(c.Fixture, "no runs")
	c.Create("well", Never)
	c.WellAgain("well")
	first := c.Manual("j")
	wantFailing(c.Fixture, "a first attempt in flight")
	c.Finish(Failed(first))
	wantFailing(c.Fixture, "a run that is retried", "j failed 1 times, 0 letters, tried again")
	retried := c.Again()
	wantFailing(c.Fixture, "the retry in flight", "j failed 1 times, 0 letters")
	c.Finish(Buried(retried))
	wantFailing(c.Fixture, "a dead letter", "j failed 1 times, 1 letters")
	c.Trigger("j")
	wantFailing(c.Fixture, "a run that waits", "j failed 1 times, 1 letters")
	c.Finish(Buried(c.Again()))
	wantFailing(c.Fixture, "a second dead letter", "j failed 2 times, 2 letters")
	if f := c.Figures(); f.DeadLetters != (overview.OpenLetters{Open: 2}) ||
		!f.Failing.Jobs[0].Since.Equal(first.ScheduledFor) || f.Failing.Jobs[0].Run == first.RunID {
		t.Errorf("%+v, since %s, the first failed at %s", f.DeadLetters, f.Failing.Jobs[0].Since, first.ScheduledFor)
	}

	c.WellAgain("j")
	wantFailing(c.Fixture, "a success, and two dead letters of before")
	c.Dies("j")
	c.Manual("newer")
	c.Exec(`UPDATE punctual.runs SET status = 'retrying', reason = 'http_5xx', error = 'x', http_status = 503
		WHERE status = 'running'`)
	wantFailing(c.Fixture, "a failure after a success", "newer failed 1 times, 0 letters", "j failed 1 times, 3 letters")
	wantFailing(other, "another tenant")
	if f := other.Figures(); f.DeadLetters.Open != 0 {
		t.Errorf("another tenant has %d dead letters", f.DeadLetters.Open)
	}

	c.Exec(`UPDATE punctual.dead_letters SET resolved_at = now()`)
	wantFailing(c.Fixture, "dead letters that are resolved", "newer failed 1 times, 0 letters")
	c.Exec(`UPDATE punctual.dead_letters SET resolved_at = NULL`)
	for _, name := range []string{"j", "newer"} {
		c.DeleteJob(name)
	}
	wantFailing(c.Fixture, "deleted jobs")
}

// Whether a job is failing depends on that job alone, so a list of several is the same however often it is read.
func TestAJobFailsWhateverOtherJobsDo(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"lost", "recovered", "later"} {
		c.Finish(Buried(c.Manual(name)))
		if name == "recovered" {
			c.WellAgain(name)
		}
	}
	for range 50 {
		wantFailing(c.Fixture, "of three jobs that died one has recovered", "later failed 1 times, 1 letters",
			"lost failed 1 times, 1 letters")
	}
}

// The newest failure of a job may be one of thousands, and its run may be gone with its day.
func TestAFailingJobIsDescribed(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("j")
	c.RunsOf(job.ID, 1, 0, `'succeeded'`)
	c.RunsOf(job.ID, 150, time.Second, `'dead'`)
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts, reason, http_status, error)
		SELECT id, job_id, tenant, 'j', 1, scheduled_for, trigger, 1, 'http_5xx', 503, 'busy'
		FROM punctual.runs WHERE status = 'dead'`)
	wantFailing(c.Fixture, "a hundred failures and more", "j failed 150 times, 150 letters, tried again")
	got := c.Figures().Failing.Jobs[0]
	if want := c.Midnight().Add(time.Second + time.Millisecond); !got.Since.Equal(want) ||
		!got.NextTryAt.Equal(*job.NextRunAt) {
		t.Errorf("since %s, want %s; tried next at %s, the next slot is %s", got.Since, want, got.NextTryAt, job.NextRunAt)
	}

	c.Exec(`DELETE FROM punctual.runs`)
	c.Overview = overview.New(c.DB)
	wantFailing(c.Fixture, "runs that are gone", "j failed 1 times, 150 letters, tried again")
}

// Since when a job fails does not depend on how many of its runs a look reads, nor on what was read before.
func TestAJobFailsSinceItsFirstFailure(t *testing.T) {
	c := NewReplica(t)
	c.PartitionsBack(4)
	job := c.Create("j", Never)
	since := c.Midnight().Add(-48*time.Hour + time.Second)
	c.RunsOf(job.ID, 1, -50*time.Hour, `'succeeded'`)
	c.RunsOf(job.ID, 2346, -48*time.Hour+999*time.Millisecond, `'dead'`)
	c.Exec(`UPDATE punctual.runs SET status = 'skipped', reason = 'paused' WHERE status = 'dead' AND scheduled_for = $1`,
		since.Add(2299*time.Millisecond))
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger, attempts)
		SELECT id, job_id, tenant, 'j', 1, scheduled_for, trigger, 1 FROM punctual.runs WHERE status = 'dead'`)
	want := func(what string, since time.Time, failures int) {
		t.Helper()
		for range 2 { // the second look knows what the first one has read
			for name, board := range map[string]*overview.Board{"same": c.Overview, "another": overview.New(c.DB)} {
				f, err := board.Overview(t.Context(), c.Tenant)
				Must(t, err)
				if j := f.Failing.Jobs[0]; !j.Since.Equal(since) || j.Failures != failures || j.More {
					t.Fatalf("%s, on the %s replica: %d failures since %s (more: %t), want %d since %s", what, name, j.Failures,
						j.Since, j.More, failures, since)
				}
			}
		}
	}
	want("a day of failures with a skip among them", since, 2345)
	c.Dies("j")
	want("another failure", since, 2346)
	c.WellAgain("j")
	first := c.Begun("j")
	c.Finish(Buried(first))
	c.Dies("j")
	want("two failures after a success", first.ScheduledFor, 2)
	c.RunsOf(job.ID, 1, -49*time.Hour, `'succeeded'`)
	want("an earlier slot that has succeeded late", first.ScheduledFor, 2)
}

// No more than fifty failing jobs are shown, and all are counted up to a bound.
func TestFailingJobsAreBounded(t *testing.T) {
	c := NewReplica(t)
	c.Many(1100, "j", -1e15)
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts, reason)
		SELECT ('019a3c5f-0000-7000-8000-' || lpad(to_hex(row_number() OVER ()), 12, '0'))::uuid, id, tenant, name, 1, now(),
			'schedule', 1, 'http_5xx'
		FROM punctual.jobs`)
	f := c.Figures().Failing
	if len(f.Jobs) != 50 || f.Count != 1000 || !f.More {
		t.Errorf("%d of %d failing jobs are shown, more: %t", len(f.Jobs), f.Count, f.More)
	}
	if !slices.IsSortedFunc(f.Jobs, func(a, b overview.FailingJob) int {
		return strings.Compare(b.Run.String(), a.Run.String())
	}) || !strings.HasSuffix(f.Jobs[0].Run.String(), "44c") {
		t.Errorf("the first is %s", f.Jobs[0].Run)
	}
	c.Exec(`DELETE FROM punctual.dead_letters WHERE run_id > '019a3c5f-0000-7000-8000-000000000040'`)
	if f := c.Figures().Failing; len(f.Jobs) != 50 || f.Count != 64 || f.More {
		t.Errorf("%d of %d failing jobs are shown, more: %t", len(f.Jobs), f.Count, f.More)
	}
}
