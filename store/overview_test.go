package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/overview"
)

func (c crud) overview() overview.Figures {
	c.t.Helper()
	f, err := c.Overview.Overview(c.t.Context(), c.tenant)
	must(c.t, err)
	return f
}

// wantOverdue compares what is overdue: how many slots and runs, the job with the oldest, and all jobs.
func (c crud) wantOverdue(what string, slots, runs int, oldest string, names ...string) {
	c.t.Helper()
	o := c.overview().Overdue
	got := ""
	if o.Oldest != nil {
		got = o.Oldest.Job
	}
	if o.Slots != slots || o.Runs != runs || o.Jobs != len(names) || got != oldest {
		c.t.Errorf("%s: %d slots, %d runs of %d jobs, the oldest of %q; want %d, %d, %d, %q", what, o.Slots, o.Runs, o.Jobs, got,
			slots, runs, len(names), oldest)
	}
	among, err := c.Overview.OverdueJobs(c.t.Context(), c.tenant)
	must(c.t, err)
	if among == nil {
		among = []uuid.UUID{}
	}
	if got := c.jobNames(jobs.Filter{Among: among}); !slices.Equal(got, names) {
		c.t.Errorf("%s: the jobs are %q, want %q", what, got, names)
	}
}

func TestWhatShouldHaveBegunIsOverdue(t *testing.T) {
	c := newClaimer(t)
	other := c.intruder()
	c.wantOverdue("no jobs", 0, 0, "")
	slot := c.create("slot", rarely)
	c.wantOverdue("a slot to come", 0, 0, "")
	c.slotAgo(slot.ID, 3*time.Second)
	c.wantOverdue("a slot of just now", 0, 0, "")
	due := c.slotAgo(slot.ID, 30*time.Second)
	c.wantOverdue("a slot of half a minute ago", 1, 0, "slot", "slot")
	if o := c.overview().Overdue.Oldest; !o.DueAt.Equal(due) || o.JobID != slot.ID || o.Run != nil {
		t.Errorf("the oldest is %+v, due %s", o, due)
	}

	c.create("run", never)
	run := c.trigger("run")
	set := func(change string) {
		t.Helper()
		c.exec(`UPDATE punctual.ready SET `+change+` WHERE run_id = $1`, run.ID)
	}
	c.wantOverdue("a run of just now", 1, 0, "slot", "slot")
	set(`due_at = now() - interval '1 min'`)
	c.wantOverdue("a run of a minute ago", 1, 1, "run", "run", "slot")
	if o := c.overview().Overdue.Oldest; o.Run == nil || *o.Run != run.ID {
		t.Errorf("the oldest is %+v", o)
	}
	set(`due_at = now() + interval '1 hour', at_gate = true`)
	c.wantOverdue("a run that waits for another", 1, 0, "slot", "slot")
	set(`at_gate = false, held_by = 'breaker a:80', held_since = now() - interval '1 min', held_until = now()`)
	c.wantOverdue("a run that waits for its host", 1, 1, "run", "run", "slot")
	set(`due_at = now() - interval '1 min'`)
	c.wantOverdue("and is due", 1, 1, "run", "run", "slot")
	set(`held_by = NULL, held_since = NULL, held_until = NULL, lane = lane | 3`)
	c.wantOverdue("a run of a backfill", 1, 0, "slot", "slot")
	set(`lane = -1 - lane / 4`)
	c.wantOverdue("the deadline of a target", 1, 0, "slot", "slot")

	c.pause("slot")
	c.wantOverdue("a job that is paused", 0, 0, "")
	other.wantOverdue("another tenant", 0, 0, "")
}

