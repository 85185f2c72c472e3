package claim_test

import (
	"math"
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/store"
)

// On a slow network a heartbeat of several round trips comes so late that the replica looks lost. A new connection may
// need one more, in which the statements are prepared.
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
		_, err := c.Claims.Renew(t.Context(), c.ReplicaID, scheduler.Condition{})
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
