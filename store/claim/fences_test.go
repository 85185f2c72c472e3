package claim_test

import (
	"math"
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
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
