package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/claim"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// deaf is a store whose heartbeats ask for no chore.
type deaf struct{ *claim.Claims }

func (d deaf) Renew(ctx context.Context, replica uuid.UUID, is scheduler.Condition) (scheduler.Pulse, error) {
	pulse, err := d.Claims.Renew(ctx, replica, is)
	pulse.Chores = nil
	return pulse, err
}

// A heartbeat comes after two seconds. The replica that writes an operation needs none to begin with it.
func TestTheReplicaThatWritesAnOperationNeedsNoHeartbeatToWorkOnIt(t *testing.T) {
	c := newCRUD(t)
	c.create("a", never)
	c.replicateOn(deaf{c.Claims}, "default", 1)
	for _, action := range []jobs.Action{jobs.PauseMany, jobs.ResumeMany} {
		o := c.startJobs(changing(action, jobs.Filter{}))
		c.until("the end of a "+string(action), `SELECT state = 'done' FROM punctual.operations WHERE id = $1`, o.ID)
	}
}

// asked returns the chores that were asked for since the last call.
func (c crud) asked() (chores []string) {
	names := []string{scheduler.ChoreHolds, scheduler.ChoreNotices}
	for _, chore := range c.Chores() {
		names = append(names, chore.Name)
	}
	for _, name := range names {
		select {
		case <-c.Claims.Asked(name):
			chores = append(chores, name)
		default:
		}
	}
	return chores
}

func TestWorkThatIsWrittenForAChoreAsksForTheChore(t *testing.T) {
	c := newClaimer(t)
	c.create("a", never, everything)
	c.create("silent", never)
	soon, late := c.now().Add(time.Second), c.now().Add(time.Hour)
	for _, write := range []struct {
		name string
		want string // empty: no chore
		does func()
	}{
		{"an operation", letters.Chore, func() { c.startJobs(changing(jobs.PauseMany, jobs.Filter{NamePrefix: "silent"})) }},
		{"an operation on nothing", "", func() { c.startJobs(changing(jobs.PauseMany, jobs.Filter{NamePrefix: "none"})) }},
		{"a pause", "", func() { c.pauseWith("silent", "", &late) }},
		{"a short pause", jobs.ChorePauses, func() { c.pauseWith("silent", "", &soon) }},
		{"a success", "", func() { c.wellAgain("a") }},
		{"a first failure", scheduler.ChoreNotices, func() { c.finish(failed(c.begun("a"))) }},
		{"a second failure", "", func() { c.finish(failed(c.begun("a"))) }},
		{"a death", scheduler.ChoreNotices, func() { c.dies("a"); c.tell() }},
		{"a death that is told later", "", func() { c.dies("a") }},
		{"a recovery", scheduler.ChoreNotices, func() { c.wellAgain("a") }},
		{"a failure that nobody is told of", "", func() { c.finish(failed(c.begun("silent"))) }},
		{"a reset", scheduler.ChoreHolds, func() {
			_, err := c.Fleet.ResetHolds(t.Context(), c.tenant, "")
			must(t, err)
		}},
	} {
		c.asked()
		write.does()
		want := slices.DeleteFunc([]string{write.want}, func(s string) bool { return s == "" })
		if got := c.asked(); !slices.Equal(got, want) {
			t.Errorf("%s asks for %v, want %v", write.name, got, want)
		}
	}
}

func TestWorkThatIsNotCommittedAsksForNoChore(t *testing.T) {
	c := newCRUD(t)
	c.create("a", never)
	undone := errors.New("undone")
	start := func(tx *pg.Tx) error {
		_, err := c.Letters.Operator(pg.Writes{Pool: c.DB.Callers, Tenant: c.tenant, Tx: tx}).
			StartJobs(t.Context(), changing(jobs.PauseMany, jobs.Filter{}))
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
		if err := c.DB.Callers.InTx(t.Context(), c.tenant, write); err != nil && err.Error() != undone.Error() {
			t.Fatal(err)
		}
		if got := c.asked(); got != nil {
			t.Errorf("%s that is undone asks for %v", name, got)
		}
	}
	must(t, c.DB.Callers.InTx(t.Context(), c.tenant, func(tx *pg.Tx) error { return tx.Try(t.Context(), start) }))
	if got := c.asked(); !slices.Equal(got, []string{letters.Chore}) {
		t.Errorf("a part that is committed asks for %v", got)
	}
}
