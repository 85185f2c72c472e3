package scheduler

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// No run dies as unreachable without a request to its host since it was due.
//
// And none that was due after its host's return. Meanwhile the host gets one probe at a time, and at most one a second.
//
//prove:targets
func TestNoRunDiesUnreachableUnlessItsHostWasAskedMeanwhile(t *testing.T) {
	const brief = `"retry":{"max_attempts":4,"initial_backoff":"1s","max_backoff":"3s"}`
	for _, c := range []struct {
		name, job string
		takes     time.Duration // until a connection is refused
		down      time.Duration
	}{
		{"down for 3 s", brief, 0, 3 * time.Second},
		{"down for 6 s", brief, 0, 6 * time.Second},
		{"down for 40 s", brief, 0, 40 * time.Second},
		{"down for 5 min", brief, 0, 5 * time.Minute},
		{"down for 40 s, and connections time out", brief, 10 * time.Second, 40 * time.Second},
		{"down for 5 min, with fewer attempts than the pauses need", `"retry":{"max_attempts":3}`, 0, 5 * time.Minute},
		{"down for 5 min, with the default policy", `"timeout":"30s"`, 0, 5 * time.Minute},
	} {
		virtually(t, c.name, func(t *testing.T) {
			w := newHostless(t, c.takes)
			w.jobs, w.down = jobsAt(t, 2, c.job), true
			w.pass(c.down)
			w.down = false
			back := time.Now()
			w.pass(5 * time.Second)
			w.jobs = nil
			w.pass(10 * time.Minute)
			w.check(back)
		})
	}
}

// The patience of a thousand runs ends together. Their host gets one probe at a time.
//
//prove:targets
func TestTheLastMomentsOfManyRunsAreNoStampede(t *testing.T) {
	const runs = 1000
	for _, takes := range []time.Duration{0, 10 * time.Second} {
		virtually(t, fmt.Sprint("a refusal takes ", takes), func(t *testing.T) {
			w := newHostless(t, takes)
			w.down = true
			w.due(jobsAt(t, runs, `"retry":{"max_attempts":3,"initial_backoff":"1s","max_backoff":"2s"}`)...)
			w.pass(time.Minute)
			w.down = false
			w.pass(10 * time.Minute)
			w.check(time.Now())
			if n := len(w.dead); n < runs*9/10 {
				t.Errorf("%d runs are dead", n)
			}
			if n := w.claims; n > 12*runs {
				t.Errorf("%d claims of %d runs", n, runs)
			}
		})
	}
}

// A run that may not wait any longer while its host recovers waits for its turn.
func TestNoRunDiesWhileItsHostRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostless(t, 0)
		w.answers, w.slots = 5*time.Second, 20
		w.down = true
		w.due(jobsAt(t, 500, `"retry":{"max_attempts":3,"initial_backoff":"10s","max_backoff":"20s"}`)...)
		w.pass(2 * time.Second)
		w.down = false
		w.pass(10 * time.Minute)
		w.check(time.Now())
		if len(w.dead) > 0 {
			t.Errorf("%d runs are dead: %s", len(w.dead), w.dead[0].Error)
		}
	})
}

// hostless is a replica's view of one host that is down at times, with the runs that are sent there. Time is virtual.
type hostless struct {
	t     *testing.T
	holds *admit.Holds
	to    *url.URL
	down  bool

	slots          int              // the most requests under way
	takes, answers time.Duration    // how long a failed, and an answered request takes
	jobs           []*domain.Job    // due every second
	waiting        []*hostlessRun   // for their time
	flying         []hostlessFlight // requests under way
	sent           []time.Time      // starts of all requests
	dead           []domain.Outcome
	claims, ended  int
}

type hostlessRun struct {
	domain.Assignment
	at time.Time // when it is claimed
}

type hostlessFlight struct {
	admit.Flight
	run    *hostlessRun
	down   bool
	began  time.Time
	probes bool
}

func newHostless(t *testing.T, takes time.Duration) *hostless {
	t.Helper()
	return &hostless{
		t: t, holds: holding(newFakeStore(), occupied([]int{500})).admission.Holds, to: hook(t), takes: takes, slots: 500,
	}
}

// jobsAt returns n jobs whose target is the host.
func jobsAt(t *testing.T, n int, rest string) (jobs []*domain.Job) {
	for range n {
		jobs = append(jobs, compiled(t, `{"target":{"url":"http://127.0.0.1:9/hook"},`+rest+`}`))
	}
	for _, j := range jobs {
		j.ID = uuid.New()
	}
	return jobs
}

// due makes a run of each job due now.
func (w *hostless) due(jobs ...*domain.Job) {
	for _, j := range jobs {
		a := scheduled(j)
		a.RunID, a.DueAt = uuid.New(), time.Now()
		w.waiting = append(w.waiting, &hostlessRun{Assignment: a, at: a.DueAt})
	}
}

