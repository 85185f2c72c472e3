package scheduler

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

var errOther = errors.New("another cause")

func TestWhatWaitsForTheEndOfAnAttemptIsCalledOnce(t *testing.T) {
	t.Parallel()
	var s sending
	if s.Err() != nil || s.whyEnded() != nil {
		t.Errorf("it has ended before it was cut: %v", s.whyEnded())
	}
	called := make(chan string, 10)
	tell := func(who string) func() { return func() { called <- who } }
	stopFirst := s.AfterFunc(tell("first"))
	stopSecond := context.AfterFunc(&s, tell("second"))
	stopThird := s.AfterFunc(tell("third"))
	child, cancel := context.WithCancelCause(&s)
	defer cancel(nil)
	if !stopSecond() || stopSecond() {
		t.Error("a function can be stopped once")
	}
	s.cut(errCancelled)
	s.cut(errOther)
	if !errors.Is(s.Err(), context.Canceled) || !errors.Is(s.whyEnded(), errCancelled) {
		t.Errorf("it ended with %v because of %v", s.Err(), s.whyEnded())
	}
	<-s.Done()
	<-child.Done()
	got := map[string]bool{<-called: true, <-called: true}
	if !got["first"] || !got["third"] {
		t.Errorf("called were %v", got)
	}
	if stopFirst() || stopThird() {
		t.Error("a function was stopped that has been called")
	}
	stop := s.AfterFunc(tell("late"))
	if who := <-called; who != "late" || stop() {
		t.Errorf("after the end %q was called at once", who)
	}
	if len(called) > 0 {
		t.Errorf("%q was called again", <-called)
	}
}

func TestDoneOfAnAttemptThatHasEndedIsClosed(t *testing.T) {
	t.Parallel()
	var s sending
	s.cut(errCancelled)
	select {
	case <-s.Done():
	default:
		t.Error("it is open")
	}
}

// Runs that must not overlap are cut off with the replica: those of gated jobs, and those that hold a limit of how many
// run.
func TestWhichAttemptsAreCutOffWithTheReplica(t *testing.T) {
	t.Parallel()
	s := &Scheduler{workCtx: t.Context()}
	s.heart = newHeartbeat(s)
	for a, cut := range map[*domain.Assignment]bool{{}: false, {Gated: true}: true, {Bounded: true}: true} {
		if (s.contextOf(*a) == s.heart.exclusive()) != cut {
			t.Errorf("gated %t, bounded %t: cut off %t", a.Gated, a.Bounded, !cut)
		}
	}
}

// Attempts end with what they were begun with: those that must not overlap with their own context, all with the work.
func TestAttemptsEndWithTheirParent(t *testing.T) {
	t.Parallel()
	var f flights
	work, stop := context.WithCancelCause(t.Context())
	f.endWith(work)
	gated, cut := context.WithCancelCause(work)
	begin := func(parent context.Context, fence int64) *sending {
		s, done := f.begin(parent, domain.Assignment{RunID: uuid.New(), Fence: fence, Job: &domain.Job{}})
		t.Cleanup(done)
		return s
	}
	exclusive, other, exclusiveToo := begin(gated, 1), begin(work, 2), begin(gated, 3)
	cut(errNotRenewed)
	<-exclusive.Done()
	<-exclusiveToo.Done()
	if !errors.Is(exclusive.whyEnded(), errNotRenewed) || other.Err() != nil {
		t.Errorf("the exclusive attempt ended because of %v, the other one because of %v", exclusive.whyEnded(),
			other.whyEnded())
	}
	stop(errDraining)
	<-other.Done()
	late := begin(work, 4)
	if !errors.Is(other.whyEnded(), errDraining) || !errors.Is(late.whyEnded(), errDraining) {
		t.Errorf("they ended because of %v and %v", other.whyEnded(), late.whyEnded())
	}
}
