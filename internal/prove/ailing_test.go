//prove:database

package prove

import (
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// Postgres answers, but refuses claims or heartbeats. The replica is not ready.
//
// Such as after an upgrade under the running server.
func TestAReplicaThatCannotClaimOrRenewIsNotReady(t *testing.T) {
	t.Parallel()
	server, w := pgtest.NewServer(t, privatepg.Config{}), newWitness(t)
	dsn := pgtest.Database(t, server)
	conn := connect(t, dsn)
	r := serve(t, dsn)
	create(t, r.API, job("often", w.URL+"/often", process.JobSpec{"schedule": every("1s")}))
	await(t, "a run", func() bool { return len(w.At("/often")) > 0 })
	for _, fault := range []struct{ takes, gives, says string }{
		{
			`REVOKE INSERT ON punctual.claims FROM CURRENT_USER`, `GRANT INSERT ON punctual.claims TO CURRENT_USER`,
			"Claims of due work have failed since",
		},
		{
			`REVOKE UPDATE ON punctual.replicas FROM CURRENT_USER`, `GRANT UPDATE ON punctual.replicas TO CURRENT_USER`,
			"Heartbeats have failed since",
		},
	} {
		execute(t, conn, fault.takes)
		notReady(t, r, fault.says)
		_, err := r.API.Do(t.Context(), "GET", "/readyz", nil, nil)
		if text := strings.ToLower(err.Error()); !strings.Contains(text, "sqlstate 42501") || strings.Contains(text, "denied") {
			t.Errorf("it says %v", err)
		}
		if status, err := r.API.Do(t.Context(), "GET", "/v1/jobs/often", nil, nil); status != 200 {
			t.Errorf("a read is answered with %d: %v", status, err)
		}
		execute(t, conn, fault.gives)
		ready(t, r)
	}
	before := len(w.At("/often"))
	await(t, "runs again", func() bool { return len(w.At("/often")) > before })
	stopCalm(t, 200, r)
}