// pass lets time pass.
func (w *hostless) pass(d time.Duration) {
	const step = 100 * time.Millisecond
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(step) {
		if time.Now().Nanosecond() < int(step) {
			w.due(w.jobs...)
		}
		w.land()
		w.fetch()
		closed := len(w.holds.Breakers.All()) == 0
		waiting := w.waiting
		w.waiting = nil
		for _, r := range waiting {
			if time.Now().Before(r.at) && (r.Held == nil || !closed) || len(w.flying) == w.slots {
				w.waiting = append(w.waiting, r)
			} else {
				w.claim(r)
			}
		}
	}
}

// fetch claims runs that wait for the host and that the breaker wants.
func (w *hostless) fetch() {
	slices.SortStableFunc(w.waiting, func(a, b *hostlessRun) int { return cmp.Compare(since(a), since(b)) })
	for _, wanted := range w.holds.Breakers.Wanted(mostFetched) {
		var found []uuid.UUID
		for _, r := range w.waiting {
			if r.Held != nil && len(found) < min(wanted.Most, admit.BatchSize) && !slices.Contains(wanted.Not, r.Job.ID) {
				found = append(found, r.Job.ID)
				r.Held.Fetched, r.at = true, time.Now()
			}
		}
		w.holds.Breakers.Fetched(wanted, found, len(found) == wanted.Most)
	}
}

func since(r *hostlessRun) int64 {
	if r.Held == nil {
		return 0
	}
	return r.Held.Since.UnixNano()
}

// claim does for a run what execute does.
func (w *hostless) claim(r *hostlessRun) {
	w.claims++
	now, o := time.Now(), domain.Outcome{Assignment: r.Assignment}
	open := w.isOpen()
	f, wait := w.holds.Admit(r.Assignment, w.to, now)
	if wait == nil {
		w.sent = append(w.sent, now)
		w.flying = append(w.flying, hostlessFlight{f, r, w.down, now, open})
		return
	}
	switch admit.HoldBack(&o, wait, now); o.Verdict {
	case domain.Hold:
		r.Held, r.at = o.Held, now.Add(o.RetryIn)
		w.waiting = append(w.waiting, r)
	case domain.Abandon:
		w.dead, w.ended = append(w.dead, o), w.ended+1
	}
}

func (w *hostless) isOpen() bool {
	all := w.holds.Breakers.All()
	return len(all) == 1 && all[0].State == breaker.Open
}

// land ends the requests whose time has come.
func (w *hostless) land() {
	flying := w.flying
	w.flying = nil
	probes := 0
	for _, f := range flying {
		result, takes := wire.Result{Status: 200, Sent: true}, w.answers
		if f.down {
			result, takes = wire.Result{Reason: wire.ReasonConnect, Error: "connection refused"}, w.takes
		}
		if time.Since(f.began) < takes {
			if w.flying = append(w.flying, f); f.probes {
				probes++
			}
			continue
		}
		w.holds.Done(f.Flight, result)
		w.end(f, result)
	}
	if probes > 1 {
		w.t.Errorf("%d probes are under way at once", probes)
	}
}

// end decides what an answer means for its run.
func (w *hostless) end(f hostlessFlight, result wire.Result) {
	o := domain.Judge(f.run.Assignment, result, f.began, time.Now())
	if o.Verdict != domain.RetryRun {
		w.ended++
		return
	}
	f.run.Attempt, f.run.Held, f.run.at = f.run.Attempt+1, nil, time.Now().Add(o.RetryIn)
	w.waiting = append(w.waiting, f.run)
}

// since returns since when the last attempt of a dead run has been due, at the latest.
func (w *hostless) since(o domain.Outcome) time.Time {
	if o.Held == nil {
		return o.FinishedAt
	}
	return o.Held.Since
}

// check looks at the runs that are dead without a last request of their own. The host was back at back.
func (w *hostless) check(back time.Time) {
	w.t.Helper()
	blind, after := 0, 0
	for _, o := range w.dead {
		if !slices.ContainsFunc(w.sent, func(at time.Time) bool {
			return at.After(w.since(o)) && at.Before(o.FinishedAt)
		}) {
			blind++
		}
		if o.DueAt.After(back) {
			after++
		}
	}
	if blind > 0 || after > 0 {
		w.t.Errorf("of %d runs that are dead %d were due after the host's return, and for %d the host was never asked: %s",
			len(w.dead), after, blind, w.dead[0].Error)
	}
	if n := len(w.waiting) + len(w.flying); n > 0 {
		w.t.Errorf("%d runs still wait", n)
	}
	w.t.Logf("%d claims, %d requests, %d dead of %d", w.claims, len(w.sent), len(w.dead), w.ended)
}
