package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/tenants"
)

// hooks is a server that receives notices. It answers with the status that ?status= names.
type hooks struct {
	url string
	mu  sync.Mutex
	got []string // paths and bodies
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // on an error the test finds the rest missing
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, r.URL.Path+" "+string(body))
		if r.URL.Query().Get("status") == "503" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Repeat("busy ", 100)) // the client may be gone
		}
	}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *hooks) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// transport lets the API send test notices, to public addresses and to those that are allowed.
func transport(t *testing.T, allowed []netip.Prefix) func(*Config) {
	t.Helper()
	return func(c *Config) {
		c.Guard = guard.New(allowed)
		client := delivery.New(delivery.Config{Guard: c.Guard})
		t.Cleanup(client.Close)
		c.Transport = scheduler.NewTransport(c.Store.Secrets, client, c.Mailer, c.Origin)
	}
}

func TestATestNoticeIsSentAtOnceAndAnsweredFor(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	s := serve(t, transport(t, guard.Loopback))
	must(t, s.store.Secrets.OpenVault(t.Context()))
	test := func(body string) []NotifyResult {
		t.Helper()
		return into[NotifyResults](s.do("POST", "/v1/notify/test", body).want(200)).Data
	}
	if got := test(""); len(got) != 0 {
		t.Errorf("nobody is told by default, and got %+v", got)
	}
	s.do("PATCH", "/v1/tenant", `{"notify":[{"on":["dead"],"url":"`+h.url+`/default"}]}`).want(200)
	if got := test(""); len(got) != 1 || !got[0].Delivered || *got[0].HTTPStatus != 200 ||
		got[0].Format != jobspec.FormatJSON || got[0].Error != nil {
		t.Errorf("%+v", got)
	}
	s.create(`{"name":"own","target":{"url":"` + h.url + `"},` +
		`"notify":[{"on":["dead"],"format":"slack","url":"` + h.url + `/slack"},` +
		`{"on":["late"],"url":"` + h.url + `/down?status=503"}]}`)
	s.create(`{"name":"silent","target":{"url":"` + h.url + `"},"notify":[]}`)
	s.create(`{"name":"usual","target":{"url":"` + h.url + `"}}`)
	got := test(`{"job":"own"}`)
	if len(got) != 2 || !got[0].Delivered || got[1].Delivered || *got[1].HTTPStatus != 503 ||
		*got[1].Reason != "http_5xx" || len(*got[1].Response) != 200 {
		t.Errorf("%+v", got)
	}
	if got := test(`{"job":"silent"}`); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := test(`{"job":"usual"}`); len(got) != 1 || got[0].URL != h.url+"/default" {
		t.Errorf("%+v", got)
	}
	s.do("PUT", "/v1/secrets/pagerduty-key", `{"value":"0123456789abcdef"}`)
	if got := test(`{"entry":{"format":"pagerduty","url":"` + h.url + `/pd","secret":"pagerduty-key"}}`); len(got) != 1 ||
		!got[0].Delivered {
		t.Errorf("%+v", got)
	}
	if got := test(`{"entry":{"format":"pagerduty","url":"` + h.url + `/pd","secret":"missing"}}`); len(got) != 1 ||
		got[0].Delivered || *got[0].Reason != "auth" {
		t.Errorf("%+v", got)
	}
	var opened, resolved int
	for _, r := range h.requests() {
		if strings.HasPrefix(r, "/pd") && strings.Contains(r, `"routing_key":"0123456789abcdef"`) {
			opened += strings.Count(r, `"event_action":"trigger"`)
			resolved += strings.Count(r, `"event_action":"resolve"`)
		}
	}
	if opened != 1 || resolved != 1 {
		t.Errorf("PagerDuty gets %q", h.requests())
	}
	if runs := s.items("/v1/runs"); len(runs) != 0 {
		t.Error("a test leaves a run")
	}
}

func TestATestNoticeGoesNowhereElse(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	s := serve(t, transport(t, nil))
	s.do("POST", "/v1/notify/test", `{"entry":{"url":"`+h.url+`"}}`).blames("body.entry.url")
	s.do("PATCH", "/v1/tenant", `{"notify":[{"on":["dead"],"url":"`+h.url+`"}]}`).blames("body.notify[0].url")
	// A name that resolves to this machine is refused when the connection is made.
	_, port, _ := strings.Cut(strings.TrimPrefix(h.url, "http://"), ":")
	got := s.do("POST", "/v1/notify/test", `{"entry":{"url":"http://localhost:`+port+`"}}`)
	if got.status != 422 && !strings.Contains(string(got.body), "blocked_address") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if len(h.requests()) > 0 {
		t.Errorf("it got %q", h.requests())
	}
}

// A job that asks for it has the starts and successes of its runs sent to a server, signed as all requests are.
func TestTheLifeOfRunsIsSent(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	s := serve(t)
	must(t, s.store.Secrets.OpenVault(t.Context()))
	s.create(`{"name":"alive","target":{"url":"` + h.url + `/target"},` +
		`"notify":[{"on":["started","succeeded"],"url":"` + h.url + `/life"}]}`)
	s.dispatch(guard.New(guard.Loopback), make(chan domain.Outcome, 100))
	s.do("POST", "/v1/jobs/alive/trigger", "").want(202)
	var told []string
	until(t, "the start and the success to be told", func() bool {
		told = nil
		for _, r := range h.requests() {
			body, is := strings.CutPrefix(r, "/life ")
			var batch notice.Batch
			if is && json.Unmarshal([]byte(body), &batch) == nil {
				for _, e := range batch.Events {
					told = append(told, string(e.Event)+" "+e.Job)
				}
			}
		}
		return len(told) > 1
	})
	if !slices.Equal(told, []string{"started alive", "succeeded alive"}) {
		t.Errorf("told of %q by %q", told, h.requests())
	}
}

