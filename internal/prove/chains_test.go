package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// The figure is for people: how long it takes from the end of a run to the request that it triggers.
func TestAChainOfFiftyJobsOnAnIdleReplica(t *testing.T) {
	exhaustive(t, "measures")
	t.Parallel()
	const jobs = 50
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	for i := jobs; i > 0; i-- {
		more := process.JobSpec{}
		if i < jobs {
			more["then"] = []map[string]any{{"job": fmt.Sprint("link-", i+1)}}
		}
		create(t, r.API, job(fmt.Sprint("link-", i), fmt.Sprint(w.URL, "/link-", i), more))
	}
	do[any](t, r.API, "POST", "/v1/jobs/link-1/trigger", nil)
	await(t, "the request of the last job", func() bool { return len(w.At(fmt.Sprint("/link-", jobs))) == 1 })
	var median, slowest time.Duration
	must(t, connect(t, dsn).QueryRow(t.Context(), `
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took), max(took)
		FROM (SELECT n.started_at - u.finished_at AS took
		      FROM punctual.runs n JOIN punctual.runs u ON u.id = n.caused_by) steps`).Scan(&median, &slowest))
	t.Logf("from the end of a run to the next request: median %s, slowest %s", median, slowest)
	atRest(t, dsn, w)
	proven(t, dsn)
}
