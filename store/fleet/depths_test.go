package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/admit"
	"punctual/store/fleet"
	"punctual/store/history"
	"punctual/store/pg"
)

func TestQueueDepthsAreATenantsOwn(t *testing.T) {
	c := NewReplica(t)
	other := c.Neighbour(1)
	c.Many(5, "due", 2*time.Minute, Rarely, Tolerant)
	c.Create("later")
	other.Many(3, "theirs", time.Minute, Rarely, Tolerant)
	job := c.Create("by-hand", Never)
	c.Trigger(job.Definition.Name)
	c.Trigger(job.Definition.Name)
	c.Claim(2, true)

	depths, held, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
	if err != nil || len(depths) != 1 || held != nil {
		t.Fatalf("%+v, %+v, error %v", depths, held, err)
	}
	got := depths[0]
	if got.Name != "default" || got.DueRuns != 2 || got.LaterRuns != 0 ||
		got.DueSlots+got.InFlight != 5+got.InFlight-claimedOf(c) || got.OldestDue == nil ||
		time.Since(*got.OldestDue) < time.Minute {
		t.Errorf("%+v", got)
	}
	all, _, err := c.Fleet.QueueDepths(t.Context(), 0)
	if err != nil || all[0].DueSlots != 8-2 || all[0].DueRuns != 2 || all[0].InFlight != 2 {
		t.Errorf("of all tenants: %+v, error %v", all, err)
	}
	theirs, _, err := c.Fleet.QueueDepths(t.Context(), other.Tenant)
	if err != nil || theirs[0].DueSlots+got.DueSlots != all[0].DueSlots || theirs[0].InFlight+got.InFlight != 2 ||
		theirs[0].DueRuns != 0 {
		t.Errorf("of the other: %+v, error %v", theirs, err)
	}
	if replicas, err := c.Fleet.Replicas(t.Context()); err != nil || len(replicas) != 1 || replicas[0].ID != c.ReplicaID ||
		replicas[0].Queues["default"] != 100 {
		t.Errorf("%+v, error %v", replicas, err)
	}
}

// claimedOf counts a tenant's running runs.
func claimedOf(c Replica) int {
	return c.Count(`SELECT count(*) FROM punctual.runs WHERE tenant = $1 AND status = 'running'`, c.Tenant)
}

func TestDepthsAreCountedUpToACap(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	c.Fill(pg.DepthCap * 15) // a tenth of the rows is due
	depths, _, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
	if err != nil || depths[0].DueSlots != pg.DepthCap {
		t.Errorf("%+v, error %v", depths, err)
	}
	for name, sql := range map[string]string{"of one tenant": fleet.SelectDepthsOfTenant, "of all": fleet.SelectDepthsOfAll} {
		tenant := int32(0)
		if sql == fleet.SelectDepthsOfTenant {
			tenant = c.Tenant
		}
		if p := c.Explain(sql, tenant, pg.DepthCap, pg.MostInFlight); p.Hit+p.Read > 3*pg.DepthCap {
			t.Errorf("%s: %d pages", name, p.Hit+p.Read)
		}
	}
}

func TestWhyATenantsWorkWaitsIsTold(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_concurrent_runs", 3)
	job := c.Create("job", At(time.Now().Add(-time.Minute))) // it fires now
	slot, _ := c.Next(job.ID)
	explain := func() history.Explanation {
		t.Helper()
		return c.Explained("job", slot)
	}
	if e := explain(); e.Outcome != history.OutcomeWaiting || strings.Contains(e.Text, "max_concurrent_runs") {
		t.Fatalf("%s: %s", e.Outcome, e.Text)
	}
	wish := admit.Wish{Tenant: c.Tenant, HeldBy: admit.LimitConcurrent, Held: time.Minute}
	for range 2 { // a second note does not lengthen the recorded wait
		if _, err := c.Claims.Draw(t.Context(), uuid.New(), []admit.Wish{wish}); err != nil {
			t.Fatal(err)
		}
		wish.Held = 0
	}
	if e := explain(); !strings.HasSuffix(e.Text, "waits: the tenant is at max_concurrent_runs (3).") {
		t.Errorf("%s: %s", e.Outcome, e.Text)
	}
	_, held, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
	if err != nil || held == nil || held.Limit != admit.LimitConcurrent || held.Most != 3 ||
		time.Since(held.Since) < 50*time.Second {
		t.Errorf("%+v, error %v", held, err)
	}
	c.WantCount(1, "rows of overdue say so",
		`SELECT count(*) FROM punctual.overdue WHERE held_by = 'limit max_concurrent_runs'`)
	c.Exec(`UPDATE punctual.tenant_usage SET held_at = held_at - interval '6 s'`)
	if e := explain(); strings.Contains(e.Text, "max_concurrent_runs") {
		t.Errorf("a while after it was last noted: %s", e.Text)
	}
}
