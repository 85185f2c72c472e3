//prove:limits

package prove

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// limit sets a limit of the API's tenant. Replicas learn of it with their next heartbeat.
func limit(t testing.TB, conn *pgx.Conn, column string, most any) {
	t.Helper()
	execute(t, conn, `UPDATE punctual.tenants SET `+pgx.Identifier{column}.Sanitize()+` = $1 WHERE name = 'default'`, most)
}

// mostBeyond compares the starts in every period with what perSecond and a burst of one second allow there. It returns
// the largest excess.
func mostBeyond(starts []time.Time, perSecond float64) (beyond float64) {
	for i := range starts {
		for j := i; j < len(starts); j++ {
			beyond = max(beyond, float64(j-i+1)-perSecond*(1+starts[j].Sub(starts[i]).Seconds()))
		}
	}
	return beyond
}

// busywork creates due work of all kinds: slots, retries and runs that were triggered by hand. It returns how many
// requests they make. A first attempt that is to fail gets the given answer.
func busywork(t testing.TB, a *client.Client, w *Witness, n int, failure Answer) (requests int) {
	t.Helper()
	soon := oneShot(time.Now().Add(time.Second))
	jobs := inTurn(many(n, "slot", w.URL+"/works", process.JobSpec{"schedule": soon, "timeout": "5m"}),
		"allow", "forbid", "replace", "wait")
	for i := range n / 10 {
		path := fmt.Sprint("/fails/", i)
		w.Script(path, failure, Answer{})
		jobs = append(jobs, job(fmt.Sprint("fails-", i), w.URL+path, process.JobSpec{
			"schedule": soon, "retry": map[string]any{"initial_backoff": "100ms", "max_attempts": 3},
		}))
	}
	jobs = append(jobs, job("by-hand", w.URL+"/works", process.JobSpec{"timeout": "5m"}))
	create(t, a, jobs...)
	for range n / 10 {
		trigger(t, a, "by-hand")
	}
	return n + 2*(n/10) + n/10
}

