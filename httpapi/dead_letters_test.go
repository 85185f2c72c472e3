package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store/letters"
)

// delivered is a request that the target got.
type delivered struct {
	path, id, key, slot, trigger, run, extra, body string
}

// dispatched is a service with a replica, and a target that fails or succeeds as the test says.
type dispatched struct {
	*service
	target   string
	healthy  atomic.Bool
	requests chan delivered
	ended    chan domain.Outcome // outcomes, once they are written
}

func newDispatched(t *testing.T) *dispatched {
	t.Parallel()
	f := &dispatched{service: serve(t), requests: make(chan delivered, 100), ended: make(chan domain.Outcome, 100)}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		f.requests <- delivered{
			r.URL.Path, h.Get("Webhook-Id"), h.Get("Idempotency-Key"), h.Get("Punctual-Scheduled-For"),
			h.Get("Punctual-Trigger"), h.Get("Punctual-Run"), h.Get("X-Extra"), string(body),
		}
		if !f.healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(target.Close)
	f.target = target.URL
	f.dispatch(guard.New(guard.Loopback), f.ended)
	return f
}

// next returns the next request, after its outcome is written.
func (f *dispatched) next() delivered {
	f.t.Helper()
	r := <-f.requests
	<-f.ended
	return r
}

// job returns a job that makes a single attempt.
func (f *dispatched) job(name, schedule string) string {
	return fmt.Sprintf(`{"name":%q,"schedule":%s,"target":{"url":"%s/old"},"retry":{"max_attempts":1}}`, name, schedule,
		f.target)
}

func TestReplayCarriesWhatTheFirstRunCarried(t *testing.T) {
	f := newDispatched(t)
	job := f.create(f.job("slot", fmt.Sprintf(`{"at":%q}`, time.Now().UTC().Format(time.RFC3339))))["id"].(string)
	first := f.next()
	slot, err := time.Parse(time.RFC3339Nano, first.slot)
	if err != nil || first.key != fmt.Sprintf("%s:%d", job, slot.Unix()) {
		t.Fatalf("the first request: %+v", first)
	}
	f.do("PATCH", "/v1/jobs/slot", `{"target":{"url":"`+f.target+`/new"}}`).want(200)
	want := delivered{path: "/new", id: first.id, key: first.key, slot: first.slot, trigger: "replay"}
	dead := first.run
	for _, healthy := range []bool{false, true} { // the first replay dies too, and is replayed itself
		f.healthy.Store(healthy)
		r := f.do("POST", "/v1/dead-letters/"+dead+"/replay", "").want(202)
		run := r.fields()
		if run["replay_of"] != dead || run["trigger"] != "replay" ||
			r.header.Get("Location") != "/v1/runs/"+run["id"].(string) {
			t.Errorf("answer %s", r.body)
		}
		want.run = run["id"].(string)
		if diff := cmp.Diff(want, f.next(), cmp.AllowUnexported(delivered{})); diff != "" {
			t.Error(diff)
		}
		f.do("POST", "/v1/dead-letters/"+dead+"/replay", "").code(problem.CodeState)
		dead = want.run
	}
	f.do("POST", "/v1/dead-letters/"+dead+"/replay", "").code(problem.CodeNotFound) // a run that succeeded has no dead letter
	if open := f.items("/v1/dead-letters"); len(open) != 0 {
		t.Errorf("open: %v", open)
	}
}

func TestReplayCarriesTheRunsOwnBodyAndHeaders(t *testing.T) {
	f := newDispatched(t)
	f.create(f.job("manual", `{}`))
	f.do("POST", "/v1/jobs/manual/trigger", `{"body":{"n":1},"headers":{"X-Extra":"mine"}}`).want(202)
	first := f.next()
	f.healthy.Store(true)
	var run any
	for range 2 { // the second request gets the first answer again
		r := f.do("POST", "/v1/dead-letters/"+first.run+"/replay", `{"note":"it is back"}`, "Idempotency-Key: k").want(202)
		if id := r.fields()["id"]; run != nil && (id != run || r.header.Get("Idempotent-Replayed") != "true") {
			t.Errorf("answered %s", r.body)
		}
		run = r.fields()["id"]
	}
	want := delivered{
		path: "/old", id: first.run, key: first.run, slot: first.slot, trigger: "replay", run: run.(string), extra: "mine",
		body: `{"n":1}`,
	}
	if diff := cmp.Diff(want, f.next(), cmp.AllowUnexported(delivered{})); diff != "" {
		t.Error(diff)
	}
	list := f.items("/v1/dead-letters?resolved=true")
	if len(list) != 1 || list[0]["replayed_as"] != run || list[0]["note"] != "replayed as "+run.(string)+": it is back" {
		t.Errorf("%v", list)
	}
}

