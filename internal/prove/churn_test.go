//prove:replicas

package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
)

// newestClaims is whether the second replica, the one that started last, has claimed a run. What it gave back names the
// replica that claimed it next.
const newestClaims = `
	SELECT (SELECT count(*) = 2 FROM punctual.replicas) AND EXISTS (
	    SELECT FROM punctual.runs
	    WHERE replica = (SELECT id FROM punctual.replicas ORDER BY started_at DESC LIMIT 1))`

// Replicas stop while they claim. No run loses an attempt.
//
// A committed claim is sent or given back, and other replicas never find it lost. Jobs with a single attempt would
// otherwise die unsent.
func TestReplicasStoppedWhileTheyClaimLoseNoAttempt(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	steady, conn := serve(t, dsn), connect(t, dsn)
	const rounds, each = 5, 800
	created := 0
	load := func() {
		h := herd{start: nextSecond(time.Second), oneShots: each, within: 2 * time.Second}
		jobs := h.jobs(w.URL)
		for i, j := range jobs {
			j["name"], j["retry"] = fmt.Sprintf("once-%d", created+i), map[string]any{"max_attempts": 1}
		}
		create(t, steady.API, jobs...)
		created += each
	}
	for range rounds {
		r := serve(t, dsn)
		load()
		await(t, "the new replica to claim", func() bool {
			if w.Len() >= created { // the steady replica was faster each time
				load()
			}
			return query[bool](t, conn, newestClaims)
		})
		stop(t, r)
	}
	await(t, "all of the load", func() bool { return w.Len() >= created })
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
	stop(t, steady)
}
