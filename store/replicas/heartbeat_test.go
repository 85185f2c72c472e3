package replicas_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/store"
)

// A heartbeat takes one round trip, or two on a new connection.
//
// On a slow network a heartbeat of several round trips comes so late that the replica looks lost.
//
//prove:database
func TestAHeartbeatTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t)))
	c := AsReplica(OpenFixture(t, store.Options{DatabaseURL: through, Master: pgtest.Master(t), Replica: true}))
	least := math.MaxInt
	for range 20 { // some of them on connections that have prepared their statements
		before := proxy.Packets()
		c.Renewed()
		least = min(least, proxy.Packets()-before)
	}
	if least != 1 {
		t.Errorf("a heartbeat takes %d packets, want one", least)
	}
}

// On a cold server the first heartbeat takes longer than a later one may. That is no row that cannot be read.
func TestTheFirstHeartbeatHasTime(t *testing.T) {
	c := NewReplica(t)
	free := c.Locks(`LOCK TABLE punctual.tenants IN ACCESS EXCLUSIVE MODE`)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Replicas.Renew(t.Context(), c.ReplicaID, scheduler.Condition{})
		ended <- err
	}()
	c.Until("the heartbeat to have waited for longer than a later one may", `SELECT EXISTS (
		SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'
		  AND clock_timestamp() - query_start > interval '1.2 s')`)
	free()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// No replica has renewed its heartbeat for a while, and the row that records this absence is locked. A replica renews
// all the same, and the absence is recorded later.
func TestALockedDeploymentHoldsUpNoHeartbeat(t *testing.T) {
	c := NewReplica(t)
	c.Exec(`UPDATE punctual.replicas SET renewed_at = now() - interval '1 min'`)
	c.Exec(`UPDATE punctual.deployment SET timeline = 'AAAAAAAA', back_at = '-infinity'`)
	fence := c.Count(`SELECT last_value FROM punctual.fences`)
	free := c.Stranger(`deployment`)
	pulse, err := c.Replicas.Renew(Bounded(t), c.ReplicaID, scheduler.Condition{})
	if err != nil || !pulse.Known {
		t.Fatalf("%+v, %v", pulse, err)
	}
	if _, err := c.Replicas.Register(Bounded(t), scheduler.Replica{ID: uuid.New(), Host: "there"}); err != nil {
		t.Fatal(err)
	}
	if n := c.Count(`SELECT last_value FROM punctual.fences`); n < fence+1_000_000_000 {
		t.Errorf("fencing tokens go on from %d, after %d on another timeline", n, fence)
	}
	const absent = `SELECT count(*) FROM punctual.deployment
		WHERE NOT EXISTS (SELECT FROM punctual.replicas WHERE renewed_at > now() - interval '6 s')`
	if c.Count(absent) != 1 {
		t.Error("the absence is forgotten and was not noted")
	}
	free()
	c.Renewed()
	if c.Count(absent) != 0 || c.Count(`SELECT count(*)
		FROM punctual.deployment
		WHERE back_at > now() - interval '1 min' AND timeline <> 'AAAAAAAA'`) != 1 {
		t.Error("the absence is not noted once nothing is locked")
	}
}

func TestALockedReplicaIsNotRemovedAndOthersAre(t *testing.T) {
	c := NewReplica(t)
	other := AsReplica(c.Fixture)
	free := c.Stranger(`replicas WHERE id = $1`, c.ReplicaID)
	lost := []scheduler.Heartbeat{{Replica: c.ReplicaID}, {Replica: other.ReplicaID}}
	if _, err := c.Replicas.Recover(Bounded(t), lost); err != nil {
		t.Fatal(err)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.replicas WHERE id = $1`, c.ReplicaID); n != 1 ||
		c.Count(`SELECT count(*) FROM punctual.replicas`) != 1 {
		t.Error("not the other one alone was removed")
	}
	free()
	if _, err := c.Replicas.Recover(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	c.WantCount(0, "replicas are left", `SELECT count(*) FROM punctual.replicas`)
}

func TestAReplicaThatHasRenewedSinceIsNotRemoved(t *testing.T) {
	c := NewFixture(t)
	replica := uuid.New()
	c.ClaimAll(replica)
	for range 2 {
		if _, err := c.Replicas.Renew(t.Context(), replica, scheduler.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Replicas.Recover(t.Context(), []scheduler.Heartbeat{{Replica: replica, Beat: 1}}); err != nil {
		t.Fatal(err)
	}
	if pulse, err := c.Replicas.Renew(t.Context(), replica, scheduler.Condition{}); err != nil || !pulse.Known {
		t.Errorf("pulse %+v, error %v", pulse, err)
	}
}

func TestLimitsAreReadWithTheHeartbeat(t *testing.T) {
	c := NewReplica(t)
	if pulse := c.Renewed(); !pulse.Known || len(pulse.Limits) != 0 {
		t.Fatalf("%+v", pulse)
	}
	c.Limit("max_runs_per_second", 5)
	want := []admit.TenantLimits{{Tenant: c.Tenant, Name: "default", PerSecond: 5}}
	if pulse := c.Renewed(); !slices.Equal(pulse.Limits, want) {
		t.Errorf("%+v", pulse.Limits)
	}
}
