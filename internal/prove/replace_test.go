//prove:claims

package prove

import (
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A hanging run holds the last place of its tenant or replica. The next slot replaces it.
func TestARunThatHangsIsReplacedThoughItHoldsTheLastPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		most  any
	}{
		"of its tenant":  {most: 1},
		"of its replica": {flags: []string{"--queues=default=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, w := pgtest.DSN(t), newWitness(t)
			limit(t, connect(t, dsn), "max_concurrent_runs", test.most)
			r := serve(t, dsn, test.flags...)
			w.Script("/hangs", Answer{Hang: true}, Answer{Hang: true}, Answer{})
			create(t, r.API, job("hangs", w.URL+"/hangs", process.JobSpec{
				"schedule": every("2s"), "concurrency_policy": "replace", "timeout": "1h", "jitter": "0s",
			}))
			await(t, "the runs that hang to be replaced", func() bool { return len(w.At("/hangs")) >= 3 })
			do[any](t, r.API, "POST", "/v1/jobs/hangs/pause", nil)
			verify(t, atRest(t, dsn, w), Conditions{SentOnce: true})
			stop(t, r)
		})
	}
}

// A trigger that replaces a run gets its place, before runs that have waited longer.
func TestThePlaceOfAReplacedRunIsForItsSuccessor(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	limit(t, conn, "max_concurrent_runs", 1)
	r := serve(t, dsn)
	w.Script("/hangs", Answer{Hang: true}, Answer{})
	create(t, r.API, job("hangs", w.URL+"/hangs", process.JobSpec{"concurrency_policy": "replace", "timeout": "1h"}),
		job("waits", w.URL+"/waits", nil))
	trigger(t, r.API, "hangs")
	await(t, "the request that hangs", func() bool { return len(w.At("/hangs")) == 1 })
	trigger(t, r.API, "waits")
	trigger(t, r.API, "hangs")
	await(t, "both runs that wait", func() bool { return len(w.At("/hangs")) == 2 && len(w.At("/waits")) == 1 })
	if successor, other := w.At("/hangs")[1], w.At("/waits")[0]; successor.At.After(other.At) {
		t.Errorf("the other job's run was sent %s before the successor", successor.At.Sub(other.At))
	}
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true})
	stop(t, r)
}
