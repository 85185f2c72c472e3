package store

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/store/fleet"
	"punctual/store/pg"
)

// waits returns what work of the queue default waits for, to the minute.
func (c crud) waits() string {
	c.t.Helper()
	all, err := c.Fleet.Waits(c.t.Context())
	must(c.t, err)
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
	c := newClaimer(t)
	other := c.neighbour(1)
	want := func(what, want string) {
		t.Helper()
		if got := c.waits(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	if all, err := c.Fleet.Waits(t.Context()); err != nil || len(all) != 5 {
		t.Fatalf("%+v, error %v", all, err)
	}
	want("nothing is due", "")
	slot := func(c claimer, name string, ago time.Duration) {
		job := c.create(name, every(24*time.Hour), tolerant)
		c.setNext(job.ID, c.now().Add(-ago))
	}
	slot(c, "mine", 20*time.Minute+time.Second)
	slot(other, "theirs", 10*time.Minute+time.Second)
	want("due slots", "nothing 20 ")
	c.limited(true)
	want("the older one's tenant is at a limit", "limit 20 nothing 10 ")
	c.exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'x' WHERE id = $1`, other.tenant)
	want("the other tenant is frozen", "limit 20 ")
	c.exec(`UPDATE punctual.replicas SET draining = true`)
	want("no replica serves the queue", "queue 20 ")
	c.exec(`UPDATE punctual.schedules SET next_run_at = now() + interval '1 day'`)
	c.trigger(c.create("by-hand", never).Definition.Name)
	c.exec(`UPDATE punctual.ready SET due_at = now() + interval '1 h', held_by = 'breaker a:1', held_since = now() - interval '61 s',
		held_until = now() + interval '1 h'`)
	want("its host is down", "host 1 ")
	c.exec(`UPDATE punctual.ready SET held_by = NULL, held_since = NULL, held_until = NULL, at_gate = true`)
	c.exec(`UPDATE punctual.runs SET due_at = now() - interval '301 s'`)
	want("another run of the job is active", "gate 5 ")
	slot(c, "more", 61*time.Minute+time.Second)
	want("there are due slots too", "gate 5 queue 61 ")
	c.freeze(-1, "the warehouse moves")
	want("the deployment is frozen", "gate 5 ")
}

func TestTheOldestDueWorkIsFoundByIndex(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := claimerOnClone(t)
	c.fill(pg.DepthCap * 15) // a tenth of the rows is due
	c.limited(true)
	if p := c.explain(fleet.SelectWaits, pg.DepthCap); p.Hit+p.Read > 3*pg.DepthCap {
		t.Errorf("at a limit: %d pages", p.Hit+p.Read)
	}
	c.limited(false)
	if p := c.explain(fleet.SelectWaits, pg.DepthCap); p.Hit+p.Read > 1000 {
		t.Errorf("without a limit: %d pages", p.Hit+p.Read)
	}
}
