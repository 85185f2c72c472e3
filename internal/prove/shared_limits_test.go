//prove:limits

package prove

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"punctual/httpapi"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Five jobs share a limit on replicas that are killed again and again. The limit holds, and all runs end.
//
// A job without the limit does not wait. RUNS=10000 has so many.
func TestALimitHoldsOnThreeReplicasThatAreKilled(t *testing.T) {
	t.Parallel()
	const most = 1
	runs, kills := 2_000, 5
	if testing.Short() {
		runs, kills = 100, 1
	}
	if n, err := strconv.Atoi(os.Getenv("RUNS")); err == nil {
		runs = n
	}
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	api := fleet[0].API
	do[any](t, api, "PUT", "/v1/limits/warehouse", map[string]any{"max_running": most})
	shared := process.JobSpec{
		"limits": []string{"warehouse"}, "retry": map[string]any{"max_attempts": 50, "initial_backoff": "100ms"},
	}
	w.Script("/shared", Answer{Delay: 2 * time.Millisecond})
	create(t, api, many(5, "shared", w.URL+"/shared", shared)...)
	w.Script("/free", Answer{Delay: 500 * time.Millisecond}) // long enough that replicas die with a request of it
	create(t, api, job("free", w.URL+"/free", process.JobSpec{"schedule": every("1s")}))
	batch := httpapi.TriggerBatchInput{Items: make([]httpapi.TriggerInput, 20)}
	for n := range runs / len(batch.Items) {
		do[any](t, api, "POST", fmt.Sprintf("/v1/jobs/shared-%d/trigger/batch", n%5), batch)
	}
	conn := connect(t, dsn)
	ended := func() int {
		return query[int](t, conn, `SELECT count(*) FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
			WHERE r.status = 'succeeded' AND j.name <> 'free'`)
	}
	for n := range kills {
		awaitFor(t, 5*time.Minute, "more runs to end", func() bool { return ended() > runs*(n+1)/(kills+2) })
		fleet[1+n%2].Kill()
		fleet[1+n%2] = serve(t, dsn)
	}
	awaitFor(t, 15*time.Minute, "all runs to end", func() bool { return ended() == runs })
	if got := mostOpen(w.At("/shared")); got != most {
		t.Errorf("%d requests were open at once, want %d", got, most)
	}
	do[any](t, api, "POST", "/v1/jobs/free/pause", nil)
	verify(t, atRest(t, dsn, w), Conditions{})
	for _, late := range query[[]string](t, conn, `
		SELECT coalesce(array_agg(lateness::text), '{}') FROM punctual.run_history
		WHERE job = 'free' AND attempt = 1 AND lateness > interval '10 s'`) { // a later attempt waits for the lease
		t.Errorf("a job without limits was %s late", late)
	}
	stop(t, fleet...)
}
