package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/aside"
	"punctual/store/letters"
)

// An operator gives up what fails each time, as far as it has an end of its own. (The end of an event was refused by
// a constraint, after its record had been forgotten.)
func TestWhatIsSetAsideIsGivenUp(t *testing.T) {
	t.Parallel()
	const statusOf = `SELECT concat_ws(' ', status, reason) FROM punctual.runs WHERE id = $1`
	for _, kind := range []struct {
		aside.Kind
		of          func(c Replica) uuid.UUID
		state, want string // SQL for what has become of the item, and what it is then
	}{
		{aside.Outcome, func(c Replica) uuid.UUID { return c.Manual("job").RunID }, statusOf, "dead poison"},
		{aside.Run, func(c Replica) uuid.UUID {
			c.Create("job", Never)
			return c.Trigger("job").ID
		}, statusOf, "cancelled cancelled_by_user"},
		{aside.Workflow, func(c Replica) uuid.UUID {
			c.Create("flow", Never, Steps("a"))
			return c.StartWorkflow("flow", "").RunID
		}, `SELECT reason::text FROM punctual.runs WHERE id = $1`, "cancelled_by_user"},
		{
			aside.Event, func(c Replica) uuid.UUID {
				c.Create("job", On("arrived", ""))
				return c.Emit("arrived", `{}`).ID
			}, `SELECT concat_ws(' ', 'made', made, CASE WHEN ended_at IS NOT NULL AND turn_at IS NULL THEN 'ended' END)
				FROM punctual.events WHERE id = $1`, "made 0 ended",
		},
		{aside.Operation, func(c Replica) uuid.UUID {
			c.Create("job", Never)
			c.Die("job", 1)
			return c.Start(letters.BulkRequest{Kind: letters.OperationReplay}).ID
		}, `SELECT state FROM punctual.operations WHERE id = $1`, "failed"},
		{aside.Notice, func(c Replica) uuid.UUID {
			job := c.Create("job", Never, Notify(Hook, jobspec.EventDead))
			c.Die("job", 1)
			c.WantCount(1, "notices", `SELECT count(*) FROM punctual.notices`)
			return job.ID
		}, `SELECT count(*)::text FROM punctual.notices WHERE job_id = $1`, "0"},
		{aside.Recipient, func(c Replica) uuid.UUID {
			c.Create("job", Never, Notify(Hook, jobspec.EventDead))
			c.Die("job", 1)
			c.Tell()
			return Value[uuid.UUID](c.Fixture, `SELECT id FROM punctual.outbox WHERE due_at IS NOT NULL`)
		}, `SELECT count(due_at)::text FROM punctual.outbox WHERE id = $1`, "0"},
		{aside.Recipient, func(c Replica) uuid.UUID {
			c.Create("job", Never, Notify(Hook, jobspec.EventSucceeded))
			c.FinishAndRelease(Succeeded(c.Begun("job")))
			return Value[uuid.UUID](c.Fixture, `SELECT recipient_id FROM punctual.lifecycle_events`)
		}, `SELECT count(*)::text FROM punctual.lifecycle_events WHERE recipient_id = $1`, "0"},
	} {
		t.Run(string(kind.Kind), func(t *testing.T) {
			c := NewReplica(t)
			ctx := t.Context()
			id := kind.of(c)
			set := aside.Item{Kind: kind.Kind, ID: id, Tenant: c.Tenant}
			if !c.Aside.Put(ctx, set, errors.New("refused")) {
				t.Fatal("it could not be set aside")
			}
			shown, err := c.RetryAside(ctx, kind.Kind, id)
			if err != nil || shown.ID != id || shown.Reason != "refused" {
				t.Errorf("tried again: %+v, error %v", shown, err)
			}
			c.Must(c.DropAside(ctx, kind.Kind, id))
			if is := Value[string](c.Fixture, kind.state, id); is != kind.want {
				t.Errorf("it is %q, want %q", is, kind.want)
			}
			c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
			WantError(t, c.DropAside(ctx, kind.Kind, id), store.ErrNotFound)
		})
	}
}

// Whose a run is may have been unreadable when it was set aside.
func TestWhatIsOfAnUnknownTenantIsGivenUp(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never)
	run := c.Trigger("job").ID
	c.Aside.Put(t.Context(), aside.Item{Kind: aside.Run, ID: run}, errors.New("refused"))
	c.Must(c.DropAside(t.Context(), aside.Run, run))
	c.WantCount(1, "runs are cancelled", `SELECT count(*) FROM punctual.runs WHERE status = 'cancelled'`)
	unknown := uuid.New()
	c.Aside.Put(t.Context(), aside.Item{Kind: aside.Run, ID: unknown}, errors.New("refused"))
	if err := c.DropAside(t.Context(), aside.Run, unknown); err == nil {
		t.Error("a run whose tenant is not known was given up")
	}
	c.WantCount(1, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
}

// What has ended meanwhile, or is gone, is only forgotten.
func TestWhatIsOverIsNoLongerSetAside(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job")
	c.FinishAndRelease(Succeeded(a))
	for kind, id := range map[aside.Kind]uuid.UUID{
		aside.Run: a.RunID, aside.Outcome: a.RunID, aside.Workflow: uuid.New(), aside.Event: uuid.New(),
		aside.Operation: uuid.New(), aside.Notice: uuid.New(), aside.Recipient: uuid.New(),
	} {
		c.Aside.Put(t.Context(), aside.Item{Kind: kind, ID: id, Tenant: c.Tenant}, errors.New("refused"))
		if err := c.DropAside(t.Context(), kind, id); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
	c.WantCount(1, "runs have succeeded", `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`)
}

// An item is forgotten only once it has ended: else it would be set aside anew, as if nobody had decided.
func TestWhatCannotBeGivenUpStaysSetAside(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job")
	c.Aside.PutRun(t.Context(), aside.Outcome, a.RunID, errors.New("refused"))
	mend := c.Before("INSERT", "dead_letters", `RAISE EXCEPTION 'refused';`)
	if err := c.DropAside(t.Context(), aside.Outcome, a.RunID); err == nil {
		t.Error("it was given up")
	}
	c.WantCount(1, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
	mend()
	c.Must(c.DropAside(t.Context(), aside.Outcome, a.RunID))
	WantError(t, c.DropAside(t.Context(), aside.Slot, uuid.New()), store.ErrState)
}