func TestWhatIsWrongWithNotify(t *testing.T) {
	t.Parallel()
	s := serve(t, transport(t, guard.Loopback))
	for body, want := range map[string][]string{
		`{"notify":[{"on":["died"],"url":"https://x.example/"}]}`: {"body.notify[0].on[0]"},
		`{"notify":[{"on":["dead","dead"],"format":"discord",` +
			`"url":"ftp://x"}]}`: {"body.notify[0].on[1]", "body.notify[0].format", "body.notify[0].url"},
		`{"notify":[{"on":[],` +
			`"format":"pagerduty"}]}`: {"body.notify[0].on", "body.notify[0].secret"},
		`{"notify":[{"on":["dead"],"format":"slack","secret":"x","url":"https://x.example/"}]}`: {"body.notify[0].secret"},
		`{"notify":[{"on":["dead"],"format":"alertmanager","url":"https://x.example/?a=1"}]}`:   {"body.notify[0].url"},
		`{"notify":[{"on":["dead","succeeded","started"],` +
			`"format":"slack","url":"https://x.example/"}]}`: {"body.notify[0].on[1]", "body.notify[0].on[2]"},
		`{"notify":[{"on":["dead"]}],` +
			`"weight":3}`: {"body.notify[0].url", "body.weight"},
		`{"notify":[{"on":["dead"],"format":"pagerduty","secret":"no such name"}]}`: {"body.notify[0].secret"},
		`{"notify":[{"on":["dead"],"format":"pagerduty","secret":"missing"}]}`:      {"body.notify[0].secret"},
		`{"notify":[{"on":["dead"],"url":"https://x.example/","unknown":1}]}`:       {"body.notify[0].unknown"},
	} {
		got := locations(s.do("PATCH", "/v1/tenant", body).code(problem.CodeInvalid))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	s.do("POST", "/v1/notify/test", `{"job":"x","entry":{"url":"https://x.example/"}}`).code(problem.CodeInvalid)
	s.do("POST", "/v1/notify/test", `{"job":"missing"}`).code(problem.CodeNotFound)
	s.do("POST", "/v1/jobs",
		`{"name":"j","target":{"url":"https://x.example/"},"expect_success_within":"0s"}`).code(problem.CodeInvalid)
}

func TestATenantsDefaultIsItsAdminsAndSaidByItsJobs(t *testing.T) {
	t.Parallel()
	s := guarded(t, transport(t, guard.Loopback))
	s.tenant("alpha")
	admin, editor := s.as("alpha", auth.RoleAdmin), s.as("alpha", auth.RoleEditor)
	const list = `{"notify":[{"on":["failing","recovered"],"format":"slack","url":"https://hooks.example/x"}]}`
	editor.do("PATCH", "/v1/tenant", list).want(403)
	admin.do("PATCH", "/v1/tenant", list).want(200)
	admin.do("PATCH", "/v1/tenant", `{}`).want(200)
	if got := editor.do("GET", "/v1/tenant", "").want(200).fields()["notify"].([]any); len(got) != 1 {
		t.Errorf("the default is %v", got)
	}
	for name, fields := range map[string]string{"tenant": ``, "job": `,"notify":[]`} {
		editor.create(`{"name":"by-` + name + `","target":{"url":"https://x.example/"}` + fields + `}`)
		got := editor.do("GET", "/v1/jobs/by-"+name, "").want(200).fields()
		if _, own := got["notify"]; got["notify_from"] != name || own != (name == "job") {
			t.Errorf("by-%s: notify %v from %v", name, got["notify"], got["notify_from"])
		}
	}
	if got := editor.do("PATCH", "/v1/jobs/by-job", `{"notify":null}`).want(200).fields(); got["notify_from"] != "tenant" {
		t.Errorf("restored: %v", got["notify_from"])
	}
	admin.do("PATCH", "/v1/tenant", `{"notify":null}`).want(200)
	if got := editor.do("GET", "/v1/tenant", "").want(200).fields()["notify"].([]any); len(got) != 0 {
		t.Errorf("the default is %v", got)
	}
}

func TestTheCommandLineSetsADefault(t *testing.T) {
	t.Parallel()
	set := func(text string) (tenants.Tenant, error) {
		got := tenants.Tenant{Weight: 1}
		err := SetTenant(&got, map[string]string{"notify": text})
		return got, err
	}
	if got, err := set(`[{"on":["dead"],"url":"https://x.example/"}]`); err != nil || len(got.Notify) != 1 ||
		got.Notify[0].URL != "https://x.example/" {
		t.Errorf("%+v (%v)", got, err)
	}
	for text, want := range map[string]string{
		`[{`: "--notify", `[{"on":["dead"]}]`: "--notify[0].url", `"x"`: "--notify",
	} {
		if _, err := set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for name, text := range map[string]string{"max-jobs": "many", "weight": "0", "min-interval": "5", "max-key-age": "soon"} {
		err := SetTenant(&tenants.Tenant{Weight: 1}, map[string]string{strings.ReplaceAll(name, "-", "_"): text})
		if err == nil || !strings.HasPrefix(err.Error(), "--"+name+"="+text+": ") {
			t.Errorf("%s %s: %v", name, text, err)
		}
	}
}
