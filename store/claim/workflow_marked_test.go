package claim_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// What a finish decides by the steps next to the one that ends must not hide what has happened to another step.
func TestAFinishHeedsAStepThatWasCancelledBefore(t *testing.T) {
	c := NewReplica(t)
	c.Create("etl", Never, Steps("a", "b", "next<a", "after<b!"))
	w := c.StartWorkflow("etl", "")
	a := c.One(c.ClaimReady(1))
	other := map[string]string{"a": "b", "b": "a"}[a.Step]
	if _, err := c.Runs.CancelRun(t.Context(), c.Tenant, domain.StepRunID(w.RunID, other)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(a)}, []uuid.UUID{a.Lease.ID}); err != nil {
		t.Fatal(err) // before the chore has looked at the cancel
	}
	c.GoOn()
	got := c.StepsOf(w.RunID)
	for _, step := range []string{"next ", "after "} {
		if !strings.Contains(got, step) {
			t.Errorf("%sis not decided: %s", step, got)
		}
	}
}
