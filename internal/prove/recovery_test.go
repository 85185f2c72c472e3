//prove:replicas

package prove

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// takeover bounds what a busy machine may add to the 15 s after which a lost replica's runs have been taken over, with
// default settings. What is not taken over waits for its timeout, which is longer.
const takeover = time.Minute

// hanging creates jobs, half of which must not overlap. It triggers each on the only replica, and waits until all their
// requests hang.
func hanging(t *testing.T, r *process.Replica, w *Witness, jobs int) {
	t.Helper()
	w.Script("/stuck", Answer{Hang: true})
	create(t, r.API, inTurn(many(jobs, "stuck", w.URL+"/stuck", process.JobSpec{"timeout": "5m"}), "allow", "forbid")...)
	for i := range jobs {
		trigger(t, r.API, fmt.Sprint("stuck-", i))
	}
	await(t, "all requests in flight", func() bool { return len(w.At("/stuck")) == jobs })
}

// takenOver checks that the last of the runs that hung came again soon after its replica was lost.
func takenOver(t *testing.T, w *Witness, lost time.Time) {
	t.Helper()
	last := slices.MaxFunc(w.At("/stuck"), func(a, b Request) int { return a.At.Compare(b.At) })
	took := last.At.Sub(lost)
	t.Logf("all runs taken over after %s", took.Round(time.Millisecond))
	if took > takeover {
		t.Errorf("the last run was taken over %s after its replica was lost; want at most %s", took, takeover)
	}
}

// kill -9 with 40 requests in flight. They are taken over after 10 to 14 s.
//
// Since its heartbeat stands still. The test logs how long it took, and waits a minute.
func TestAKilledReplicaIsTakenOver(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	first := serve(t, dsn)
	const jobs = 40
	hanging(t, first, w, jobs)
	second := serve(t, dsn)
	first.Kill()
	killed := time.Now()
	await(t, "the second attempts", func() bool { return len(w.At("/stuck")) == 2*jobs })
	takenOver(t, w, killed)
	w.Release("/stuck")
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	if len(f.Attempts) != jobs || slices.ContainsFunc(f.Attempts, func(a Attempt) bool { return a.Outcome != "lost" }) {
		t.Errorf("%d attempts did not succeed, want %d lost ones: %+v", len(f.Attempts), jobs, f.Attempts)
	}
	stop(t, second)
}

// SIGSTOP for longer than the TTL, then SIGCONT. Late outcomes change nothing, and the replica joins again.
func TestAFrozenReplicaIsFencedOff(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	first := serve(t, dsn)
	const jobs = 6
	hanging(t, first, w, jobs)
	second := serve(t, dsn)
	must(t, first.Signal(syscall.SIGSTOP))
	frozen := time.Now()
	await(t, "the second attempts", func() bool { return len(w.At("/stuck")) == 2*jobs })
	takenOver(t, w, frozen)
	// The second replica's attempts succeed. The first replica's requests are answered too, but it is frozen and does not
	// see that yet.
	w.Release("/stuck")
	f := atRest(t, dsn, w)
	must(t, first.Signal(syscall.SIGCONT))
	conn := connect(t, dsn)
	await(t, "the frozen replica to join again", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.replicas`) == 2
	})
	create(t, first.API, job("afterwards", w.URL+"/ok", nil))
	trigger(t, first.API, "afterwards")
	await(t, "a new run", func() bool { return len(w.At("/ok")) == 1 })
	stop(t, first) // and writes the outcomes of what it had sent
	stop(t, second)
	after := atRest(t, dsn, w)
	for i, r := range f.Runs {
		if late := after.Runs[i]; r.ID == late.ID && (late.Attempt != r.Attempt || late.Status != r.Status) {
			t.Errorf("run %s was %s at attempt %d, and is %s at attempt %d after the frozen replica woke", r.ID, r.Status,
				r.Attempt, late.Status, late.Attempt)
		}
		if r.Status != "succeeded" || r.Attempt != 2 {
			t.Errorf("run %s is %s at attempt %d, want succeeded at 2", r.ID, r.Status, r.Attempt)
		}
	}
	for _, v := range Check(after, Conditions{Settle: 2 * time.Second}) {
		// A frozen replica cannot close its requests: NoOverlap holds among living replicas only.
		if v.Rule != NoOverlap {
			t.Error(v)
		}
	}
}

// A cancel through another replica closes the request.
func TestACancelReachesTheReplicaThatSends(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	first := serve(t, dsn)
	hanging(t, first, w, 2)
	second := serve(t, dsn)
	asked := time.Now()
	for _, q := range w.At("/stuck") {
		do[any](t, second.API, "POST", "/v1/runs/"+q.Run.String()+"/cancel", nil)
	}
	await(t, "the requests to be closed", func() bool {
		return !slices.ContainsFunc(w.At("/stuck"), func(q Request) bool { return q.Ended.IsZero() })
	})
	last := slices.MaxFunc(w.At("/stuck"), func(a, b Request) int { return a.Ended.Compare(b.Ended) })
	// A cancel takes up to two seconds, and longer on a busy machine. Without it the requests would hang for 5 minutes.
	if took := last.Ended.Sub(asked); took > takeover {
		t.Errorf("a request was closed %s after its run was cancelled", took)
	}
	f := atRest(t, dsn, w)
	for _, r := range f.Runs {
		if r.Status != "cancelled" || r.Reason != "cancelled_by_user" {
			t.Errorf("run %s is %s, reason %q", r.ID, r.Status, r.Reason)
		}
	}
	verify(t, f, Conditions{})
}
