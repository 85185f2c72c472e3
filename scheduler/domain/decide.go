package domain

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

// slotsPerClaim is how many slots of one job become runs in one claim. So a job that fires more often than claims come
// round still catches up, and the backlog of a long outage is released at a pace and not all at once.
const slotsPerClaim = 10

// deferral is how long a missed slot waits before a claim checks again whether the job's active run has ended.
const deferral = time.Second

// mostCatchingUp is how many missed slots of a job wait as runs, each for the one before. The others wait as slots.
const mostCatchingUp = 100

// Situation is what a claim read of a due job after it had locked the job's schedule and gate.
type Situation struct {
	Job          *Job
	ScheduledFor time.Time // the slot that is due
	Gate
	Now  time.Time // the database's clock
	Room int       // worker slots there are for runs of this job; 0: no bound
	Memo *cron.Memo

	Pending int // runs that wait: of a job with the policy queue all, and else those of missed slots that go in order
}

// Gate says which runs of a job are in the way of another one.
type Gate struct {
	Active         []uuid.UUID // runs that hold the gate: one, or all that were in flight when the job got its gate
	Waiting        uuid.UUID   // the run that starts when the active ones have ended; uuid.Nil: none
	WaitingExpired bool        // the waiting run has expired, and so blocks no other
}

// Plan is what a claim writes for one due job: runs, skips, and the next slot.
type Plan struct {
	Runs  []PlannedRun
	Skips []Skip
	// Cancel lists runs that a newer one replaces.
	Cancel []uuid.UUID
	// Expired lists runs that have expired while they waited.
	Expired []uuid.UUID
	// Next is the job's next slot and NextRunAt the time it is due; zero when Done.
	Next, NextRunAt time.Time
	// Done says that the job has no further slot.
	Done bool
}

// PlannedRun is a run that a slot becomes.
type PlannedRun struct {
	ScheduledFor, DueAt time.Time
	Trigger             Trigger
	Late                bool
	// Waits says that the run does not start at once: it waits for the job's active run, for its turn, or for limits.
	Waits bool
	// AtGate says that it is then the waiting run of the job's gate.
	AtGate bool
}

// Skip is a recorded range of slots that will not run, first and last included.
type Skip struct {
	Reason      Reason
	First, Last time.Time
	Count       int       // 0: more than 1,000
	BlockedBy   uuid.UUID // with reason overlap: the run in the way
	Trigger     Trigger   // of what it stands for; empty: slots
}

// Decide turns a due slot into a plan: the slot fires, or is recorded as a skip, by the job's policies for missed
// slots, overlap and expiry. It is pure: the same situation always gives the same plan.
func Decide(s Situation) Plan {
	expired := s.expire()
	p := s.decide()
	p.Expired = expired
	return p
}

func (s Situation) decide() Plan {
	missedBefore := s.Now.Add(-s.Job.Missed.Tolerance.Value()) // a slot due before this is missed
	if !s.due(s.ScheduledFor).Before(missedBefore) {
		return s.fireEach(Plan{}, s.ScheduledFor, s.Now.Add(1), false)
	}
	newest := s.newestDueBefore(missedBefore)
	switch s.Job.Missed.Policy {
	case jobspec.MissedSkip:
		return s.skipUpTo(newest, ReasonMissed)
	case jobspec.MissedFireAll:
		return s.fireAll(missedBefore, newest)
	}
	return s.fireOnce(newest)
}

// fireOnce runs the newest missed slot, if the window reaches back to it, and records the others as skipped.
func (s Situation) fireOnce(newest time.Time) Plan {
	if newest.Before(s.windowStart(newest)) {
		return s.skipUpTo(newest, ReasonMissed)
	}
	var p Plan
	if s.ScheduledFor.Before(newest) {
		before, _ := s.Job.Timetable.Prev(newest.Add(-1))
		p.Skips = append(p.Skips, s.skip(ReasonMissed, s.ScheduledFor, before.At))
	}
	s.fire(&p, newest, true)
	return s.advance(p, newest)
}

