//prove:other

package prove

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// facts is a small world in which everything went well. It has a cron job with three slots, a one-shot that failed
// once, a forbid job with a skip and a notice that was sent beside one of its runs, and a dead run.
type facts struct {
	Facts
	conditions                Conditions // of the check
	cron, once, forbid, dying uuid.UUID
	workflow                  uuid.UUID // its run
}

var t0 = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second))).Truncate(time.Microsecond)
}

func goodWorld() *facts {
	f := &facts{Facts: Facts{Now: at(60)}}
	until := jobspec.InstantOf(at(3))
	f.cron = f.job("cron", jobspec.Definition{Schedule: jobspec.Schedule{Cron: "* * * * * *", EndsAt: until}})
	f.once = f.job("once", jobspec.Definition{Schedule: jobspec.Schedule{At: jobspec.InstantOf(at(1))}})
	f.forbid = f.job("forbid", jobspec.Definition{
		Schedule:          jobspec.Schedule{Every: jobspec.DurationOf(time.Second), EndsAt: until},
		ConcurrencyPolicy: jobspec.PolicyForbid,
	})
	f.dying = f.job("dying", jobspec.Definition{Schedule: jobspec.Schedule{At: jobspec.InstantOf(at(1))}})
	for s := range 3 {
		f.run(f.cron, at(float64(s+1)), "succeeded")
	}
	f.run(f.once, at(1), "retried")
	f.run(f.forbid, at(1), "succeeded")
	f.skip(f.forbid, at(2), at(2), 1)
	f.run(f.forbid, at(3), "succeeded")
	f.run(f.dying, at(1), "dead")
	// Backfills of three slots: one that was skipped, one from before the job, and one that already ran.
	f.backfill(f.forbid, at(2), domain.SlotRunID(f.forbid, at(2)))
	f.backfill(f.cron, at(-60), domain.SlotRunID(f.cron, at(-60)))
	f.backfill(f.cron, at(3), domain.NewRunID(at(20)))
	f.notice(f.forbid, at(3))
	f.twoSteps()
	f.Fed = []int32{f.Runs[0].Tenant}
	for _, r := range f.Runs {
		f.Recorded = append(f.Recorded, r.ID)
	}
	return f
}

// job adds a job that was created at t0 + 0.25 s.
func (f *facts) job(name string, d jobspec.Definition) uuid.UUID {
	id := uuid.NewSHA1(uuid.Nil, []byte(name))
	d.Name, d.Target.URL = name, "http://127.0.0.1/"
	f.Jobs = append(f.Jobs, Job{
		ID:       id,
		Name:     name,
		State:    "completed",
		Versions: []Version{{From: at(0.25), State: "active", Definition: d}},
	})
	return id
}

// twoSteps adds a workflow of two steps that has succeeded.
func (f *facts) twoSteps() {
	job := f.job("workflow", jobspec.Definition{
		Schedule: jobspec.Schedule{At: jobspec.InstantOf(at(1))},
		Steps:    []jobspec.Step{{Name: "a"}, {Name: "b", DependsOn: []string{"a"}}},
	})
	f.workflow = domain.SlotRunID(job, at(1))
	whole := Run{
		ID: f.workflow, Job: job, ScheduledFor: at(1), DueAt: at(1), CreatedAt: at(1), FinishedAt: new(at(4)),
		Status: "succeeded", Trigger: "schedule", Attempt: 1,
	}
	f.Runs = append(f.Runs, whole)
	for n, name := range []string{"a", "b"} {
		r := whole
		r.ID, r.Trigger, r.Step, r.Workflow = domain.StepRunID(f.workflow, name), "step", name, new(f.workflow)
		r.DueAt, r.CreatedAt, r.FinishedAt = at(float64(1+n)), at(float64(1+n)), new(at(float64(2+n)))
		r.Fence = new(f.send(r, 1, time.Millisecond, 200))
		f.Requests[len(f.Requests)-1].Key = r.ID.String()
		f.Runs = append(f.Runs, r)
	}
	again := whole // it keeps a
	again.ID, again.Trigger, again.CreatedAt, again.FinishedAt = domain.NewRunID(at(5)), "manual", at(5), new(at(7))
	f.Runs = append(f.Runs, again)
	for n, name := range []string{"a", "b"} {
		r := again
		r.ID, r.Trigger, r.Step, r.Workflow = domain.StepRunID(again.ID, name), "step", name, new(again.ID)
		r.DueAt, r.CreatedAt, r.FinishedAt = at(float64(5+n)), at(float64(5+n)), new(at(float64(5+n)))
		if r.Attempt = n; n == 1 {
			r.Fence = new(f.send(r, 1, time.Millisecond, 200))
			f.Requests[len(f.Requests)-1].Key = r.ID.String()
		}
		f.Runs = append(f.Runs, r)
	}
}

