//prove:replicas

package prove

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Six hours without a replica, 10,002 jobs. Each `missed` policy is followed, oldest first, and new slots stay on time.
//
// A third of the jobs has each policy. Concurrency is reserved for the slots that are due now.
func TestSixHoursOfDowntime(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	const (
		jobs  = 10_002
		hours = 6
		slots = 400 // worker slots
	)
	policies := []string{"skip", "fire_once", "fire_all"}
	before := serve(t, dsn)
	hourly := fmt.Sprint(time.Now().Add(30*time.Minute).Minute(), " * * * *") // far from now at any time of day
	var specs []process.JobSpec
	for i := range jobs {
		specs = append(specs, job(fmt.Sprintf("%s-%d", policies[i%3], i), w.URL+"/"+policies[i%3], process.JobSpec{
			"schedule": map[string]any{"cron": hourly}, "jitter": "0s", "missed": map[string]any{"policy": policies[i%3]},
		}))
	}
	create(t, before.API, specs...)
	stop(t, before)
	// Backdate everything by six hours.
	conn := connect(t, dsn)
	execute(t, conn, `UPDATE punctual.job_versions SET valid_from = valid_from - interval '6 h'`)
	execute(t, conn, `
		UPDATE punctual.schedules
		SET scheduled_for = scheduled_for - interval '6 h', next_run_at = next_run_at - interval '6 h'`)

	w.Script("/fire_all", Answer{Delay: 20 * time.Millisecond})
	after := serve(t, dsn, fmt.Sprintf("--queues=default=%d", slots))
	start := nextSecond(time.Second)
	last := start.Add(14 * time.Second)
	create(t, after.API, many(10, "now", w.URL+"/now", process.JobSpec{"schedule": everyUntil("1s", start, last)})...)
	await(t, "the last slots", func() bool { return time.Now().After(last.Add(time.Second)) })
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, Settle: time.Minute})

	names := map[uuid.UUID]string{}
	for _, j := range f.Jobs {
		names[j.ID] = j.Name
	}
	runs, skipped, stalled := map[string]int{}, map[string]int{}, 0
	for _, r := range f.Runs {
		policy := names[r.Job][:strings.LastIndexByte(names[r.Job], '-')]
		if r.Status == "skipped" {
			skipped[policy] += *r.SkippedCount
		} else {
			runs[policy]++
		}
		switch old := r.ScheduledFor.Before(start.Add(-2 * time.Minute)); {
		case r.Status == "skipped" || old == r.Late:
		case old:
			t.Errorf("run %s of %s is not late", r.ID, r.ScheduledFor)
		default:
			stalled++
		}
	}
	each := jobs / 3
	for policy, want := range map[string][2]int{
		"skip":      {0, hours * each},
		"fire_once": {each, (hours - 1) * each},
		"fire_all":  {hours * each, 0},
	} {
		if got := [2]int{runs[policy], skipped[policy]}; got != want {
			t.Errorf("%s: %d runs and %d skipped slots, want %d and %d", policy, got[0], got[1], want[0], want[1])
		}
	}
	oldestFirst(t, f)
	if n := mostOpen(slices.Concat(w.At("/fire_all"), w.At("/fire_once"))); n > slots*7/8 {
		t.Errorf("%d late requests were open at once, of %d worker slots", n, slots)
	}
	late := lateOfRequests(w.At("/now"))
	var drained time.Duration
	for _, q := range slices.Concat(w.At("/fire_all"), w.At("/fire_once")) {
		drained = max(drained, q.At.Sub(start))
	}
	t.Logf("%d requests on time while the backlog drained for %s, %d late ones among them: p50 %s, p90 %s, p99 %s late",
		len(late), drained, stalled, quantile(late, 0.5), quantile(late, 0.9), quantile(late, 0.99))
	// The limit tells a place of its own in the queue from a place behind the backlog. A slot that is due in the second or
	// two in which the machine stands still for more than OlderThan is late, and then comes after slots that have been
	// late for longer.
	if p90 := quantile(late, 0.9); p90 > drained/2 || stalled > len(late)/10 {
		t.Errorf("what was due meanwhile was %s late, %d of %d runs were late", p90, stalled, len(late))
	}
	stop(t, after)
}

// oldestFirst checks that each job's late runs were claimed in the order of their slots.
func oldestFirst(t *testing.T, f Facts) {
	t.Helper()
	first := map[uuid.UUID]Request{}
	for _, q := range f.Requests {
		first[q.Run] = q
	}
	newest := map[uuid.UUID]Request{}
	for _, r := range f.Runs { // ordered by slot
		q, sent := first[r.ID]
		if !sent || !r.Late {
			continue
		}
		if before, ok := newest[r.Job]; ok && q.Fence < before.Fence {
			t.Errorf("slot %s was claimed before %s", q.ScheduledFor, before.ScheduledFor)
		}
		newest[r.Job] = q
	}
}

// mostOpen returns the largest number of requests that were open at the same time.
func mostOpen(requests []Request) (most int) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, q := range requests {
		changes = append(changes, change{q.At, 1})
		if !q.Ended.IsZero() {
			changes = append(changes, change{q.Ended, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	open := 0
	for _, c := range changes {
		open += c.by
		most = max(most, open)
	}
	return most
}
