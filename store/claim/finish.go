package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/pg"
)

// Earlier are runs of leases that end. Their outcomes were written before.
type Earlier struct {
	Runs    []uuid.UUID
	Started *time.Time // when the Postgres was started from which the leases were claimed; nil: not known
}

// Finish implements scheduler.Store. It is idempotent: an outcome that was written before counts as superseded. An
// outcome that cannot be written keeps no other from being written: it is set aside, and left out.
func (s *Claims) Finish(
	ctx context.Context, outcomes []domain.Outcome, released []uuid.UUID, earlier ...uuid.UUID,
) (superseded int, err error) {
	left := newLeft()
	write := func(ctx context.Context, part []domain.Outcome, released, earlier []uuid.UUID) error {
		n, err := s.finishAll(ctx, part, released, earlier...)
		if some, is := errors.AsType[*scheduler.LeftOutcomesError](err); is {
			left.add(some)
			err = nil
		}
		superseded += n
		return err
	}
	all := outcomes
	suspect, outcomes := s.suspects.among(all)
	if len(suspect) > 0 && !s.isSound(ctx) {
		suspect, outcomes = nil, slices.Clone(all)
	}
	inParts := len(suspect) > 0 // the leases end with the whole batch, or after all its parts
	slices.SortStableFunc(outcomes, func(a, b domain.Outcome) int { return cmp.Compare(a.Job.Tenant, b.Job.Tenant) })
	failed, err := s.apart(ctx, outcomes, func(ctx context.Context, part []domain.Outcome) error {
		if len(part) == len(all) {
			return write(ctx, part, released, earlier)
		}
		inParts = true
		return write(ctx, part, nil, nil)
	})
	if aside.TooSlow(err) {
		s.patient.statements.tooShort()
		if s.patient.statements.now() >= longPatience && s.isSoundAtOnce(ctx) { // all of them hang
			for _, o := range outcomes {
				failed = append(failed, aside.Failed[domain.Outcome]{Item: o, Err: err})
			}
			err = nil
		}
	}
	if len(failed) > 0 && !s.isSound(ctx) {
		return 0, failed[0].Err // all are kept, and written again
	}
	s.leaveOut(ctx, left, append(suspect, failed...))
	switch {
	case err != nil:
		return 0, err
	case inParts || len(failed) > 0:
		earlier = append(slices.Clone(earlier), pg.Column(left.written(all), runOf)...)
		if err := write(ctx, nil, left.free(released, all), earlier); err != nil {
			return 0, err
		}
	default:
		s.patient.statements.wentWell()
	}
	s.forgetAside(ctx, all, left)
	if left.any() {
		return superseded, &left.LeftOutcomesError
	}
	return superseded, nil
}

// apart has work done on outcomes. One that was set aside is tried for a moment, as its replica writes no others
// meanwhile.
func (s *Claims) apart(
	ctx context.Context, outcomes []domain.Outcome, work func(ctx context.Context, part []domain.Outcome) error,
) ([]aside.Failed[domain.Outcome], error) {
	if len(outcomes) != 1 || !slices.Contains(s.aside.Of(aside.Outcome), outcomes[0].RunID) {
		return aside.Apart(ctx, outcomes, work)
	}
	limited, cancel := context.WithTimeout(ctx, aside.Part)
	defer cancel()
	err := work(limited, outcomes)
	if aside.Blames(ctx, err) {
		return []aside.Failed[domain.Outcome]{{Item: outcomes[0], Err: err}}, nil
	}
	return nil, err
}

// finishAll writes outcomes together.
func (s *Claims) finishAll(
	ctx context.Context, outcomes []domain.Outcome, released []uuid.UUID, earlier ...uuid.UUID,
) (superseded int, err error) {
	following, err := s.followers.Follow(ctx, s.db.Runs, pg.Everybody)
	if err != nil {
		return 0, fmt.Errorf("writing %d outcomes: %w", len(outcomes), err)
	}
	var f finishing
	err = s.wary.finish.try(func(wary bool) error {
		write := func(on days.Day) error { // each try begins anew
			f = finishing{outcomes: outcomes, released: released, following: following, on: on}
			f.earlier = Earlier{earlier, s.fences.StartedFor(released, outcomes)}
			return f.run(ctx, s, s.db.Runs, wary)
		}
		err := write(DayOf(outcomes, earlier...))
		if pg.Code(err) == "42P01" { // undefined_table: it was removed, as no known run of its day went on
			err = write(days.AnyDay)
		}
		return err
	})
	if err != nil {
		return 0, s.db.TookWrite(fmt.Errorf("writing %d outcomes: %w", len(outcomes), err))
	}
	failpoint.At(failpoint.FinishCommitted)
	s.options.Tracer.Ended(f.outcomes, f.written)
	copy(outcomes, f.decided.all)
	s.db.Ask(following.Asks()...)
	if f.freed || slices.ContainsFunc(f.outcomes, dueSoon) {
		s.db.Wake()
	}
	for _, o := range f.outcomes {
		if !f.written[o.RunID] && o.Verdict != domain.Await {
			superseded++
		}
	}
	if len(f.locked) > 0 || len(f.kept) > 0 {
		if f.strangers {
			s.wary.finish.found()
		}
		return superseded, &scheduler.LeftOutcomesError{Runs: f.locked, Leases: f.kept}
	}
	return superseded, nil
}

// DayOf returns the day of the runs that succeeded or were accepted, and of further ones, if they all have the same.
func DayOf(outcomes []domain.Outcome, further ...uuid.UUID) days.Day {
	runs := slices.Clone(further)
	for i := range outcomes {
		if v := outcomes[i].Verdict; v == domain.Succeed || v == domain.Await {
			runs = append(runs, outcomes[i].RunID)
		}
	}
	return days.Common(runs...)
}

// dueSoon reports whether the run is ready again before the tick loop would look by itself.
func dueSoon(o domain.Outcome) bool {
	status := o.End().Status
	return (status == domain.StatusRetrying || status == domain.StatusPending) && o.RetryIn < pg.Soon
}
