//prove:other

package prove

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// arrival is a request as its target got it.
type arrival struct {
	method, url, body string
	header            http.Header
}

// mirror is a target that answers as the query asks, and keeps the requests of each run.
type mirror struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals map[string][]arrival
	release  chan struct{} // when it is closed, hanging requests are answered
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{arrivals: map[string][]arrival{}, release: make(chan struct{})}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	t.Cleanup(func() { m.open() })
	return m
}

func (m *mirror) open() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.release:
	default:
		close(m.release)
	}
}

func (m *mirror) of(run string) []arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arrivals[run]
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	run := r.Header.Get("Punctual-Run")
	m.mu.Lock()
	m.arrivals[run] = append(m.arrivals[run], arrival{r.Method, r.URL.RequestURI(), string(body), r.Header})
	m.mu.Unlock()
	q := r.URL.Query()
	if q.Has("hang") {
		select {
		case <-m.release:
		case <-r.Context().Done():
		}
	}
	answer := q.Get("answer")
	if q.Has("echo") { // debugging endpoints do this
		all, _ := json.Marshal(r.Header)
		answer = string(all)
		w.Header().Set("X-Request-Id", r.Header.Get("Authorization"))
		w.Header().Set("X-Elsewhere", "not kept")
	}
	if n, err := strconv.Atoi(q.Get("bytes")); err == nil {
		answer = strings.Repeat("x", n)
	}
	if n, err := strconv.Atoi(q.Get("result")); err == nil { // a result of n bytes
		answer = `{"more":[1],"result":"` + strings.Repeat("x", n-2) + `"}`
	}
	w.Header().Set("Content-Type", q.Get("type"))
	if status, err := strconv.Atoi(q.Get("status")); err == nil {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, answer)
}

// triggered creates a job and triggers a run of it.
func (m *mirror) triggered(t *testing.T, a *client.Client, name, query string, target, more process.JobSpec) string {
	t.Helper()
	spec := process.JobSpec{"url": m.URL + "/hook?" + query}
	maps.Copy(spec, target)
	j := process.JobSpec{"name": name, "target": spec, "retry": map[string]any{"max_attempts": 1}}
	maps.Copy(j, more)
	create(t, a, j)
	return trigger(t, a, name)
}

// text returns the body of the API's answer at a path.
func text(t *testing.T, a *client.Client, path string) string {
	t.Helper()
	return string(do[json.RawMessage](t, a, "GET", path, nil))
}

// A run shows its request as it was sent, without its secrets.
func TestTheRequestIsShownAsItWasSentWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t), "--trace-ratio=0.5"), newMirror(t)
	const planted = "planted-s3cret/+ü"
	id := m.triggered(t, r.API, "a", "echo&status=500", process.JobSpec{
		"method": "PUT", "body": map[string]any{"n": 1, "text": "<&>"},
		"headers":        map[string]any{"X-Api-Key": "planted-plainly", "X-Team": "billing"},
		"auth":           map[string]any{"type": "bearer", "value": planted},
		"secret_headers": map[string]any{"X-Hidden": planted + "2"},
	}, process.JobSpec{"keep_response": 65536})
	p, got := finalRun(t, r.API, id), m.of(id)
	if len(got) != 1 || p.Request == nil {
		t.Fatalf("%d requests, shown %+v", len(got), p.Request)
	}
	sent := got[0]
	if p.Request.Method != sent.method || p.Request.URL != m.URL+sent.url || string(p.Request.Body) != sent.body {
		t.Errorf("shown %s %s %s, sent %+v", p.Request.Method, p.Request.URL, p.Request.Body, sent)
	}
	secret := map[string]bool{"Authorization": true, "X-Hidden": true, "X-Api-Key": true, "Webhook-Signature": true}
	for name := range sent.header {
		want := sent.header.Get(name)
		if secret[name] {
			want = "***"
		}
		if got, shown := p.Request.Headers[name]; got != want &&
			(shown || !slices.Contains([]string{"Accept-Encoding", "Connection", "Content-Length", "User-Agent"}, name)) {
			t.Errorf("header %s is shown as %q, want %q", name, got, want)
		}
	}
	if trace := strings.Split(sent.header.Get("Traceparent"), "-"); len(trace) != 4 || trace[1] != p.TraceID {
		t.Errorf("the trace is shown as %q, and sent as %v", p.TraceID, trace)
	}
	for name := range p.Request.Headers {
		if sent.header.Get(name) == "" {
			t.Errorf("header %s was not sent", name)
		}
	}
	a := p.Attempts[0]
	if a.Outcome != "failed" || a.HTTPStatus != 500 || !strings.Contains(a.Response, "Punctual-Run") ||
		a.Headers["x-request-id"] != "Bearer ***" || a.Headers["date"] == "" || a.Headers["x-elsewhere"] != "" {
		t.Errorf("the attempt is %+v", a)
	}
	for _, path := range []string{"/v1/runs/" + id, "/v1/runs", "/v1/dead-letters", "/v1/jobs/a"} {
		if shown := text(t, r.API, path); strings.Contains(shown, "planted-s3cret") {
			t.Errorf("%s shows the secret: %s", path, shown)
		}
	}
}

