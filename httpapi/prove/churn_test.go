package prove

import (
	"testing"
	"time"

	"punctual/store/storetest"
)

const replicasSeen = `SELECT count(DISTINCT replica) FROM punctual.runs`

// A stop that falls into a claim must not cost the run an attempt: a claim that was committed is sent or
// given back, and never found lost by the others. Jobs with a single attempt would die unsent.
func TestReplicasStoppedWhileTheyClaimLoseNoAttempt(t *testing.T) {
	exhaustive(t, "takes ten seconds")
	dsn, w := storetest.DSN(t), newWitness(t)
	steady := serve(t, dsn)
	h := herd{start: nextSecond(2 * time.Second), oneShots: 4000, within: 8 * time.Second}
	jobs := h.jobs(w.URL)
	for _, j := range jobs {
		j["retry"] = map[string]any{"max_attempts": 1}
	}
	create(t, steady.API, jobs...)
	conn := connect(t, dsn)
	stops := 0
	for ; time.Now().Before(h.end()); stops++ {
		before := query[int](t, conn, replicasSeen)
		r := serve(t, dsn)
		await(t, "the new replica to claim", func() bool {
			return time.Now().After(h.end()) || query[int](t, conn, replicasSeen) > before
		})
		stop(t, r)
	}
	h.awaitAll(t, w, 0)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
	t.Logf("%d replicas were started and stopped; %d attempts did not succeed", stops, len(f.Attempts))
	if stops < 2 { // each takes a start, which takes seconds on a slow machine
		t.Errorf("only %d replicas were stopped", stops)
	}
}