// failingJobs describes the failing jobs, those with the newest failures first.
func (c crud) failingJobs() (lines []string) {
	c.t.Helper()
	f := c.overview().Failing
	ids, err := c.Overview.FailingJobs(c.t.Context(), c.tenant)
	if err != nil || len(ids) != len(f.Jobs) || f.Count != len(f.Jobs) || f.More {
		c.t.Fatalf("%d of %d failing jobs are shown, %d are listed (%v)", len(f.Jobs), f.Count, len(ids), err)
	}
	for i, j := range f.Jobs {
		if ids[i] != j.JobID {
			c.t.Errorf("%s is listed where %s is shown", ids[i], j.JobID)
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

func (c crud) wantFailing(what string, want ...string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.failingJobs()); diff != "" {
		c.t.Fatalf("%s (-want +got): %s", what, diff)
	}
}

func TestAJobFailsUntilItSucceeds(t *testing.T) {
	c := newClaimer(t)
	other := c.intruder()
	c.wantFailing("no runs")
	c.create("well", never)
	c.wellAgain("well")
	first := c.manual("j")
	c.wantFailing("a first attempt in flight")
	c.finish(failed(first))
	c.wantFailing("a run that is retried", "j failed 1 times, 0 letters, tried again")
	retried := c.again()
	c.wantFailing("the retry in flight", "j failed 1 times, 0 letters")
	c.finish(buried(retried))
	c.wantFailing("a dead letter", "j failed 1 times, 1 letters")
	c.trigger("j")
	c.wantFailing("a run that waits", "j failed 1 times, 1 letters")
	c.finish(buried(c.again()))
	c.wantFailing("a second dead letter", "j failed 2 times, 2 letters")
	if f := c.overview(); f.DeadLetters != (overview.OpenLetters{Open: 2}) ||
		!f.Failing.Jobs[0].Since.Equal(first.ScheduledFor) || f.Failing.Jobs[0].Run == first.RunID {
		t.Errorf("%+v, since %s, the first failed at %s", f.DeadLetters, f.Failing.Jobs[0].Since, first.ScheduledFor)
	}

	c.wellAgain("j")
	c.wantFailing("a success, and two dead letters of before")
	c.dies("j")
	c.manual("newer")
	c.exec(`UPDATE punctual.runs SET status = 'retrying', reason = 'http_5xx', error = 'x', http_status = 503
		WHERE status = 'running'`)
	c.wantFailing("a failure after a success", "newer failed 1 times, 0 letters", "j failed 1 times, 3 letters")
	other.wantFailing("another tenant")
	if f := other.overview(); f.DeadLetters.Open != 0 {
		t.Errorf("another tenant has %d dead letters", f.DeadLetters.Open)
	}

	c.exec(`UPDATE punctual.dead_letters SET resolved_at = now()`)
	c.wantFailing("dead letters that are resolved", "newer failed 1 times, 0 letters")
	c.exec(`UPDATE punctual.dead_letters SET resolved_at = NULL`)
	for _, name := range []string{"j", "newer"} {
		c.deleteJob(name)
	}
	c.wantFailing("deleted jobs")
}

// The newest failure of a job may be one of thousands, and its run may be gone with its day.
func TestAFailingJobIsDescribed(t *testing.T) {
	c := newClaimer(t)
	job := c.create("j")
	c.runsOf(job.ID, 1, 0, `'succeeded'`)
	c.runsOf(job.ID, 150, time.Second, `'dead'`)
	c.exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts, reason, http_status, error)
		SELECT id, job_id, tenant, 'j', 1, scheduled_for, trigger, 1, 'http_5xx', 503, 'busy'
		FROM punctual.runs WHERE status = 'dead'`)
	c.wantFailing("a hundred failures and more", "j failed 100 times, 150 letters, tried again")
	got := c.overview().Failing.Jobs[0]
	if want := c.midnight().Add(time.Second + 51*time.Millisecond); !got.Since.Equal(want) ||
		!got.NextTryAt.Equal(*job.NextRunAt) {
		t.Errorf("since %s, want %s; tried next at %s, the next slot is %s", got.Since, want, got.NextTryAt, job.NextRunAt)
	}

	c.exec(`DELETE FROM punctual.runs`)
	c.wantFailing("runs that are gone", "j failed 1 times, 150 letters, tried again")
}

// No more than fifty failing jobs are shown, and all are counted up to a bound.
func TestFailingJobsAreBounded(t *testing.T) {
	c := newClaimer(t)
	c.many(1100, "j", -1e15)
	c.exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts, reason)
		SELECT ('019a3c5f-0000-7000-8000-' || lpad(to_hex(row_number() OVER ()), 12, '0'))::uuid, id, tenant, name, 1, now(),
			'schedule', 1, 'http_5xx'
		FROM punctual.jobs`)
	f := c.overview().Failing
	if len(f.Jobs) != 50 || f.Count != 1000 || !f.More {
		t.Errorf("%d of %d failing jobs are shown, more: %t", len(f.Jobs), f.Count, f.More)
	}
	if !slices.IsSortedFunc(f.Jobs, func(a, b overview.FailingJob) int {
		return strings.Compare(b.Run.String(), a.Run.String())
	}) || !strings.HasSuffix(f.Jobs[0].Run.String(), "44c") {
		t.Errorf("the first is %s", f.Jobs[0].Run)
	}
	c.exec(`DELETE FROM punctual.dead_letters WHERE run_id > '019a3c5f-0000-7000-8000-000000000040'`)
	if f := c.overview().Failing; len(f.Jobs) != 50 || f.Count != 64 || f.More {
		t.Errorf("%d of %d failing jobs are shown, more: %t", len(f.Jobs), f.Count, f.More)
	}
}
