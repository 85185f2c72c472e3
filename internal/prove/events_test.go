//prove:chains

package prove

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler/failpoint"
	"punctual/store/events"
)

const (
	eventPath = "/event"
	quickPath = "/quick"
)

// subscribe creates n jobs that run at an event, and one that runs at another.
func subscribe(t testing.TB, r *process.Replica, w *Witness, n int) {
	t.Helper()
	at := func(event string) process.JobSpec { return process.JobSpec{"schedule": map[string]any{"event": event}} }
	create(t, r.API, many(n, "subscriber", w.URL+eventPath, at("huge"))...)
	create(t, r.API, job("quick", w.URL+quickPath, at("small")))
}

func emit(t testing.TB, r *process.Replica, event string) events.Emitted {
	t.Helper()
	return do[events.Emitted](t, r.API, http.MethodPost, "/v1/events/"+event, map[string]any{"body": map[string]int{"n": 1}})
}

// fannedOut waits until an event has a run of each subscriber, each of which has been sent once at least.
func fannedOut(t testing.TB, dsn string, w *Witness, e events.Emitted, within time.Duration) {
	t.Helper()
	conn := connect(t, dsn)
	ask := func(sql string) (n int) {
		must(t, conn.QueryRow(t.Context(), sql, e.ID).Scan(&n))
		return n
	}
	awaitFor(t, within, "all subscribers to have run", func() bool {
		return ask(`SELECT count(*) FROM punctual.runs WHERE caused_by = $1 AND status = 'succeeded'`) == e.Subscribed
	})
	if n := ask(`SELECT count(*) FROM punctual.runs WHERE caused_by = $1`); n != e.Subscribed {
		t.Errorf("%d runs of %d subscribers", n, e.Subscribed)
	}
	if n := ask(`SELECT count(DISTINCT job_id) FROM punctual.runs WHERE caused_by = $1`); n != e.Subscribed {
		t.Errorf("runs of %d jobs of %d", n, e.Subscribed)
	}
	if n := ask(`SELECT count(*) FROM punctual.events WHERE id = $1 AND made = subscribed AND turn_at IS NULL`); n != 1 {
		t.Error("the event does not say that its fan-out is over")
	}
	sent := map[string]bool{}
	for _, r := range w.At(eventPath) {
		sent[r.Job] = true
	}
	if len(sent) != e.Subscribed {
		t.Errorf("%d of %d subscribers got a request", len(sent), e.Subscribed)
	}
	proven(t, dsn)
}

// kill -9 between any two steps of an event's fan-out. Another replica repeats nothing.
func TestAKillAtAnyStepOfAFanOutLosesNothing(t *testing.T) {
	t.Parallel()
	for _, point := range fanOutPoints() {
		for _, nth := range []int{1, 2} {
			t.Run(fmt.Sprint(point, ":", nth), func(t *testing.T) {
				t.Parallel()
				dsn, w := pgtest.DSN(t), newWitness(t)
				victim := fatal(t, dsn, point, nth, "kill")
				subscribe(t, victim, w, 1100)
				last(t, victim, "/v1/events/huge", map[string]any{"body": map[string]int{"n": 1}})
				if code := ended(t, "the replica that fans out", victim.Process); code != -1 {
					t.Fatalf("exit code %d", code)
				}
				var e events.Emitted
				must(t, connect(t, dsn).QueryRow(t.Context(), `SELECT id, subscribed FROM punctual.events`).
					Scan(&e.ID, &e.Subscribed))
				survivor := serve(t, dsn)
				fannedOut(t, dsn, w, e, patience)
				stop(t, survivor)
			})
		}
	}
}

func fanOutPoints() []failpoint.Point {
	return slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		return !strings.HasPrefix(string(p), "event-")
	})
}

// kill -9 while an event reaches 10,000 jobs. A second event does not wait, and transactions stay small.
func TestAnEventOfTenThousandSubscribers(t *testing.T) {
	t.Parallel()
	const subscribers = 10_000
	dsn, w := pgtest.DSN(t), newWitness(t)
	first, second := serve(t, dsn), serve(t, dsn)
	subscribe(t, second, w, subscribers)
	e := emit(t, first, "huge")
	await(t, "the fan-out to be on its way", func() bool { return len(w.At(eventPath)) > 100 })
	began := time.Now()
	emit(t, second, "small")
	await(t, "the second event to begin", func() bool { return len(w.At(quickPath)) > 0 })
	if n := len(w.At(eventPath)); n >= subscribers {
		t.Errorf("a second event has waited for all %d runs of a huge one", n)
	}
	first.Kill()
	t.Logf("a second event's request was sent after %s", w.At(quickPath)[0].At.Sub(began).Round(time.Millisecond))
	var entered time.Duration
	must(t, connect(t, dsn).QueryRow(t.Context(), `
		SELECT r.created_at - e.emitted_at FROM punctual.events e JOIN punctual.runs r ON r.caused_by = e.id
		WHERE e.name = 'small'`).Scan(&entered))
	t.Logf("its run was made after %s", entered.Round(time.Millisecond))
	fannedOut(t, dsn, w, e, 3*patience)
	var most int
	must(t, connect(t, dsn).QueryRow(t.Context(), `
		SELECT max(n) FROM (
		    SELECT count(*) AS n FROM punctual.runs WHERE caused_by = $1 GROUP BY created_at) made`, e.ID).Scan(&most))
	if most > 500 {
		t.Errorf("a transaction has made %d runs", most)
	}
	// On an idle replica.
	var times []time.Duration
	for range 20 {
		before, began := len(w.At(quickPath)), time.Now() // the replica that was killed may have sent the first one in vain
		emit(t, second, "small")
		await(t, "the request of an event", func() bool { return len(w.At(quickPath)) > before })
		times = append(times, w.At(quickPath)[before].At.Sub(began))
	}
	slices.Sort(times)
	t.Logf("from POST to the first request: median %s, longest %s", times[len(times)/2], times[len(times)-1])
	stop(t, second)
}
