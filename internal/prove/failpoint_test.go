//prove:replicas

package prove

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler/failpoint"
)

// fatal starts a replica that ends, as by kill -9, when it comes to a step for the nth time.
func fatal(t testing.TB, dsn string, point failpoint.Point, nth int, how string) *process.Replica {
	t.Helper()
	path, err := Build(t.Context(), Variant{Race: raceDetector, Failpoints: true})
	must(t, err)
	return serveBinary(t, path, dsn, []string{fmt.Sprintf("PUNCTUAL_FAILPOINT=%s:%d=%s", point, nth, how)})
}

// last sends the request after which a replica comes to its fatal step. It may die before it has answered.
func last(t testing.TB, r *process.Replica, path string, in any) {
	t.Helper()
	_, err := r.API.Do(t.Context(), http.MethodPost, path, in, nil)
	if _, refused := errors.AsType[*client.Error](err); refused {
		t.Fatal(err)
	}
}

// kill -9 at each step of a run (scheduler/failpoint/points.go). Another replica takes over; nothing is lost, doubled
// or stuck.
//
// The steps of claiming, sending, finishing, recovering and callbacks: each at its first time and, except recovering,
// at a later time.
func TestAKillAtAnyStepLosesNothing(t *testing.T) {
	t.Parallel()
	var cases sync.WaitGroup
	busy := make(chan struct{}, 9) // each case mostly waits until heartbeats count as lost
	for _, point := range failpoint.Points {
		if slices.Contains(append(fanOutPoints(), workflowPoints()...), point) || point == failpoint.ChainWritten {
			continue // they have tests of their own: TestAKillAtAnyStepOfAFanOutLosesNothing and the like
		}
		for _, nth := range []int{1, 5} {
			if strings.HasPrefix(string(point), "recover-") && nth > 1 {
				continue // one recovery ends all runs of a lost replica
			}
			busy <- struct{}{}
			cases.Go(func() {
				defer func() { <-busy }()
				t.Run(fmt.Sprint(point, ":", nth), func(t *testing.T) { killAt(t, point, nth) })
			})
		}
	}
	cases.Wait()
}

func killAt(t *testing.T, point failpoint.Point, nth int) {
	dsn, w := pgtest.DSN(t), newWitness(t)
	scriptMix(w)
	var serving atomic.Pointer[process.Replica]
	work(t, w, func() []*process.Replica { return []*process.Replica{serving.Load()} })

	var victim *process.Replica
	var dated []uuid.UUID
	if strings.HasPrefix(string(point), "recover-") {
		first := serve(t, dsn)
		serving.Store(first)
		// The requests stay in flight until the first replica is dead, however long the second takes to start. Otherwise
		// there would be nothing to recover.
		w.Script(slowPath, Answer{Hang: true, Delay: slowFor})
		create(t, first.API, patiently(mixed(8).jobs(w.URL))...)
		dated = dateRuns(t, first)
		await(t, "slow requests in flight", func() bool { return len(w.At(slowPath)) >= 3 })
		victim = fatal(t, dsn, point, nth, "kill")
		first.Kill()
		w.Release(slowPath)
	} else {
		victim = fatal(t, dsn, point, nth, "kill")
		serving.Store(victim)
		create(t, victim.API, mixed(8).jobs(w.URL)...)
		dated = dateRuns(t, victim)
	}
	serving.Store(victim)
	if code := ended(t, fmt.Sprintf("the replica that comes to %s for the %d. time", point, nth),
		victim.Process); code != -1 {
		t.Fatalf("the replica that was to die at %s ended with exit code %d", point, code)
	}
	died := time.Now()
	survivor := serve(t, dsn)
	serving.Store(survivor)
	ready := time.Now()
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	for _, run := range dated {
		if !slices.ContainsFunc(f.Runs, func(r Run) bool { return r.ID == run }) {
			t.Errorf("the dated run %s is lost", run)
		}
	}
	lost := slices.DeleteFunc(slices.Clone(f.Attempts), func(a Attempt) bool { return a.Outcome != "lost" })
	for _, a := range lost {
		if took := a.Finished.Sub(ready); took > takeover {
			t.Errorf("run %s was taken over %s after a replica was there to do it", a.Run, took)
		}
	}
	t.Logf("died at %s for the %d. time, %s before another was ready; %d attempts lost", point, nth,
		ready.Sub(died).Round(time.Millisecond), len(lost))
	stop(t, survivor)
}

// dateRuns writes dated runs of a job of the mix that are due within five seconds. It returns none if the replica died
// before it answered.
func dateRuns(t *testing.T, r *process.Replica) (runs []uuid.UUID) {
	items := make([]map[string]any, 20)
	for i := range items {
		items[i] = map[string]any{"delay": fmt.Sprint(i*250, "ms")}
	}
	var out struct{ Data []struct{ Run uuid.UUID } }
	if _, err := r.API.Do(t.Context(), "POST", "/v1/jobs/prompt-allow-0/trigger/batch",
		map[string]any{"items": items}, &out); err == nil && len(out.Data) != len(items) {
		t.Errorf("%d dated runs were written", len(out.Data))
	}
	for _, d := range out.Data {
		runs = append(runs, d.Run)
	}
	return runs
}

// patiently gives jobs a timeout that no test reaches.
func patiently(jobs []process.JobSpec) []process.JobSpec {
	for _, j := range jobs {
		j["timeout"] = (2 * patience).String()
	}
	return jobs
}

// kill -9 after a request said that its run is late. The record and the next request say so too.
func TestALateRunOfAKilledReplicaIsOnRecordAsLate(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	victim := fatal(t, dsn, failpoint.SendWritten, 1, "kill")
	tenant := map[string]any{"scope": "tenant"}
	do[any](t, victim.API, "POST", "/v1/freeze", tenant)
	create(t, victim.API, job("late", w.URL, process.JobSpec{"missed": map[string]any{"tolerance": "1s"}}))
	do[any](t, victim.API, "POST", "/v1/jobs/late/trigger", nil)
	conn := connect(t, dsn)
	await(t, "the run to be later than its tolerance", func() bool {
		return query[bool](t, conn, `SELECT now() - due_at > interval '1500 ms' FROM punctual.runs`)
	})
	last(t, victim, "/v1/unfreeze", tenant)
	ended(t, "the replica that sends the late run", victim.Process)
	survivor := serve(t, dsn)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	if len(f.Requests) != 2 || !f.Requests[0].Late || !f.Requests[1].Late {
		t.Errorf("want two requests of a late run, got %+v", f.Requests)
	}
	stop(t, survivor)
}

// A replica freezes inside its claim. Its locks are gone after half a second, and others claim its jobs.
//
// Up to 8 s on a slow network. Until then Postgres keeps its transaction.
func TestAReplicaFrozenInItsClaimHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	scriptMix(w)
	frozen := fatal(t, dsn, failpoint.ClaimLocked, 1, "stop")
	var serving atomic.Pointer[process.Replica]
	serving.Store(frozen)
	work(t, w, func() []*process.Replica { return []*process.Replica{serving.Load()} })
	create(t, frozen.API, mixed(6).jobs(w.URL)...)
	began := time.Now()
	survivor := serve(t, dsn)
	alone := time.Since(began) // no replica can take over before it has started
	serving.Store(survivor)
	await(t, "the jobs the frozen one has locked", func() bool { return w.Len() > 0 })
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	if late := lateness(f); quantile(late, 1) > takeover+alone {
		t.Errorf("a run was %s late, of which nobody was there for %s", quantile(late, 1), alone)
	}
	frozen.Kill()
	stop(t, survivor)
}
