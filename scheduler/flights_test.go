package scheduler

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// A run has two attempts in flight. A cancel reaches both, or the remaining one.
//
// One run can have two attempts in flight. A target may report a failure before it answers: then the next attempt
// starts while the first still waits for the answer. A replica that was taken for lost may claim its own run again.
//
//prove:replicas
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
	if !errors.Is(second.whyEnded(), errCancelled) {
		t.Errorf("the attempt in flight goes on: %v", second.whyEnded())
	}
	if errors.Is(first.whyEnded(), errCancelled) || third.Err() != nil {
		t.Errorf("an attempt that was over ends with %v, one of another run with %v", first.whyEnded(),
			third.whyEnded())
	}
	fourth, fourthDone := f.begin(t.Context(), domain.Assignment{RunID: run, Fence: 4, Job: &domain.Job{}})
	defer fourthDone()
	secondDone()
	if fourth.Err() != nil {
		t.Error("the end of one attempt ended the next")
	}
	f.cancel([]uuid.UUID{run})
	if !errors.Is(fourth.whyEnded(), errCancelled) {
		t.Errorf("the next attempt goes on: %v", fourth.whyEnded())
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
	for i, ctx := range []*sending{first, second} {
		if !errors.Is(ctx.whyEnded(), errCancelled) {
			t.Errorf("attempt %d goes on: %v", i+1, ctx.whyEnded())
		}
	}
}
