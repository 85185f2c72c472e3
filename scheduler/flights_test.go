package scheduler

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// One run can have two attempts in flight. A target may report a failure before it answers: then the next attempt
// starts while the first still waits for the answer. A replica that was taken for lost may claim its own run again.
func TestACancelReachesEveryAttemptOfItsRunThatIsInFlight(t *testing.T) {
	t.Parallel()
	var f flights
	run, other := uuid.New(), uuid.New()
	first, firstDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 1, Job: &domain.Job{}})
	second, secondDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 2, Job: &domain.Job{}})
	third, thirdDone := f.begin(t.Context(), domain.Assignment{RunID: other, Fence: 3, Job: &domain.Job{}})
	defer thirdDone()

	firstDone() // the first attempt gets its answer
	f.cancel([]uuid.UUID{run})
	if !errors.Is(context.Cause(second), errCancelled) {
		t.Errorf("the attempt in flight goes on: %v", context.Cause(second))
	}
	if errors.Is(context.Cause(first), errCancelled) || third.Err() != nil {
		t.Errorf("an attempt that was over ends with %v, one of another run with %v", context.Cause(first),
			context.Cause(third))
	}
	fourth, fourthDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 4, Job: &domain.Job{}})
	defer fourthDone()
	secondDone()
	if fourth.Err() != nil {
		t.Error("the end of one attempt ended the next")
	}
	f.cancel([]uuid.UUID{run})
	if !errors.Is(context.Cause(fourth), errCancelled) {
		t.Errorf("the next attempt goes on: %v", context.Cause(fourth))
	}
}

func TestACancelCutsOffBothAttemptsOfARun(t *testing.T) {
	t.Parallel()
	var f flights
	run := uuid.New()
	first, firstDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 1, Job: &domain.Job{}})
	defer firstDone()
	second, secondDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 2, Job: &domain.Job{}})
	defer secondDone()
	f.cancel([]uuid.UUID{run})
	for i, ctx := range []context.Context{first, second} {
		if !errors.Is(context.Cause(ctx), errCancelled) {
			t.Errorf("attempt %d goes on: %v", i+1, context.Cause(ctx))
		}
	}
}
