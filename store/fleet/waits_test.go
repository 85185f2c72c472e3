package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store/fleet"
	"punctual/store/pg"
)

// waits returns what work of the queue default waits for, to the minute.
func waits(c Fixture) string {
	c.T.Helper()
	all, err := c.Fleet.Waits(c.T.Context())
	Must(c.T, err)
	said := ""
	for _, w := range all {
		if w.Queue == "default" && w.Oldest >= time.Minute {
			said += fmt.Sprintf("%s %d ", w.For, int(w.Oldest.Minutes()))
		}
	}
	return said
}

// Each case is told apart, so that the alarm of one cause does not ring for another.
func TestTheOldestDueWorkIsToldByItsCause(t *testing.T) {
	c := NewReplica(t)
	other := c.Neighbour(1)
	want := func(what, want string) {
		t.Helper()
		if got := waits(c.Fixture); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	if all, err := c.Fleet.Waits(t.Context()); err != nil || len(all) != 5 {
		t.Fatalf("%+v, error %v", all, err)
	}
	want("nothing is due", "")
	slot := func(c Replica, name string, ago time.Duration) {
		job := c.Create(name, Every(24*time.Hour), Tolerant)
		c.SetNext(job.ID, c.Clock().Add(-ago))
	}
	slot(c, "mine", 20*time.Minute+time.Second)
	slot(other, "theirs", 10*time.Minute+time.Second)
	want("due slots", "nothing 20 ")
	c.Limited(true)
	want("the older one's tenant is at a limit", "limit 20 nothing 10 ")
	c.Exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'x' WHERE id = $1`, other.Tenant)
	want("the other tenant is frozen", "limit 20 ")
	c.Exec(`UPDATE punctual.replicas SET draining = true`)
	want("no replica serves the queue", "queue 20 ")
	c.Exec(`UPDATE punctual.schedules SET next_run_at = now() + interval '1 day'`)
	c.Trigger(c.Create("by-hand", Never).Definition.Name)
	c.Exec(`UPDATE punctual.ready SET due_at = now() + interval '1 h', waits = 'host', waits_on = 'breaker a:1',
		since = now() - interval '61 s', until = now() + interval '1 h'`)
	want("its host is down", "host 1 ")
	c.Exec(`UPDATE punctual.ready SET waits = 'gate', waits_on = NULL, until = NULL, since = now() - interval '301 s'`)
	want("another run of the job is active", "gate 5 ")
	slot(c, "more", 61*time.Minute+time.Second)
	want("there are due slots too", "gate 5 queue 61 ")
	c.Freeze(-1, "the warehouse moves")
	want("the deployment is frozen", "gate 5 ")
}

// overdue returns how much work of the queue default is overdue.
func overdue(c Fixture) (n int) {
	c.T.Helper()
	all, err := c.Fleet.Overdue(c.T.Context())
	Must(c.T, err)
	for _, o := range all {
		if o.Queue == "default" {
			n = o.Count
		}
	}
	return n
}

func TestOverdueWorkIsCounted(t *testing.T) {
	c := NewReplica(t)
	for i := range 3 {
		job := c.Create(fmt.Sprint("late-", i), Every(24*time.Hour), Tolerant)
		c.SetNext(job.ID, c.Clock().Add(-11*time.Second))
	}
	just := c.Create("just", Every(24*time.Hour), Tolerant)
	c.SetNext(just.ID, c.Clock())
	run := c.Trigger(c.Create("by-hand", Never).Definition.Name).ID
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '11 s' WHERE run_id = $1`, run)
	if n := overdue(c.Fixture); n != 4 {
		t.Errorf("%d are overdue, want 3 slots and a run", n)
	}
	c.Exec(`UPDATE punctual.ready SET waits = 'host', waits_on = 'breaker a:1', since = now(), until = now() + interval '1 h'`)
	if n := overdue(c.Fixture); n != 3 {
		t.Errorf("%d are overdue, want 3 slots, as the run waits for its host", n)
	}
	c.Exec(`UPDATE punctual.replicas SET draining = true`)
	if n := overdue(c.Fixture); n != 0 {
		t.Errorf("%d wait for nothing, although no replica serves the queue", n)
	}
}

func TestTheOldestDueWorkIsFoundByIndex(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	c.Fill(pg.DepthCap * 15) // a tenth of the rows is due
	c.Limited(true)
	if p := c.Explain(fleet.SelectWaits, pg.DepthCap); p.Hit+p.Read > 3*pg.DepthCap {
		t.Errorf("at a limit: %d pages", p.Hit+p.Read)
	}
	c.Limited(false)
	if p := c.Explain(fleet.SelectWaits, pg.DepthCap); p.Hit+p.Read > 1000 {
		t.Errorf("without a limit: %d pages", p.Hit+p.Read)
	}
	if p := c.Explain(fleet.SelectOverdue, 1000, fleet.OverdueAfter); p.Hit+p.Read > 30_000 {
		t.Errorf("counting overdue work: %d pages", p.Hit+p.Read)
	}
}
