//prove:replicas

package prove

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// herd is a load of one-shots due within some seconds and of cron jobs that fire every second.
type herd struct {
	start    time.Time // the first slot, a whole second
	oneShots int
	within   time.Duration // how long the one-shots are spread
	cronJobs int
	seconds  int // how long the cron jobs fire
}

// jobs returns the herd's jobs, the one-shots first.
func (h herd) jobs(url string) (jobs []process.JobSpec) {
	for i := range h.oneShots {
		due := h.start.Add(h.within * time.Duration(i) / time.Duration(h.oneShots))
		jobs = append(jobs,
			job(fmt.Sprintf("once-%d", i), url+"/once", process.JobSpec{
				"schedule": oneShot(due),
			}))
	}
	last := h.start.Add(time.Duration(h.seconds-1) * time.Second)
	return append(jobs, many(h.cronJobs, "cron", url+"/cron", process.JobSpec{"schedule": map[string]any{
		"cron": "* * * * * *", "starts_at": client.Instant(h.start), "ends_at": client.Instant(last),
	}})...)
}

func (h herd) runs() int { return h.oneShots + h.cronJobs*h.seconds }

func (h herd) end() time.Time {
	return h.start.Add(max(h.within, time.Duration(h.seconds)*time.Second))
}

// outlast waits until the last slot of the load is due.
func (h herd) outlast(t testing.TB) {
	t.Helper()
	awaitFor(t, time.Until(h.end())+patience, "the load to end", func() bool {
		return time.Now().After(h.end().Add(time.Second))
	})
}

// nextSecond returns the first whole second that is at least d away.
func nextSecond(d time.Duration) time.Time {
	return time.Now().Add(d + time.Second).Truncate(time.Second)
}

// Nothing breaks on three replicas. Each slot has one run, sent once.
func TestThreeReplicasRunEachSlotExactlyOnce(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	h := herd{start: nextSecond(4 * time.Second), oneShots: 5000, within: 10 * time.Second, cronJobs: 200, seconds: 60}
	if testing.Short() {
		h.oneShots, h.cronJobs, h.seconds = 300, 20, 8
	}
	began := time.Now()
	for i, batch := range slices.Collect(slices.Chunk(h.jobs(w.URL), 1000)) {
		create(t, fleet[i%len(fleet)].API, batch...)
	}
	t.Logf("%d jobs created in %s", h.oneShots+h.cronJobs, time.Since(began).Round(time.Millisecond))
	slow := time.Now().After(h.start) // then cron jobs created after that have fewer slots
	h.outlast(t)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
	if n := len(f.Runs); len(f.Requests) != n || n > h.runs() || n < h.oneShots || !slow && n < h.runs() {
		t.Errorf("%d runs and %d requests, want %d of each", n, len(f.Requests), h.runs())
	}
	logLateness(t, f)
	stop(t, fleet...)
}

// A rolling restart with SIGTERM under load. Everything is sent once.
func TestRollingRestartLosesNothingAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	var slow []Answer
	for d := 200; d <= 500; d += 10 {
		slow = append(slow, Answer{Delay: time.Duration(d) * time.Millisecond})
	}
	w.Cycle("/slow", slow...)
	h := herd{start: nextSecond(3 * time.Second), oneShots: 1000, within: 10 * time.Second, cronJobs: 40, seconds: 14}
	create(t, fleet[0].API, h.jobs(w.URL)...)
	sluggish := inTurn(many(30, "slow", w.URL+"/slow", process.JobSpec{
		"schedule": everyUntil("1s", h.start, h.start.Add(13*time.Second)),
	}), "allow", "forbid")
	create(t, fleet[1].API, sluggish...)

	for i := range fleet { // one by one, while slow requests are in flight
		open := len(sluggish) * (1 + 3*i)
		await(t, "slow requests in flight", func() bool { return len(w.At("/slow")) > open })
		fleet = append(fleet, serve(t, dsn))
		stop(t, fleet[i])
	}
	h.outlast(t)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	succeeded(t, f)
	if len(f.Attempts) > 0 {
		t.Errorf("%d attempts did not succeed, such as %+v", len(f.Attempts), f.Attempts[0])
	}
	logLateness(t, f)
}

// lateness returns, sorted, the times from due to arrival of first attempts.
func lateness(f Facts) (late []time.Duration) {
	due := make(map[uuid.UUID]time.Time, len(f.Runs))
	for _, r := range f.Runs {
		due[r.ID] = r.DueAt
	}
	for _, q := range f.Requests {
		if q.Attempt == 1 {
			late = append(late, q.At.Sub(due[q.Run]))
		}
	}
	slices.Sort(late)
	return late
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}

func logLateness(t testing.TB, f Facts) {
	late := lateness(f)
	t.Logf("lateness of %d runs: p50 %s, p90 %s, p99 %s, longest %s", len(late), quantile(late, 0.5), quantile(late, 0.9),
		quantile(late, 0.99), quantile(late, 1))
}
