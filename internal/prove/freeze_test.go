//prove:freezes

package prove

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

var wholeDeployment = map[string]any{"scope": "deployment", "note": "for the test"}

// frozenState is the API's answer about freezes.
type frozenState struct {
	Deployment, Tenant *struct{ Reason string }
	InFlight           int `json:"in_flight"`
}

func freezes(t testing.TB, a *client.Client) frozenState {
	t.Helper()
	return do[frozenState](t, a, "GET", "/v1/freeze?scope=deployment", nil)
}

// overdueFor waits until n slots and runs have been due for a while. A replica that was not frozen would have sent
// them.
func overdueFor(t testing.TB, dsn string, n int, what string) {
	t.Helper()
	conn := connect(t, dsn)
	await(t, fmt.Sprintf("%d of %s to be overdue", n, what), func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.overdue WHERE overdue_by > interval '2 s'`) >= n
	})
}

// nothingCame checks that no request has come after the first n.
func nothingCame(t testing.TB, w *Witness, n int) {
	t.Helper()
	if more := w.Len() - n; more != 0 {
		t.Errorf("%d requests arrived that should not", more)
	}
}

// A freeze under load. Requests in flight end, nothing more is sent, and after it everything is, once.
func TestAFreezeUnderLoadStopsEverythingAndLosesNothing(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/hang", Answer{Hang: true})
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	create(t, fleet[0].API, job("hang", w.URL+"/hang", process.JobSpec{}))
	trigger(t, fleet[0].API, "hang")
	h := herd{start: nextSecond(2 * time.Second), oneShots: 200, within: 12 * time.Second, cronJobs: 10, seconds: 12}
	create(t, fleet[0].API, h.jobs(w.URL)...)
	await(t, "the load", func() bool { return w.Len() > 60 && len(w.At("/hang")) == 1 })

	answer := do[frozenState](t, fleet[1].API, "POST", "/v1/freeze", wholeDeployment)
	if answer.Deployment == nil || answer.InFlight < 1 {
		t.Fatalf("the answer is %+v", answer)
	}
	// All except the request that hangs.
	await(t, "what was in flight to end", func() bool { return freezes(t, fleet[2].API).InFlight == 1 })
	sent := w.Len()
	for _, r := range fleet {
		trigger(t, r.API, "hang")
	}
	overdueFor(t, dsn, 30, "the load")
	nothingCame(t, w, sent)
	w.Release("/hang") // the run in flight ends, and its outcome is written
	await(t, "nothing to be in flight", func() bool { return freezes(t, fleet[0].API).InFlight == 0 })
	nothingCame(t, w, sent)
	proven(t, dsn) // waiting runs are no violation
	for i, r := range fleet {
		await(t, fmt.Sprintf("the log of replica %d", i), func() bool {
			return strings.Contains(r.Output(), "the deployment is frozen")
		})
	}

	do[any](t, fleet[2].API, "POST", "/v1/unfreeze", map[string]any{"scope": "deployment"})
	await(t, "the load to end", func() bool { return time.Now().After(h.end()) })
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, Settle: time.Minute})
	if len(w.At("/hang")) != 4 {
		t.Errorf("%d requests to /hang, want that of before and 3 triggered while frozen", len(w.At("/hang")))
	}
	proven(t, dsn)
	stop(t, fleet...)
}

// A tenant with 1,000 due jobs is frozen. Others do not wait, and its runs are sent later.
func TestAFrozenTenantWaitsAndOthersDoNot(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	do[any](t, r.API, "POST", "/v1/tenants", map[string]any{"name": "frozen"})
	frozen := r.API.WithHeader("Punctual-Tenant", "frozen")
	if answer := do[frozenState](t, frozen, "POST", "/v1/freeze", map[string]any{
		"scope": "tenant",
	}); answer.Tenant == nil || answer.Deployment != nil {
		t.Fatalf("the answer is %+v", answer)
	}
	create(t, frozen, many(1000, "theirs", w.URL+"/theirs", process.JobSpec{"schedule": delayed("100ms")})...)
	trigger(t, frozen, "theirs-0")
	create(t, r.API, job("ours", w.URL+"/ours", process.JobSpec{"schedule": every("1s")}))
	overdueFor(t, dsn, 1000, "the frozen tenant's")
	before := len(w.At("/ours"))
	await(t, "another tenant's slots", func() bool { return len(w.At("/ours")) > before+3 })
	if n := len(w.At("/theirs")); n != 0 {
		t.Errorf("%d requests of the frozen tenant arrived", n)
	}
	proven(t, dsn)
	do[any](t, frozen, "POST", "/v1/unfreeze", map[string]any{"scope": "tenant"})
	await(t, "what waited", func() bool { return len(w.At("/theirs")) == 1001 })
	stop(t, r)
}

// kill -9 during a freeze. Its runs are taken over, and sent after it.
func TestAReplicaKilledWhileFrozenIsTakenOverAndNothingIsSent(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	victim := serve(t, dsn)
	hanging(t, victim, w, 1)
	other := serve(t, dsn)
	do[any](t, other.API, "POST", "/v1/freeze", wholeDeployment)
	sent := w.Len()
	victim.Kill()
	conn := connect(t, dsn)
	await(t, "its run to be taken over", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.claims) AND EXISTS (SELECT FROM punctual.runs WHERE status = 'retrying')`)
	})
	overdueFor(t, dsn, 1, "the run")
	nothingCame(t, w, sent)
	do[any](t, other.API, "POST", "/v1/unfreeze", wholeDeployment)
	await(t, "it to be sent again", func() bool { return w.Len() > sent })
	w.Release("/stuck")
	atRest(t, dsn, w)
	stop(t, other)
}

// A replica for the API only sends nothing.
func TestAReplicaForTheAPIOnlySendsNothing(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	stop(t, serve(t, dsn)) // registers the queue
	api := serve(t, dsn, "--dispatch=off")
	create(t, api.API, job("triggered", w.URL+"/triggered", process.JobSpec{}),
		job("every", w.URL+"/every", process.JobSpec{"schedule": every("1s")}))
	trigger(t, api.API, "triggered")
	overdueFor(t, dsn, 2, "its jobs")
	nothingCame(t, w, 0)
	type list struct {
		Data []struct{ Queues map[string]int }
	}
	if replicas := do[list](t, api.API, "GET", "/v1/replicas", nil).Data; len(replicas) != 1 ||
		len(replicas[0].Queues) != 0 {
		t.Errorf("it is listed as %+v", replicas)
	}
	dispatching := serve(t, dsn)
	await(t, "the other replica to send", func() bool { return len(w.At("/triggered")) == 1 && len(w.At("/every")) > 0 })
	stop(t, api)
	stop(t, dispatching)
}

// `serve --frozen` freezes before anything is sent.
func TestServeFrozenFreezesAtItsStart(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn, "--frozen")
	create(t, r.API, job("every", w.URL+"/every", process.JobSpec{"schedule": every("1s")}))
	overdueFor(t, dsn, 1, "its jobs")
	nothingCame(t, w, 0)
	out := punctual(t, dsn, "unfreeze", "--note=checked")
	if !strings.Contains(out, "not frozen") {
		t.Errorf("unfreeze said %s", out)
	}
	await(t, "it to send", func() bool { return w.Len() > 0 })
	if out := punctual(t, dsn, "freeze", "--note=moving"); !strings.Contains(out, "the deployment has been frozen since") ||
		!strings.Contains(out, "moving") || !strings.Contains(out, "punctual unfreeze") {
		t.Errorf("freeze said %s", out)
	}
	stop(t, r)
}