// A run lists an attempt that is in flight.
func TestAnAttemptInFlightIsListed(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t)), newMirror(t)
	id := m.triggered(t, r.API, "a", "hang", nil, nil)
	await(t, "the request", func() bool { return len(m.of(id)) == 1 })
	p := readRun(t, r.API, id)
	if len(p.Attempts) != 1 || p.Attempts[0].Outcome != "in_flight" || p.Attempts[0].Number != 1 ||
		p.Attempts[0].Replica == "" || p.Attempts[0].StartedAt == "" || p.Attempts[0].FinishedAt != "" {
		t.Errorf("in flight: %+v", p.Attempts)
	}
	m.open()
	if p = finalRun(t, r.API, id); len(p.Attempts) != 1 || p.Attempts[0].Outcome != "succeeded" ||
		p.Attempts[0].FinishedAt == "" {
		t.Errorf("ended: %+v", p.Attempts)
	}
}

// As much of a response is kept as the job says.
func TestAsMuchOfAResponseIsKeptAsTheJobSays(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t)), newMirror(t)
	for _, c := range []struct {
		name, query string
		keep        any // nil: absent
		kept        int
		truncated   bool
		headers     bool
	}{
		{"nothing-of-a-success", "bytes=10", nil, 0, false, false},
		{"1-KiB-of-a-failure", "bytes=1025&status=500", nil, 1024, true, true},
		{"all-of-a-short-failure", "bytes=1024&status=500", nil, 1024, false, true},
		{"nothing-when-asked", "bytes=10&status=500", 0, 0, false, false},
		{"some-of-a-success", "bytes=10", 4, 4, true, true},
		{"all-of-a-success", "bytes=65536", 65536, 65536, false, true},
		{"64-KiB-of-more", "bytes=65537&status=404", 65536, 65536, true, true},
		{"the-headers-of-an-empty-answer", "bytes=0", 10, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			more := process.JobSpec{}
			if c.keep != nil {
				more["keep_response"] = c.keep
			}
			p := finalRun(t, r.API, m.triggered(t, r.API, c.name, c.query, nil, more))
			a := p.Attempts[0]
			if len(a.Response) != c.kept || a.Truncated != c.truncated || (a.Headers["date"] != "") != c.headers {
				t.Errorf("kept %d bytes, truncated %t, headers %v", len(a.Response), a.Truncated, a.Headers)
			}
		})
	}
}

// The `result` in an answer becomes the run's result.
func TestAnAnswerCarriesTheResultOfItsRun(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t)), newMirror(t)
	json := func(answer string) string {
		return "type=" + url.QueryEscape("application/json; charset=utf-8") + "&answer=" + url.QueryEscape(answer)
	}
	for _, c := range []struct {
		name, query  string
		result, note string // note: a part of it
	}{
		{"object", json(`{"result":{"rows":[1,2]}}`), `{"rows":[1,2]}`, ""},
		{"scalar", json(`{"a":{"result":1},"result": false}`), `false`, ""},
		{"null", json(`{"result":null}`), "", ""},
		{"none", json(`{"a":{"result":1}}`), "", ""},
		{"other-case", json(`{"Result":1}`), "", ""},
		{"list", json(`["result"]`), "", ""},
		{"other-type", "type=text/plain&answer=" + url.QueryEscape(`{"result":1}`), "1", ""},
		{"not-json", json(`{"result":1`), "", "not JSON"},
		{"nul", json(`{"result":"\u0000"}`), "", "UTF-8"},
		{"deep", json(`{"result":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`), "", "deeper than 64"},
		{"64-KiB", "type=application/json&result=65536", `"` + strings.Repeat("x", 65534) + `"`, ""},
		{"more", "type=application/json&result=65537", "", "65537 bytes; at most 65536"},
		{"far-more", "type=application/json&result=200000", "", "longer than Punctual reads"},
		{"of-a-failure", json(`{"result":1}`) + "&status=500", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := finalRun(t, r.API, m.triggered(t, r.API, c.name, c.query, nil, nil))
			if string(p.Result) != c.result || c.note == "" && p.ResultNote != "" || !strings.Contains(p.ResultNote, c.note) {
				t.Errorf("result %.80q, note %q", p.Result, p.ResultNote)
			}
			if want := map[bool]string{true: "succeeded", false: "dead"}[c.name != "of-a-failure"]; p.Status != want {
				t.Errorf("the run is %s, want %s", p.Status, want)
			}
		})
	}
}

