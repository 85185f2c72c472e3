package scheduler

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
)

// catchupPerClaim is how many missed slots of one job become runs in one claim, so that a long outage
// drains at a pace instead of being released at once.
const catchupPerClaim = 10

// deferral is how long a catch-up run waits before it looks again whether the job's active run has ended.
const deferral = time.Second

// maxCount is how far skipped slots are counted: counting on would hold locks for too long.
const maxCount = 1000

// Situation is what a claim read of a due job after it had locked the job's schedule and gate.
type Situation struct {
	Job          *Job
	ScheduledFor time.Time // the slot that is due
	Gate
	Now  time.Time // the database's clock
	Room int       // how many runs there are worker slots for; 0: as many as may be
	Memo *cron.Memo
}

// Gate says which runs of a job are in the way of another one.
type Gate struct {
	Active         []uuid.UUID // those that hold it: one, or those that were in flight when the job got its gate
	Waiting        uuid.UUID   // the run that starts when they have ended; uuid.Nil when none does
	WaitingExpired bool        // the waiting run has expired, and so blocks nobody
}

// Plan is what a claim writes for one due job: runs, skips, and the next slot.
type Plan struct {
	Runs  []PlannedRun
	Skips []Skip
	// Cancel are runs that a newer one replaces.
	Cancel []uuid.UUID
	// Expired are runs that have expired while they waited.
	Expired []uuid.UUID
	// Next and NextRunAt are the job's next slot and when it is due; zero when Done.
	Next, NextRunAt time.Time
	// Done says that no slot is left.
	Done bool
}

// PlannedRun is a run that a slot becomes.
type PlannedRun struct {
	ScheduledFor, DueAt time.Time
	Trigger             Trigger
	Late                bool
	// Waits says that it starts when the job's active run has ended.
	Waits bool
}

// Skip is a recorded range of slots that will not run, first and last included.
type Skip struct {
	Reason      Reason
	First, Last time.Time
	Count       int       // 0: more than 1,000
	BlockedBy   uuid.UUID // for overlap: the run in the way
}

// Decide turns a due slot into a plan: it fires, or is recorded as a skip, by the job's policies for
// missed slots, overlap and expiry. It is pure; the same situation always gives the same plan.
func Decide(s Situation) Plan {
	expired := s.expire()
	p := s.decide()
	p.Expired = expired
	return p
}

func (s Situation) decide() Plan {
	missedBefore := s.Now.Add(-s.Job.Missed.Tolerance.Value()) // a slot due before this is missed
	if !s.due(s.ScheduledFor).Before(missedBefore) {
		var p Plan
		s.fire(&p, s.ScheduledFor, false)
		return s.advance(p, s.ScheduledFor)
	}
	newest := s.newestDueBefore(missedBefore)
	switch s.Job.Missed.Policy {
	case MissedSkip:
		p := Plan{Skips: []Skip{s.skip(ReasonMissed, s.ScheduledFor, newest)}}
		return s.advance(p, newest)
	case MissedFireAll:
		return s.fireAll(missedBefore, newest)
	}
	return s.fireOnce(newest)
}

// fireOnce runs the newest missed slot, if the window reaches back to it, and records the others.
func (s Situation) fireOnce(newest time.Time) Plan {
	var p Plan
	if newest.Before(s.windowStart()) {
		p.Skips = append(p.Skips, s.skip(ReasonMissed, s.ScheduledFor, newest))
		return s.advance(p, newest)
	}
	if s.ScheduledFor.Before(newest) {
		before, _ := s.Job.Timetable.Prev(newest.Add(-1))
		p.Skips = append(p.Skips, s.skip(ReasonMissed, s.ScheduledFor, before.At))
	}
	s.fire(&p, newest, true)
	return s.advance(p, newest)
}