// step returns the run of a step.
func (f *facts) step(name string) *Run {
	return &f.Runs[slices.IndexFunc(f.Runs, func(r Run) bool { return r.Step == name })]
}

// kept returns the run of a step that was taken as succeeded.
func (f *facts) kept() *Run { return &f.Runs[slices.IndexFunc(f.Runs, Run.taken)] }

// slotKey is the idempotency key of a slot.
func slotKey(job uuid.UUID, slot time.Time) string { return fmt.Sprintf("%s:%d", job, slot.Unix()) }

// send adds a request, and returns its token.
func (f *facts) send(r Run, attempt int, after time.Duration, status int) (fence int64) {
	fence = int64(100 + len(f.Requests))
	arrived := r.DueAt.Add(after)
	f.Requests = append(f.Requests, Request{
		At: arrived, Ended: arrived.Add(time.Millisecond), Method: "POST", Path: "/", Run: r.ID, Job: r.Job.String(),
		Attempt: attempt, Fence: fence, Trigger: r.Trigger, ScheduledFor: r.ScheduledFor,
		Key: slotKey(r.Job, r.ScheduledFor), Status: status,
	})
	return fence
}

func (f *facts) run(job uuid.UUID, slot time.Time, how string) {
	r := Run{
		ID: domain.SlotRunID(job, slot), Job: job, ScheduledFor: slot, DueAt: slot, CreatedAt: slot,
		Status: "succeeded", Trigger: "schedule",
		ClaimedAt: new(slot.Add(time.Millisecond)), Attempt: 1,
	}
	if how != "succeeded" {
		r.Fence = new(f.send(r, 1, 2*time.Millisecond, 500))
		f.Attempts = append(f.Attempts, Attempt{
			Run:       r.ID,
			Fence:     *r.Fence,
			Number:    1,
			Outcome:   "failed",
			StartedAt: slot,
			Finished:  slot.Add(3 * time.Millisecond),
		})
	}
	switch how {
	case "dead":
		r.Status = "dead"
		f.DeadLetters = append(f.DeadLetters, r.ID)
	case "retried":
		r.Fence, r.Attempt = new(f.send(r, 2, time.Second, 200)), 2
	default:
		r.Fence = new(f.send(r, 1, 2*time.Millisecond, 200))
	}
	f.Runs = append(f.Runs, r)
}

// backfill adds a run that was made twenty seconds after everything else.
func (f *facts) backfill(job uuid.UUID, slot time.Time, id uuid.UUID) {
	r := Run{
		ID: id, Job: job, ScheduledFor: slot, DueAt: slot, CreatedAt: at(20), Status: "succeeded", Trigger: "backfill",
		Attempt: 1,
	}
	r.Fence = new(f.send(r, 1, at(20).Sub(slot), 200))
	if id != domain.SlotRunID(job, slot) {
		f.Requests[len(f.Requests)-1].Key = id.String()
	}
	f.Runs = append(f.Runs, r)
}

// notice adds a notice about a job, which is no run, sent while the job's run of that instant is in flight.
func (f *facts) notice(job uuid.UUID, when time.Time) {
	f.send(Run{ID: uuid.New(), Job: job, ScheduledFor: when, DueAt: when, Trigger: "notify"}, 1, 2*time.Millisecond, 200)
}

func (f *facts) skip(job uuid.UUID, first, last time.Time, count int) {
	f.Runs = append(f.Runs, Run{
		ID: uuid.New(), Job: job, ScheduledFor: last, DueAt: last, Status: "skipped", Trigger: "schedule",
		Reason: "overlap", SkippedFirst: &first, SkippedLast: &last, SkippedCount: &count,
	})
}

// theRun returns the first run of a job.
func (f *facts) theRun(job uuid.UUID) *Run {
	return &f.Runs[slices.IndexFunc(f.Runs, func(r Run) bool { return r.Job == job })]
}

