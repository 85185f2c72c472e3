//prove:limits

package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler"
)

// hourly is a job that is not due soon at any time of day, and of which past hours can be ordered.
var hourly = process.JobSpec{
	"schedule": map[string]any{"cron": fmt.Sprint(time.Now().Add(30*time.Minute).Minute(), " * * * *")},
	"jitter":   "0s", "timeout": "1h",
}

// backfillHours orders a backfill of a job's last hours, all at once.
func backfillHours(t *testing.T, a *client.Client, job string, hours int) operation {
	t.Helper()
	now := time.Now().UTC()
	return do[operation](t, a, "POST", "/v1/jobs/"+job+"/backfill", map[string]any{
		"from": now.Add(time.Duration(-hours) * time.Hour).Format(time.RFC3339), "to": now.Format(time.RFC3339),
		"concurrency": "allow",
	})
}

// Ten requests and a backfill hang. A job that is due each second gets the concurrency that is left.
//
// Two replicas with a concurrency of ten. It does not wait until it is late.
func TestWhatIsDueFindsTheWorkerSlotsThatABackfillLeaves(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn, "--queues=default=10"), serve(t, dsn, "--queues=default=10")}
	w.Script("/long", Answer{Hang: true})
	w.Script("/past", Answer{Hang: true})
	hangs := process.JobSpec{"schedule": oneShot(nextSecond(time.Second)), "timeout": "1h"}
	create(t, fleet[0].API, many(10, "long", w.URL+"/long", hangs)...)
	await(t, "the requests that hang", func() bool { return openRequests(w, "/long") == 10 })

	create(t, fleet[0].API, job("past", w.URL+"/past", hourly))
	backfill := backfillHours(t, fleet[1].API, "past", 40)
	await(t, "the backfill to take what it may", func() bool { return openRequests(w, "/past") >= 6 })

	start, slots := nextSecond(time.Second), 5
	often := everyUntil("1s", start, start.Add(time.Duration(slots-1)*time.Second))
	create(t, fleet[0].API, job("often", w.URL+"/often", process.JobSpec{"schedule": often}))
	await(t, "the job that is due every second", func() bool { return len(w.At("/often")) == slots })
	// On a machine that stands still for seconds, a slot or two may be late.
	conn := connect(t, dsn)
	if late := query[int](t, conn, `
		SELECT count(*)
		FROM punctual.runs r
		JOIN punctual.jobs j ON j.id = r.job_id
		WHERE j.name = 'often' AND r.claimed_at - r.due_at > $1::interval`, scheduler.OlderThan); late > slots/2 {
		t.Errorf("%d of %d slots were not claimed before they were late", late, slots)
	}
	if n, most := mostOpen(w.Requests()), 2*(10+2); n > most {
		t.Errorf("%d requests were open at once, at most %d may be", n, most)
	}
	w.Release("/long")
	w.Release("/past")
	finished(t, fleet[0].API, backfill.ID)
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stop(t, fleet...)
}

// Hanging slots occupy all concurrency. A manual run, a retry and a backfill start all the same.
func TestARunByHandStartsBesideSlotsThatTakeEveryWorkerSlot(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn, "--queues=default=10")
	w.Script("/long", Answer{Hang: true})
	due := oneShot(nextSecond(time.Second))
	create(t, r.API, many(12, "long", w.URL+"/long", process.JobSpec{"schedule": due, "timeout": "1h"})...)
	await(t, "the requests that hang", func() bool { return openRequests(w, "/long") == 10 })
	create(t, r.API, job("hand", w.URL+"/hand", hourly))
	trigger(t, r.API, "hand")
	await(t, "the run by hand", func() bool { return len(w.At("/hand")) == 1 })
	backfill := backfillHours(t, r.API, "hand", 3)
	finished(t, r.API, backfill.ID)
	await(t, "the runs of the backfill", func() bool { return len(w.At("/hand")) == 1+backfill.Matched })
	// After a minute the worker slots of requests that hang are lent out, and then anything starts.
	if last := w.At("/hand")[backfill.Matched]; last.At.Sub(w.At("/long")[0].At) > time.Minute || backfill.Matched != 3 {
		t.Errorf("the last of %d runs of the backfill came at %s, the first request that hangs at %s", backfill.Matched,
			last.At, w.At("/long")[0].At)
	}
	if n := openRequests(w, "/long"); n != 10 {
		t.Errorf("%d requests of slots that are due were open, with 10 worker slots", n)
	}
	w.Release("/long")
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
	stop(t, r)
}