// fireAll runs the missed slots within the window, oldest first and a few per claim, and records those beyond the
// window as skipped. A job that must not overlap gets one run at a time, and none while a run of it is active or waits.
// With the other policies they wait in order, unless the job lets them overlap.
func (s Situation) fireAll(missedBefore, newest time.Time) Plan {
	var p Plan
	slot := s.ScheduledFor
	if start := s.windowStart(newest); slot.Before(start) {
		before, _ := s.Job.Timetable.Prev(start.Add(-1))
		last := jobspec.Earlier(jobspec.Later(before.At, slot), newest)
		p.Skips = append(p.Skips, s.skip(ReasonMissed, slot, last))
		next, ok := s.Job.Timetable.Next(last, s.Memo)
		if !ok || !s.due(next.At).Before(missedBefore) {
			return s.advance(p, last)
		}
		slot = next.At
	}
	if s.Job.ConcurrencyPolicy.OneWaits() && (len(s.Active) > 0 || s.Waiting != uuid.Nil) ||
		s.Job.LinesUp() && s.Pending >= mostCatchingUp {
		p.Next, p.NextRunAt = slot, s.Now.Add(deferral)
		return p
	}
	return s.fireEach(p, slot, missedBefore, true)
}

// fireEach fires the slots that are due before an instant, from the given one on: oldest first and a few per claim. Of
// a job that must not overlap it fires one, because the next one depends on what becomes of that.
func (s Situation) fireEach(p Plan, slot, before time.Time, late bool) Plan {
	limit := slotsPerClaim
	if s.Room > 0 {
		limit = min(limit, s.Room)
	}
	if s.Job.ConcurrencyPolicy.OneWaits() {
		limit = 1
	}
	for {
		s.fire(&p, slot, late)
		next, ok := s.Job.Timetable.Next(slot, s.Memo)
		if limit--; limit == 0 || !ok || !s.due(next.At).Before(before) {
			return s.advance(p, slot)
		}
		slot = next.At
	}
}

// fire plans the run of a slot, or its skip when the run would have expired or would overlap.
func (s Situation) fire(p *Plan, slot time.Time, late bool) {
	run := PlannedRun{ScheduledFor: slot, DueAt: s.due(slot), Trigger: TriggerSchedule, Late: late}
	if late {
		run.Trigger = TriggerCatchup
	}
	if s.Job.expired(run.DueAt, s.Now) {
		p.Skips = append(p.Skips, s.skip(ReasonExpired, slot, slot))
		return
	}
	o := s.overlap(s.Job.ConcurrencyPolicy)
	if o.Blocker != uuid.Nil {
		skip := s.skip(ReasonOverlap, slot, slot)
		skip.BlockedBy = o.Blocker
		p.Skips = append(p.Skips, skip)
		return
	}
	if s.Job.ConcurrencyPolicy == jobspec.PolicyQueue && s.Pending+len(p.Runs) >= s.Job.MaxPendingRuns {
		p.Skips = append(p.Skips, s.skip(ReasonLimit, slot, slot))
		return
	}
	run.Waits = o.Waits || len(s.Job.Limits) > 0 || late && s.Job.LinesUp()
	p.Cancel = append(p.Cancel, o.Cancel...)
	run.AtGate = run.Waits && s.Job.ConcurrencyPolicy.OneWaits()
	p.Runs = append(p.Runs, run)
}

// LinesUp reports whether missed slots wait as runs, each for the one before, although others of the job may overlap.
func (j *Job) LinesUp() bool { return j.Missed.InOrder() && j.ConcurrencyPolicy == jobspec.PolicyAllow }

// Overlap is what a job's concurrency policy says about one more run.
type Overlap struct {
	Blocker uuid.UUID   // the run that prevents it; uuid.Nil: it may be created
	Cancel  []uuid.UUID // the runs that it replaces
	Waits   bool        // it starts when the runs that hold the gate have ended
	Expired []uuid.UUID // runs that have expired while they waited
}

// Overlap decides about a run triggered by hand as Decide does about the run of a slot.
func (g Gate) Overlap(policy jobspec.ConcurrencyPolicy) Overlap {
	expired := g.expire()
	o := g.overlap(policy)
	o.Expired = expired
	return o
}

// expire removes the waiting run from g if it has expired, and returns it.
func (g *Gate) expire() (expired []uuid.UUID) {
	if g.WaitingExpired && g.Waiting != uuid.Nil {
		expired, g.Waiting = []uuid.UUID{g.Waiting}, uuid.Nil
	}
	return expired
}