func (f *facts) theJob(id uuid.UUID) *Job {
	return &f.Jobs[slices.IndexFunc(f.Jobs, func(j Job) bool { return j.ID == id })]
}

// theRequest returns the nth request of a job, from 0.
func (f *facts) theRequest(job uuid.UUID, n int) *Request {
	for i := range f.Requests {
		if f.Requests[i].Job == job.String() {
			if n == 0 {
				return &f.Requests[i]
			}
			n--
		}
	}
	return nil
}

func (f *facts) forget(run uuid.UUID) {
	f.Runs = slices.DeleteFunc(f.Runs, func(r Run) bool { return r.ID == run })
}

// The checker finds nothing where nothing is wrong.
func TestCheckFindsNothingInAGoodWorld(t *testing.T) {
	t.Parallel()
	for _, v := range Check(goodWorld().Facts, Conditions{SentOnce: true}) {
		t.Error(v)
	}
}

// A violation of each rule is planted, and the checker notices it.
func TestCheckNotices(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rule  Rule
		spoil func(f *facts)
	}{
		{"a slot without a run", OneRunPerSlot, func(f *facts) { f.forget(f.theRun(f.cron).ID) }},
		{"a one-shot without a run", OneRunPerSlot, func(f *facts) { f.forget(f.theRun(f.once).ID) }},
		{"a slot with two runs", OneRunPerSlot, func(f *facts) {
			r := *f.theRun(f.cron)
			r.ID = uuid.New()
			f.Runs = append(f.Runs, r)
		}},
		{"a slot with a run and a skip", OneRunPerSlot, func(f *facts) { f.skip(f.cron, at(1), at(1), 1) }},
		{"a skip that counts too few", OneRunPerSlot, func(f *facts) {
			f.forget(f.theRun(f.cron).ID)
			f.skip(f.cron, at(1), at(1), 0)
		}},
		{"a slot skipped as paused whose pause was over", PausesEnd, func(f *facts) {
			f.theJob(f.cron).Versions = append(f.theJob(f.cron).Versions, Version{
				From:       at(0.5),
				State:      "paused",
				Definition: f.theJob(f.cron).Versions[0].Definition,
				Until:      new(at(1)),
			})
			f.forget(f.theRun(f.cron).ID)
			f.skip(f.cron, at(1), at(1), 1)
			f.Runs[len(f.Runs)-1].Reason = "paused"
		}},
		{"a run with another id than its slot's", OneRunPerSlot, func(f *facts) {
			f.theRun(f.cron).ID = uuid.New()
		}},
		{"a run that no slot is behind", NoPhantoms, func(f *facts) { f.run(f.cron, at(4), "succeeded") }},
		{"a backfilled run that no slot is behind", NoPhantoms, func(f *facts) {
			f.backfill(f.cron, at(2.5), domain.SlotRunID(f.cron, at(2.5)))
		}},
		{"a backfilled run after the job's last slot", NoPhantoms, func(f *facts) {
			f.backfill(f.cron, at(4), domain.SlotRunID(f.cron, at(4)))
		}},
		{"a backfilled one-shot", NoPhantoms, func(f *facts) {
			f.backfill(f.once, at(1), domain.NewRunID(at(20)))
		}},
		{"a backfilled run under another slot's id", OneRunPerSlot, func(f *facts) {
			f.backfill(f.cron, at(-10), domain.SlotRunID(f.cron, at(-11)))
		}},
		{"a slot run once more that never ran", OneRunPerSlot, func(f *facts) {
			f.backfill(f.cron, at(-10), domain.NewRunID(at(20)))
		}},
		{"a backfilled slot that had neither run nor skip", OneRunPerSlot, func(f *facts) {
			f.theRun(f.cron).Trigger = "backfill"
		}},
		{"a slot run once more under the slot's key", RequestsHeader, func(f *facts) {
			f.backfill(f.cron, at(1), domain.NewRunID(at(20)))
			f.Requests[len(f.Requests)-1].Key = slotKey(f.cron, at(1))
		}},
		{"a run of no job", NoPhantoms, func(f *facts) { f.run(uuid.New(), at(4), "succeeded") }},
		{"a run left running", AllFinal, func(f *facts) { f.theRun(f.cron).Status = "running" }},
		{"a success nobody saw", SuccessSeen, func(f *facts) { f.theRequest(f.cron, 0).Run = uuid.New() }},
		{"a success that was answered 500", SuccessSeen, func(f *facts) { f.theRequest(f.cron, 0).Status = 500 }},
		{"a success under another token", SuccessSeen, func(f *facts) { f.theRequest(f.cron, 0).Fence = 99 }},
		{"a request before it was due", NeverEarly, func(f *facts) {
			r := f.theRequest(f.cron, 0)
			r.At = at(0.999)
		}},
		{"a retry before the failure", NeverEarly, func(f *facts) {
			f.theRequest(f.once, 1).At = at(1.0005)
			f.Attempts[0].Finished = at(1.9)
		}},
		{"a due time before the slot", NeverEarly, func(f *facts) { f.theRun(f.cron).DueAt = at(0.5) }},
		{"a run that was made before it was due", NeverEarly, func(f *facts) {
			f.conditions.ClockSteps = true
			f.theRun(f.cron).CreatedAt = at(0.9)
		}},
		{"a claim before it was due", NeverEarly, func(f *facts) {
			f.conditions.ClockSteps = true
			f.theRun(f.cron).ClaimedAt = new(at(0.9))
		}},
		{"a due time beyond the jitter", NeverEarly, func(f *facts) { f.theRun(f.cron).DueAt = at(1.5) }},
		{"two first attempts", OneFirst, func(f *facts) { f.theRequest(f.once, 1).Attempt = 1 }},
		{"a token given twice", FencesGrow, func(f *facts) {
			f.theRequest(f.cron, 1).Fence = f.theRequest(f.cron, 0).Fence
		}},
		{"a retry with a smaller token", FencesGrow, func(f *facts) { f.theRequest(f.once, 1).Fence = 1 }},
		{"a slot with a smaller token than the one before", FencesGrow, func(f *facts) {
			f.theRequest(f.cron, 2).Fence = 1
		}},
		{"an overlap", NoOverlap, func(f *facts) { f.theRequest(f.forbid, 0).Ended = at(3.5) }},
		{"an overlap at a limit that jobs share", NoOverlap, func(f *facts) {
			f.LimitsOfOne = []string{"one"}
			for _, job := range []uuid.UUID{f.cron, f.once} {
				f.theJob(job).Versions[0].Definition.Limits = f.LimitsOfOne
			}
		}},
		{"an overlap with work that goes on after its 202", NoOverlap, func(f *facts) {
			f.theJob(f.forbid).Versions[0].Definition.Completion = jobspec.CompleteAsync
			f.theRun(f.forbid).FinishedAt, f.theRequest(f.forbid, 0).Status = new(at(3.5)), 202
		}},
		{"an overlap with work that goes on until it is lost", NoOverlap, func(f *facts) {
			f.theJob(f.forbid).Versions[0].Definition.Completion = jobspec.CompleteAsync
			q := f.theRequest(f.forbid, 0)
			q.Status = 202
			f.Attempts = append(f.Attempts, Attempt{Run: q.Run, Fence: q.Fence, Number: 1, Outcome: "lost", Finished: at(3.5)})
		}},
		{"an overlap with a request that never ended", NoOverlap, func(f *facts) {
			f.theRequest(f.forbid, 0).Ended = time.Time{}
		}},
		{"a job that waits for ever", NoWedge, func(f *facts) {
			f.Jobs[0].Enabled, f.Jobs[0].NextRun = true, new(at(4))
		}},
		{"a row left in ready", NothingLeft, func(f *facts) { f.Ready = append(f.Ready, f.theRun(f.once).ID) }},
		{"a row left in claims", NothingLeft, func(f *facts) {
			f.Claimed = append(f.Claimed, f.theRun(f.once).ID)
		}},
		{"a gate left closed", NothingLeft, func(f *facts) {
			f.Gates = append(f.Gates, Gate{f.forbid, f.theRun(f.forbid).ID})
		}},
		{"a request for no run", RequestsKnown, func(f *facts) {
			f.send(Run{ID: uuid.New(), DueAt: at(1)}, 1, 0, 200)
		}},
		{"a request no attempt is on record for", RequestsKnown, func(f *facts) {
			f.send(*f.theRun(f.cron), 2, 0, 200)
		}},
		{"a request with another slot's key", RequestsHeader, func(f *facts) {
			f.theRequest(f.cron, 0).Key = "x"
		}},
		{"a dead run without a dead letter", DeadAreListed, func(f *facts) { f.DeadLetters = nil }},
		{"a dead letter of a live run", DeadAreListed, func(f *facts) {
			f.DeadLetters = append(f.DeadLetters, f.theRun(f.once).ID)
		}},
		{"a request sent twice", ExactlyOnce, func(f *facts) {
			f.conditions.SentOnce = true
			f.send(*f.theRun(f.cron), 1, time.Millisecond, 200)
		}},
		{"an attempt never sent", ExactlyOnce, func(f *facts) {
			f.conditions.SentOnce = true
			f.Attempts = append(f.Attempts, Attempt{Run: f.theRun(f.once).ID, Fence: 1, Number: 2, Outcome: "failed"})
		}},
		{"a request of at_most_once sent twice", AtMostOnce, func(f *facts) {
			f.Jobs[0].Versions[0].Definition.Delivery = jobspec.DeliverAtMostOnce
			f.send(*f.theRun(f.cron), 2, time.Second, 200)
		}},
		{"a run that died without a request to its host", DeadWereAsked, func(f *facts) {
			f.theRun(f.dying).Reason, f.theRun(f.dying).FinishedAt = "unreachable", new(at(3))
			f.Attempts = slices.DeleteFunc(f.Attempts, func(a Attempt) bool { return a.StartedAt.Before(at(4)) })
		}},
		{"a run that ended and is not in the feed", FeedIsWhole, func(f *facts) { f.Recorded = f.Recorded[1:] }},
		{"a run in the feed that has not ended", FeedIsWhole, func(f *facts) { f.theRun(f.cron).Status = "running" }},
		{"a step that was left out", StepsInOrder, func(f *facts) {
			f.Runs = slices.DeleteFunc(f.Runs, func(r Run) bool { return r.Step == "b" })
		}},
		{"a step that was done twice", StepsInOrder, func(f *facts) {
			again := *f.step("b")
			again.ID = uuid.New()
			f.Runs = append(f.Runs, again)
		}},
		{"a step before the one that it depends on", StepsInOrder, func(f *facts) {
			f.Requests[slices.IndexFunc(f.Requests, func(q Request) bool { return q.Run == f.step("b").ID })].At = at(1)
		}},
		{"a step that was kept and sent", StepsInOrder, func(f *facts) { f.send(*f.kept(), 1, time.Millisecond, 200) }},
		{"a run under another tenant than its job", TenantsAddUp, func(f *facts) { f.theRun(f.cron).Tenant = 2 }},
		{"a failure where all should succeed", NothingFailed, func(f *facts) { f.conditions.AllSucceed = true }},
	}
	planted := map[Rule]bool{}
	for _, test := range tests {
		planted[test.rule] = true
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := goodWorld()
			test.spoil(f)
			violations := Check(f.Facts, f.conditions)
			if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Rule == test.rule }) {
				t.Errorf("not noticed as %q; found %v", test.rule, violations)
			}
		})
	}
	for name, rule := range rules(t) {
		if !planted[rule] {
			t.Errorf("no violation of %s is planted", name)
		}
	}
}

// Of many violations of a rule the checker lists a few.
func TestCheckListsAFewOfMany(t *testing.T) {
	t.Parallel()
	f := goodWorld()
	for range 1000 {
		f.Ready = append(f.Ready, uuid.New())
	}
	violations := Check(f.Facts, Conditions{})
	if n := len(violations); n != perRule+1 {
		t.Errorf("%d violations, want %d", n, perRule+1)
	}
	if last := violations[len(violations)-1].Detail; !strings.Contains(last, "992 more") {
		t.Errorf("the last one says %q", last)
	}
}

// The checker lets an interrupted first attempt be sent again.
func TestAnInterruptedFirstAttemptMayBeSentAgain(t *testing.T) {
	t.Parallel()
	f := goodWorld()
	f.Attempts[0].Outcome = "interrupted"
	f.theRequest(f.once, 1).Attempt, f.theRun(f.once).Attempt = 1, 1
	for _, v := range Check(f.Facts, Conditions{SentOnce: true}) {
		t.Error(v)
	}
}
