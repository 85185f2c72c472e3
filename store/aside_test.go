package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/aside"
)

// An operator gives up what fails each time, as far as it has an end of its own.
func TestWhatIsSetAsideIsGivenUp(t *testing.T) {
	c := NewReplica(t)
	ctx := t.Context()
	a := c.Manual("job")
	c.Aside.PutRun(ctx, aside.Outcome, a.RunID, errors.New("refused"))
	shown, err := c.RetryAside(ctx, aside.Outcome, a.RunID)
	if err != nil || shown.ID != a.RunID || shown.Reason != "refused" || OrEmpty(shown.Job) != "job" {
		t.Errorf("tried again: %+v, error %v", shown, err)
	}
	c.Must(c.DropAside(ctx, aside.Outcome, a.RunID))
	if run := c.Run(a.RunID); run.Status != "dead" || OrEmpty(run.Reason) != "poison" {
		t.Errorf("the run is %s, %s", run.Status, OrEmpty(run.Reason))
	}
	c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
	WantError(t, c.DropAside(ctx, aside.Outcome, a.RunID), store.ErrNotFound)
	WantError(t, c.DropAside(ctx, aside.Slot, uuid.New()), store.ErrState)
}
