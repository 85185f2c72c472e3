//prove:replicas

package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A run kills each replica that sends it. It is dead after three.
func TestARunThatKillsItsReplicasIsDeadAfterThree(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/poison", Answer{Hang: true})
	r := serve(t, dsn)
	start := nextSecond(time.Second)
	create(t, r.API,
		job("poison", w.URL+"/poison", process.JobSpec{
			"concurrency_policy": "forbid",
			"timeout":            "5m",
			"retry":              map[string]any{"max_attempts": 10},
		}),
		job("healthy", w.URL+"/healthy", process.JobSpec{
			"schedule": map[string]any{"every": "1s", "starts_at": start.UTC().Format(time.RFC3339)},
		}))
	poison := trigger(t, r.API, "poison")
	for victims := 1; victims <= 3; victims++ {
		await(t, fmt.Sprint("victim ", victims), func() bool { return len(w.At("/poison")) == victims })
		r.Kill()
		r = serve(t, dsn)
	}
	run := finalRun(t, r.API, poison)
	if run.Status != "dead" || run.Reason != "poison" || len(run.Attempts) != 3 || len(w.At("/poison")) != 3 {
		t.Errorf("the run is %s (%s) after %d attempts and %d requests", run.Status, run.Reason, len(run.Attempts),
			len(w.At("/poison")))
	}
	seen := len(w.At("/healthy"))
	await(t, "the other job to go on", func() bool { return len(w.At("/healthy")) > seen+1 })
	do[any](t, r.API, "POST", "/v1/jobs/healthy/pause", nil)
	w.Release("/poison")
	trigger(t, r.API, "poison") // its gate is free
	await(t, "a new run of the job", func() bool { return len(w.At("/poison")) == 4 })
	verify(t, atRest(t, dsn, w), Conditions{})
	stop(t, r)
}

// A hundred requests hang. Other runs are as punctual as before.
func TestHangingTargetsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	w.Script("/hangs", Answer{Hang: true})
	quiet := lateOf(t, r, w, dsn, "/before")
	create(t, r.API, many(100, "hangs", w.URL+"/hangs", process.JobSpec{"schedule": delayed("0s"), "timeout": "60s"})...)
	await(t, "all of them to hang", func() bool { return len(w.At("/hangs")) == 100 })
	loud := lateOf(t, r, w, dsn, "/beside")
	t.Logf("p99 of lateness: %s alone, %s beside 100 hanging requests", quiet, loud)
	// No measurement: the limit tells unharmed from starved, and starved jobs hang for a minute.
	if loud > quiet+5*time.Second {
		t.Errorf("beside hanging targets the others' p99 is %s, alone %s", loud, quiet)
	}
	w.Release("/hangs")
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stop(t, r)
}

// lateOf lets 20 jobs fire each second for 5 s, and returns the 99th percentile of their lateness.
func lateOf(t *testing.T, r *process.Replica, w *Witness, dsn, path string) time.Duration {
	t.Helper()
	h := herd{start: nextSecond(time.Second), oneShots: 100, within: 5 * time.Second}
	var specs []process.JobSpec
	for i, j := range h.jobs(w.URL) {
		j["name"], j["target"] = fmt.Sprint(path[1:], "-", i), map[string]any{"url": w.URL + path}
		specs = append(specs, j)
	}
	create(t, r.API, specs...)
	await(t, "the jobs", func() bool { return len(w.At(path)) == h.oneShots })
	f, err := ReadFacts(t.Context(), connect(t, dsn), w.At(path))
	must(t, err)
	return quantile(lateness(f), 0.99)
}
