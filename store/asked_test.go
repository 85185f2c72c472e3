package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/replicas"
)

// deaf is a store whose heartbeats ask for no chore.
type deaf struct{ *replicas.Replicas }

func (d deaf) Renew(ctx context.Context, replica uuid.UUID, is scheduler.Condition) (scheduler.Pulse, error) {
	pulse, err := d.Replicas.Renew(ctx, replica, is)
	pulse.Chores = nil
	return pulse, err
}

// A heartbeat comes after two seconds. The replica that writes an operation needs none to begin with it.
func TestTheReplicaThatWritesAnOperationNeedsNoHeartbeatToWorkOnIt(t *testing.T) {
	c := NewFixture(t)
	c.Create("a", Never)
	c.ReplicateOn(deaf{c.Replicas}, "default", 1)
	for _, action := range []jobs.Action{jobs.PauseMany, jobs.ResumeMany} {
		o := c.StartJobs(Changing(action, jobs.Filter{}))
		c.Until("the end of a "+string(action), `SELECT state = 'done' FROM punctual.operations WHERE id = $1`, o.ID)
	}
}

func TestWorkThatIsWrittenForAChoreAsksForTheChore(t *testing.T) {
	c := NewReplica(t)
	c.Create("a", Never, Everything)
	c.Create("silent", Never)
	soon, late := c.Clock().Add(time.Second), c.Clock().Add(time.Hour)
	for _, write := range []struct {
		name string
		want string // empty: no chore
		does func()
	}{
		{"an operation", letters.Chore, func() { c.StartJobs(Changing(jobs.PauseMany, jobs.Filter{NamePrefix: "silent"})) }},
		{"an operation on nothing", "", func() { c.StartJobs(Changing(jobs.PauseMany, jobs.Filter{NamePrefix: "none"})) }},
		{"a pause", "", func() { c.PauseWith("silent", "", &late) }},
		{"a short pause", jobs.ChorePauses, func() { c.PauseWith("silent", "", &soon) }},
		{"a success", "", func() { c.WellAgain("a") }},
		{"a first failure", scheduler.ChoreNotices, func() { c.Finish(Failed(c.Begun("a"))) }},
		{"a second failure", "", func() { c.Finish(Failed(c.Begun("a"))) }},
		{"a death", scheduler.ChoreNotices, func() { c.Dies("a"); c.Tell() }},
		{"a death that is told later", "", func() { c.Dies("a") }},
		{"a recovery", scheduler.ChoreNotices, func() { c.WellAgain("a") }},
		{"a failure that nobody is told of", "", func() { c.Finish(Failed(c.Begun("silent"))) }},
		{"a reset", scheduler.ChoreHolds, func() {
			_, err := c.Replicas.ResetHolds(t.Context(), c.Tenant, "")
			Must(t, err)
		}},
	} {
		c.Asked()
		write.does()
		want := slices.DeleteFunc([]string{write.want}, func(s string) bool { return s == "" })
		if got := c.Asked(); !slices.Equal(got, want) {
			t.Errorf("%s asks for %v, want %v", write.name, got, want)
		}
	}
}

func TestWorkThatIsNotCommittedAsksForNoChore(t *testing.T) {
	c := NewFixture(t)
	c.Create("a", Never)
	undone := errors.New("undone")
	start := func(tx *pg.Tx) error {
		_, err := c.Letters.Operator(pg.Writes{Pool: c.DB.Callers, Tenant: c.Tenant, Tx: tx}).
			StartJobs(t.Context(), Changing(jobs.PauseMany, jobs.Filter{}))
		return err
	}
	for name, write := range map[string]func(tx *pg.Tx) error{
		"a transaction": func(tx *pg.Tx) error { return errors.Join(start(tx), undone) },
		"a part of one": func(tx *pg.Tx) error {
			if err := tx.Try(t.Context(), func(part *pg.Tx) error {
				return errors.Join(start(part), undone)
			}); !errors.Is(err, undone) {
				return err
			}
			return nil
		},
	} {
		if err := c.DB.Callers.InTx(t.Context(), c.Tenant, write); err != nil && err.Error() != undone.Error() {
			t.Fatal(err)
		}
		if got := c.Asked(); got != nil {
			t.Errorf("%s that is undone asks for %v", name, got)
		}
	}
	Must(t, c.DB.Callers.InTx(t.Context(), c.Tenant, func(tx *pg.Tx) error { return tx.Try(t.Context(), start) }))
	if got := c.Asked(); !slices.Equal(got, []string{letters.Chore}) {
		t.Errorf("a part that is committed asks for %v", got)
	}
}