// fireAll runs the missed slots within the window, oldest first and a few per claim, and records those
// beyond it. A job that must not overlap gets one at a time, and none while a run of it is active or waits.
func (s Situation) fireAll(missedBefore, newest time.Time) Plan {
	var p Plan
	slot := s.ScheduledFor
	if start := s.windowStart(); slot.Before(start) {
		last, ok := s.Job.Timetable.Prev(start.Add(-1))
		if !ok || last.At.Before(slot) {
			last.At = slot
		}
		if newest.Before(last.At) {
			last.At = newest
		}
		p.Skips = append(p.Skips, s.skip(ReasonMissed, slot, last.At))
		next, ok := s.Job.Timetable.Next(last.At, s.Memo)
		if !ok || !s.due(next.At).Before(missedBefore) {
			return s.advance(p, last.At)
		}
		slot = next.At
	}
	limit := catchupPerClaim
	if s.Room > 0 {
		limit = min(limit, s.Room)
	}
	if s.Job.ConcurrencyPolicy != PolicyAllow {
		limit = 1
		if len(s.Active) > 0 || s.Waiting != uuid.Nil {
			p.Next, p.NextRunAt = slot, s.Now.Add(deferral)
			return p
		}
	}
	for {
		s.fire(&p, slot, true)
		next, ok := s.Job.Timetable.Next(slot, s.Memo)
		if limit--; limit == 0 || !ok || !s.due(next.At).Before(missedBefore) {
			return s.advance(p, slot)
		}
		slot = next.At
	}
}

// fire plans the run of a slot, or the skip that expiry or overlap makes of it.
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
	run.Waits, p.Cancel = o.Waits, append(p.Cancel, o.Cancel...)
	p.Runs = append(p.Runs, run)
}

// Overlap is what a job's concurrency policy makes of one more run.
type Overlap struct {
	Blocker uuid.UUID   // the run because of which it must not be; uuid.Nil: it may
	Cancel  []uuid.UUID // the runs that it replaces
	Waits   bool        // it starts when those that hold the gate have ended
	Expired []uuid.UUID // runs that have expired while they waited
}

// Overlap decides about a run by hand as Decide does about that of a slot.
func (g Gate) Overlap(policy ConcurrencyPolicy) Overlap {
	expired := g.expire()
	o := g.overlap(policy)
	o.Expired = expired
	return o
}

// expire returns the waiting run if it has expired, and goes on without it.
func (g *Gate) expire() (expired []uuid.UUID) {
	if g.WaitingExpired && g.Waiting != uuid.Nil {
		expired, g.Waiting = []uuid.UUID{g.Waiting}, uuid.Nil
	}
	return expired
}

func (g Gate) overlap(policy ConcurrencyPolicy) (o Overlap) {
	switch policy {
	case PolicyAllow:
		return o
	case PolicyForbid:
		if o.Blocker = g.Waiting; len(g.Active) > 0 {
			o.Blocker = g.Active[0]
		}
	case PolicyWait:
		o.Blocker = g.Waiting
	case PolicyReplace:
		if o.Cancel = slices.Clone(g.Active); g.Waiting != uuid.Nil {
			o.Cancel = append(o.Cancel, g.Waiting)
		}
	}
	o.Waits = len(g.Active) > 0
	return o
}

// advance completes a plan with the slot that follows the last one settled. It is computed from that
// slot, never from now, so lateness does not become drift.
func (s Situation) advance(p Plan, settled time.Time) Plan {
	next, ok := s.Job.Timetable.Next(settled, s.Memo)
	if !ok {
		p.Done = true
		return p
	}
	p.Next, p.NextRunAt = next.At, s.due(next.At)
	return p
}

// newestDueBefore returns the newest slot due before the given instant, at least the situation's own.
// It looks backwards from that instant: walking a month of missed minutes forward takes 0.6 s.
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

// windowStart returns the oldest instant whose missed slot may still run.
func (s Situation) windowStart() time.Time {
	if s.Job.Missed.Window.IsZero() {
		return time.Time{}
	}
	return s.Now.Add(-s.Job.Missed.Window.Value())
}

func (s Situation) due(slot time.Time) time.Time { return s.Job.Timetable.Due(slot, s.Memo) }

func (s Situation) skip(reason Reason, first, last time.Time) Skip {
	count := s.Job.Timetable.count(first, last, maxCount, s.Memo)
	if count > maxCount {
		count = 0
	}
	return Skip{Reason: reason, First: first, Last: last, Count: count}
}

// SkipPassed plans the slots of a recurring job that passed from the given one up to now, as one skip
// with the reason; it is how a resume accounts for a pause and a delete for what was due. What follows is
// the plan's next slot.
func SkipPassed(s Situation, reason Reason) Plan {
	newest := s.newestDueBefore(s.Now.Add(1))
	if s.due(newest).After(s.Now) {
		return Plan{Next: s.ScheduledFor, NextRunAt: s.due(s.ScheduledFor)}
	}
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
