package store

import (
	"testing"

	"punctual/internal/pgtest"
)

// On a slow network a heartbeat of several round trips comes so late that the replica looks lost. A new connection may
// need one more, in which the statements are prepared.
func TestAHeartbeatTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t)))
	s, err := Open(t.Context(), Options{DatabaseURL: through, Master: pgtest.Master(t), Replica: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := asClaimer(crud{Store: s, t: t, tenant: 1})
	c.renewed()
	beats := func() int { return c.count(`SELECT beat FROM punctual.replicas WHERE id = $1`, c.replica) }
	before := beats()
	proxy.CutAfter("pg_walfile_name")
	if _, err := c.Renew(t.Context(), c.replica, false); err == nil || proxy.Cuts() != 1 {
		t.Fatalf("the connection was cut %d times, and the heartbeat ended with %v", proxy.Cuts(), err)
	}
	for ctx := bounded(t); beats() != before+1; {
		if ctx.Err() != nil {
			t.Fatal("the heartbeat was not sent together with the question for the timeline")
		}
	}
}