func TestBulkReplayIsWorkedOnByTheReplicas(t *testing.T) {
	f := newDispatched(t)
	f.create(f.job("a", `{}`))
	waiting := map[string]bool{}
	for range 3 {
		f.do("POST", "/v1/jobs/a/trigger", "").want(202)
		waiting[f.next().run] = true
	}
	f.healthy.Store(true)
	if n := f.do("POST", "/v1/dead-letters/replay",
		`{"filter":{"job":"a"},"dry_run":true}`).want(200).fields()["matched"]; n != 3. {
		t.Errorf("a dry run counts %v", n)
	}
	r := f.do("POST", "/v1/dead-letters/replay",
		`{"filter":{"job":"a","reason":"http_5xx"},"max_per_second":100,"note":"back"}`).want(202)
	if o := into[letters.Operation](r); o.State != "running" || o.Matched != 3 || o.Kind != "replay" {
		t.Errorf("%s", r.body)
	}
	for range 3 {
		if got := f.next(); !waiting[got.id] {
			t.Errorf("%+v: not waited for", got)
		} else {
			delete(waiting, got.id)
		}
	}
	path := r.header.Get("Location")
	if o := get[letters.Operation](f.service, path); o.State != "done" || o.Done != 3 || o.Failed != 0 ||
		o.FinishedAt == nil {
		t.Errorf("%+v", o)
	}
	f.do("POST", path+"/cancel", "").code(problem.CodeState)
	if list := get[List[letters.Operation]](f.service, "/v1/operations?state=done"); len(list.Data) != 1 ||
		operationPath(list.Data[0].ID) != path {
		t.Errorf("%+v", list)
	}
}

func TestDeadLetterRequestsAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, at := range map[string]string{
		`{}`:                                                       "body.filter",
		`{"filter":{"jobs":"a"}}`:                                  "body.filter.jobs",
		`{"filter":{"job":"a b"}}`:                                 "body.filter.job",
		`{"filter":{"job_id":"a"}}`:                                "body.filter.job_id",
		`{"filter":{"reason":"paused"}}`:                           "body.filter.reason",
		`{"filter":{"from":"yesterday"}}`:                          "body.filter.from",
		`{"filter":{"to":5}}`:                                      "body.filter.to",
		`{"filter":{"label":["team"]}}`:                            "body.filter.label",
		`{"filter":{},"max_per_second":0}`:                         "body.max_per_second",
		`{"filter":{},"max_per_second":1001}`:                      "body.max_per_second",
		`{"filter":{},"dry_run":"yes"}`:                            "body.dry_run",
		`{"filter":{},"latest_per_job":"yes"}`:                     "body.latest_per_job",
		`{"filter":{},"note":"` + strings.Repeat("x", 1025) + `"}`: "body.note",
	} {
		for _, kind := range []string{"replay", "resolve"} {
			s.do("POST", "/v1/dead-letters/"+kind, body).blames(at)
		}
	}
	for path, at := range map[string]string{
		"/v1/dead-letters?resolved=maybe": "query.resolved", "/v1/dead-letters?reason=paused": "query.reason",
		"/v1/dead-letters?from=x": "query.from", "/v1/dead-letters?cursor=x": "query.cursor",
		"/v1/dead-letters?job_id=x": "query.job_id", "/v1/dead-letters?label=x": "query.label[0]",
		"/v1/operations?state=x": "query.state", "/v1/operations?cursor=x": "query.cursor",
	} {
		s.do("GET", path, "").blames(at)
	}
	const id = "019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"
	for request, detail := range map[string]string{
		"POST /v1/dead-letters/" + id + "/replay": "dead letter", "POST /v1/dead-letters/x/resolve": "dead letter",
		"GET /v1/operations/" + id: "operation", "POST /v1/operations/" + id + "/cancel": "operation",
		"GET /v1/dead-letters?job=none": "job",
	} {
		method, path, _ := strings.Cut(request, " ")
		s.do(method, path, "").code(problem.CodeNotFound, "There is no "+detail+" ")
	}
	s.do("POST", "/v1/dead-letters/"+id+"/resolve", `{"note":5}`).code(problem.CodeInvalid)
	s.do("POST", "/v1/dead-letters/resolve", `{"filter":{},"dry_run":true}`).want(200)
	s.do("POST", "/v1/dead-letters/resolve", `{"filter":{"job":"none"}}`).code(problem.CodeNotFound)
	s.do("GET",
		"/v1/dead-letters?resolved=any&reason=gone&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&label=a=b", "").want(200)
}