func (g Gate) overlap(policy jobspec.ConcurrencyPolicy) (o Overlap) {
	switch policy {
	case jobspec.PolicyAllow:
		return o
	case jobspec.PolicyQueue:
		return Overlap{Waits: true}
	case jobspec.PolicyForbid:
		if o.Blocker = g.Waiting; len(g.Active) > 0 {
			o.Blocker = g.Active[0]
		}
	case jobspec.PolicyWait:
		o.Blocker = g.Waiting
	case jobspec.PolicyReplace:
		if o.Cancel = slices.Clone(g.Active); g.Waiting != uuid.Nil {
			o.Cancel = append(o.Cancel, g.Waiting)
		}
	}
	o.Waits = len(g.Active) > 0
	return o
}

// advance completes a plan with the slot that follows the last one settled. It computes the next slot from that one,
// never from now, so lateness does not become drift.
func (s Situation) advance(p Plan, settled time.Time) Plan {
	next, ok := s.Job.Timetable.Next(settled, s.Memo)
	if !ok {
		p.Done = true
		return p
	}
	p.Next, p.NextRunAt = next.At, s.due(next.At)
	return p
}

// newestDueBefore returns the newest slot due before the given instant, but none older than the situation's own. It
// looks backwards from that instant: walking forward through a month of missed minutes takes 0.6 s.
func (s Situation) newestDueBefore(instant time.Time) time.Time {
	newest := s.ScheduledFor
	for before := instant; ; {
		slot, ok := s.Job.Timetable.Prev(before)
		if !ok || !slot.At.After(newest) {
			return newest
		}
		if s.due(slot.At).Before(instant) {
			return slot.At
		}
		before = slot.At.Add(-1)
	}
}

// windowStart returns the oldest instant whose missed slot may still run. By default that is the newest missed slot,
// whose next one is still to come, or a day ago if that is earlier.
func (s Situation) windowStart(newest time.Time) time.Time {
	missed := s.Job.Missed
	switch {
	case !missed.Window.IsZero():
		return s.Now.Add(-missed.Window.Value())
	case !s.Job.Schedule.Kind().Recurring():
		return time.Time{}
	}
	start := jobspec.Earlier(s.Now.Add(-jobspec.LeastWindow), newest)
	if s.Job.Kept > 0 {
		return jobspec.Later(start, s.Now.Add(-s.Job.Kept))
	}
	return start
}

func (s Situation) due(slot time.Time) time.Time { return s.Job.Timetable.Due(slot, s.Memo) }

func (s Situation) skip(reason Reason, first, last time.Time) Skip {
	return Skip{Reason: reason, First: first, Last: last, Count: s.Job.Timetable.Count(first, last)}
}

// Misses reports whether a run that was wanted at an instant and comes to its claim now is missed. Its instant counts
// as the only slot of a job.
func (j *Job) Misses(due, now time.Time) bool {
	window := j.Missed.Window
	return due.Before(now.Add(-j.Missed.Tolerance.Value())) &&
		(j.Missed.Policy == jobspec.MissedSkip || !window.IsZero() && due.Before(now.Add(-window.Value())))
}

// SkipPassed plans one skip, with the reason, for the slots of a recurring job from the given one up to now. The
// plan's next slot is the first after them. A resume accounts for a pause this way, and a delete for what was due.
func SkipPassed(s Situation, reason Reason) Plan {
	newest := s.newestDueBefore(s.Now.Add(1))
	if s.due(newest).After(s.Now) {
		return Plan{Next: s.ScheduledFor, NextRunAt: s.due(s.ScheduledFor)}
	}
	return s.skipUpTo(newest, reason)
}

// SkipBefore plans one skip, with the reason, for the slots of a recurring job from the given one, which lies before
// instant, up to that instant. The plan's next slot is the first after them. The end of a pause accounts for it this
// way.
func SkipBefore(s Situation, instant time.Time, reason Reason) Plan {
	newest, _ := s.Job.Timetable.Prev(instant.Add(-1))
	return s.skipUpTo(jobspec.Later(s.ScheduledFor, newest.At), reason)
}

// skipUpTo plans one skip for the slots from the situation's own to the newest, both included.
func (s Situation) skipUpTo(newest time.Time, reason Reason) Plan {
	return s.advance(Plan{Skips: []Skip{s.skip(reason, s.ScheduledFor, newest)}}, newest)
}

// Starts is how many runs of the plan start now.
func (p Plan) Starts() (n int) {
	for _, r := range p.Runs {
		if !r.Waits {
			n++
		}
	}
	return n
}