// Three replicas share a tenant's concurrency limit, and one is killed. The limit holds, and everything is sent.
//
// In the end the limit is lifted.
func TestThreeReplicasNeverSendMoreAtOnceThanATenantMay(t *testing.T) {
	t.Parallel()
	const most, n = 7, 300
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	limit(t, conn, "max_concurrent_runs", most)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	w.Script("/works", Answer{Hang: true, Delay: 100 * time.Millisecond})
	requests := busywork(t, fleet[0].API, w, n, Answer{Status: 500, Delay: 50 * time.Millisecond})
	await(t, "as many requests as the tenant may have", func() bool { return mostOpen(w.Requests()) >= most-1 })
	await(t, "the tenant to be said to wait", func() bool {
		return query[bool](t, conn, `
			SELECT EXISTS (SELECT FROM punctual.overdue WHERE held_by = 'limit max_concurrent_runs')`)
	})
	w.Release("/works")
	await(t, "a third of the work", func() bool { return w.Len() > requests/3 })
	fleet[1].Kill()
	await(t, "two thirds of it", func() bool { return w.Len() > requests*2/3 })
	limit(t, conn, "max_concurrent_runs", nil)
	lifted := time.Now()
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	before := slices.DeleteFunc(f.Requests, func(q Request) bool { return !q.At.Before(lifted) })
	if got := mostOpen(before); got > most || got < most-1 {
		t.Errorf("%d requests were open at once, want %d", got, most)
	}
	await(t, "no replica to have a share of a limit that is no more", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.allowances JOIN punctual.replicas ON id = replica)`)
	})
	proven(t, dsn)
}

// The same with a tenant's limit of starts a second.
func TestThreeReplicasNeverStartMoreASecondThanATenantMay(t *testing.T) {
	t.Parallel()
	const perSecond, n = 15, 120 // less than a busy machine manages without a limit
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	limit(t, conn, "max_runs_per_second", perSecond)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	requests := busywork(t, fleet[0].API, w, n, Answer{Status: 500})
	await(t, "a third of the work", func() bool { return w.Len() > requests/3 })
	await(t, "the tenant to be said to wait", func() bool {
		return query[bool](t, conn, `
			SELECT EXISTS (SELECT FROM punctual.overdue WHERE held_by = 'limit max_runs_per_second')`)
	})
	fleet[2].Kill()
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	// Counts claims rather than requests: a busy machine may delay requests and then send several at once.
	var started []time.Time
	for _, r := range f.Runs {
		if r.ClaimedAt != nil {
			started = append(started, *r.ClaimedAt)
		}
	}
	for _, a := range f.Attempts { // failed attempts, whose run was claimed again later
		started = append(started, a.StartedAt)
	}
	slices.SortFunc(started, time.Time.Compare)
	if beyond := mostBeyond(started, perSecond); beyond > perSecond/10+1 {
		t.Errorf("%.1f starts more than %d a second allow", beyond, perSecond)
	}
	began, ended := f.Requests[0].At, f.Requests[len(f.Requests)-1].At
	t.Logf("%d requests in %s", len(f.Requests), ended.Sub(began).Round(time.Millisecond))
	proven(t, dsn)
}

// A held-back tenant has 20,000 due jobs. Other tenants are as punctual as before.
func TestATenantThatIsHeldBackDelaysNobodyElse(t *testing.T) {
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	execute(t, conn, `INSERT INTO punctual.tenants (name, max_concurrent_runs) VALUES ('noisy', 2)`)
	r := serve(t, dsn)
	quiet := lateOf(t, r, w, dsn, "/before")
	w.Script("/noisy", Answer{Hang: true})
	create(t, r.API,
		job("noisy", w.URL+"/noisy", process.JobSpec{"schedule": delayed("1h"), "timeout": "5m"}))
	// Creates many jobs of another tenant, with the definition that the API wrote.
	execute(t, conn, `
		WITH model AS (
		    SELECT j.*, v.definition
		    FROM punctual.jobs j
		    JOIN punctual.job_versions v ON v.job_id = j.id
		    WHERE j.name = 'noisy'),
		made AS (
		    INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
		    SELECT gen_random_uuid(), t.id, 1, 'noisy-' || i, 'active', m.kind, m.queue
		    FROM model m, punctual.tenants t, generate_series(1, 20000) i
		    WHERE t.name = 'noisy'
		    RETURNING id, tenant, queue),
		versions AS (
		    INSERT INTO punctual.job_versions (job_id, version, state, definition)
		    SELECT made.id, 1, 'active', m.definition
		    FROM made, model m)
		INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT id, now(), now(), tenant, 1, queue * 4 + 1, true FROM made`)
	await(t, "the noisy tenant to be held back", func() bool {
		return len(w.At("/noisy")) == 2 && query[bool](t, conn, `
			SELECT EXISTS (SELECT FROM punctual.tenant_usage WHERE held_by = 'max_concurrent_runs')`)
	})
	loud := lateOf(t, r, w, dsn, "/beside")
	t.Logf("p99 of lateness: %s alone, %s beside 20,000 due jobs of a tenant that is held back", quiet, loud)
	// No measurement: the limit tells unharmed from starved, and starved jobs hang for minutes.
	if loud > quiet+5*time.Second {
		t.Errorf("beside a tenant that is held back the others' p99 is %s, alone %s", loud, quiet)
	}
	if n := len(w.At("/noisy")); n != 2 {
		t.Errorf("%d requests of the noisy tenant, want 2", n)
	}
	neverSaid(t, "tick failed", r)
	stop(t, r)
}

// A run that waits for a limit is cancelled, and the next one starts.
func TestARunThatWaitsForALimitCanBeCancelled(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	limit(t, conn, "max_concurrent_runs", 1)
	r := serve(t, dsn)
	w.Script("/hangs", Answer{Hang: true})
	create(t, r.API, job("hangs", w.URL+"/hangs", process.JobSpec{"timeout": "5m"}), job("waits", w.URL+"/waits", nil))
	trigger(t, r.API, "hangs")
	await(t, "the first request", func() bool { return len(w.At("/hangs")) == 1 })
	first := trigger(t, r.API, "waits")
	second := trigger(t, r.API, "waits")
	type queues struct {
		HeldBack *struct{ Limit, Reason string } `json:"held_back"`
	}
	await(t, "the reason to be told", func() bool {
		held := do[queues](t, r.API, "GET", "/v1/queues", nil).HeldBack
		return held != nil && held.Reason == "the tenant is at max_concurrent_runs (1)"
	})
	do[any](t, r.API, "POST", "/v1/runs/"+first+"/cancel", nil)
	if got := readRun(t, r.API, first); got.Status != "cancelled" {
		t.Errorf("the run is %s", got.Status)
	}
	if n := len(w.At("/waits")); n != 0 {
		t.Errorf("%d requests beyond the limit", n)
	}
	w.Release("/hangs")
	await(t, "the other one", func() bool { return len(w.At("/waits")) == 1 })
	if got := w.At("/waits")[0].Run.String(); got != second {
		t.Errorf("run %s was sent", got)
	}
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true})
	stop(t, r)
}
