package store

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// What a finish decides by the steps beside the one that ends must not hide what has happened to another step.
func TestAFinishHeedsAStepThatWasCancelledBefore(t *testing.T) {
	c := newClaimer(t)
	c.create("etl", never, steps("a", "b", "next<a", "after<b!"))
	w := c.startWorkflow("etl", "")
	a := c.one(c.claimReady(1))
	other := map[string]string{"a": "b", "b": "a"}[a.Step]
	if _, err := c.Runs.CancelRun(t.Context(), c.tenant, domain.StepRunID(w.RunID, other)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{succeeded(a)}, []uuid.UUID{a.Lease.ID}); err != nil {
		t.Fatal(err) // before the chore has looked at the cancel
	}
	c.goOn()
	got := c.stepsOf(w.RunID)
	for _, step := range []string{"next ", "after "} {
		if !strings.Contains(got, step) {
			t.Errorf("%sis not decided: %s", step, got)
		}
	}
}