// The token of an attempt that continues after a 202 is not shown.
//
// It is as good as a key to its run.
func TestTheTokenOfWorkThatGoesOnIsNotShown(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t)), newMirror(t)
	id := m.triggered(t, r.API, "a", "echo&status=202", nil, process.JobSpec{
		"completion":    "async",
		"keep_response": 65536,
		"retry":         map[string]any{"max_attempts": 2, "initial_backoff": "0s"},
	})
	accepted := func(n int) (p runView) {
		await(t, "the answer to attempt "+strconv.Itoa(n), func() bool {
			p = readRun(t, r.API, id)
			return len(p.Attempts) == n && p.Attempts[n-1].HTTPStatus == 202
		})
		return p
	}
	p := accepted(1)
	token := m.of(id)[0].header.Get("Punctual-Run-Token")
	if token == "" || p.Request.Headers["Punctual-Run-Token"] != "***" || p.Attempts[0].Outcome != "in_flight" ||
		!strings.Contains(p.Attempts[0].Response, "Punctual-Run-Token") {
		t.Errorf("accepted: %+v", p)
	}
	if p.Request.Headers["Punctual-Callback-Url"] != m.of(id)[0].header.Get("Punctual-Callback-Url") {
		t.Errorf("the callback URL is shown as %q", p.Request.Headers["Punctual-Callback-Url"])
	}
	if shown := text(t, r.API, "/v1/runs/"+id); strings.Contains(shown, token) {
		t.Errorf("the token is shown: %s", shown)
	}
	do[any](t, r.API.WithHeader("Punctual-Run-Token", token), "POST", "/v1/runs/"+id+"/fail", map[string]any{
		"error": "no ink",
	})
	p = accepted(2)
	if p.Attempts[0].Outcome != "failed" || !strings.Contains(p.Attempts[0].Response, `"Punctual-Attempt":["1"]`) ||
		!strings.Contains(p.Attempts[1].Response, `"Punctual-Attempt":["2"]`) {
		t.Errorf("the answers of both attempts are %+v", p.Attempts)
	}
	token = m.of(id)[1].header.Get("Punctual-Run-Token")
	holder := r.API.WithHeader("Punctual-Run-Token", token)
	done := do[runView](t, holder, "POST", "/v1/runs/"+id+"/complete", map[string]any{
		"result": map[string]any{"pages": 3},
	})
	if again := readRun(t, r.API, id); string(done.Result) != `{"pages":3}` ||
		string(again.Result) != `{"pages":3}` || !strings.Contains(again.Attempts[1].Response, `"Punctual-Attempt":["2"]`) {
		t.Errorf("completed: %s, then %+v", done.Result, again)
	}
}

// A rerun sends the request again, with an idempotency key of its own or the same.
func TestARerunIsSentAgainWithKeysOfItsOwnOrTheSame(t *testing.T) {
	t.Parallel()
	r, m := serve(t, pgtest.DSN(t)), newMirror(t)
	create(t, r.API, process.JobSpec{"name": "a", "target": map[string]any{"url": m.URL + "/hook", "body": "the job's"}})
	first := do[runView](t, r.API, "POST", "/v1/jobs/a/trigger", map[string]any{
		"body":    "its own",
		"headers": map[string]any{"X-Own": "yes"},
	}).ID
	finalRun(t, r.API, first)
	original := m.of(first)[0]
	for _, c := range []struct {
		name      string
		edit      any
		body, own string
		sameKey   bool
	}{
		{"the same", nil, "its own", "yes", false},
		{"another body", map[string]any{"body": "edited"}, "edited", "yes", false},
		{"other headers", map[string]any{"headers": map[string]any{"X-Own": "edited"}}, "its own", "edited", false},
		{"with the same keys", map[string]any{"same_key": true}, "its own", "yes", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := do[runView](t, r.API, "POST", "/v1/runs/"+first+"/rerun", c.edit)
			if run.RerunOf != first || run.ID == first {
				t.Fatalf("the rerun is %+v", run)
			}
			p := finalRun(t, r.API, run.ID)
			sent := m.of(run.ID)[0]
			if sent.body != c.body || sent.header.Get("X-Own") != c.own || p.RerunOf != first ||
				sent.header.Get("Punctual-Scheduled-For") != original.header.Get("Punctual-Scheduled-For") {
				t.Errorf("sent %+v", sent)
			}
			for _, name := range []string{"Webhook-Id", "Idempotency-Key"} {
				want := run.ID
				if c.sameKey {
					want = original.header.Get(name)
				}
				if got := sent.header.Get(name); got != want || p.Request.Headers[name] != want {
					t.Errorf("%s is %q, shown as %q, want %q", name, got, p.Request.Headers[name], want)
				}
			}
		})
	}
}
