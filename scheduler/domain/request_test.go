package domain

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/jobspec"
)

// seen is a request as its target received it.
type seen struct {
	Method, Path, Body string
	Header             http.Header
}

// send sends an attempt of the job with the given JSON, changed by change, and returns the request that arrives.
func send(t *testing.T, text string, change func(*Assignment)) seen {
	t.Helper()
	requests := make(chan seen, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{r.Method, r.URL.RequestURI(), string(body), r.Header}
	}))
	t.Cleanup(server.Close)
	client := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	t.Cleanup(client.Close)
	a := Assignment{
		RunID: uuid.MustParse(runID), Job: compiled(t, strings.ReplaceAll(text, "$URL", server.URL)),
		Trigger: TriggerSchedule, Attempt: 3, Fence: 1234567,
		ScheduledFor: instant(t, "03:00").In(time.FixedZone("", 7200)),
	}
	if change != nil {
		change(&a)
	}
	if result := client.Send(t.Context(), a.Request(Origin{})); !result.OK() {
		t.Fatalf("sending: %+v", result)
	}
	return <-requests
}

func checkHeaders(t *testing.T, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if has := strings.Join(got.Values(name), ", "); has != value {
			t.Errorf("%s: %q, want %q", name, has, value)
		}
	}
}

func TestRequestCarriesItsIdentity(t *testing.T) {
	headers := func(h map[string]string) map[string]string {
		all := map[string]string{
			"Webhook-Id": runID, "Idempotency-Key": jobID.String() + ":1791687600", "Punctual-Job": "job",
			"Punctual-Run": runID, "Punctual-Attempt": "3", "Punctual-Trigger": "schedule",
			"Punctual-Scheduled-For": "2026-10-11T03:00:00Z", "Punctual-Late": "",
			"Punctual-Caused-By":     "",
			"Punctual-Fencing-Token": "1234567", "Traceparent": "00-a28fcac620c2392d9504c535cd93629a-80c02993801033dd-00",
		}
		maps.Copy(all, h)
		return all
	}
	for _, c := range []struct {
		name, headers string
		change        func(*Assignment)
		want          map[string]string
	}{
		{"a slot in time", ``, nil, headers(nil)},
		{
			"a slot made late",
			``, func(a *Assignment) { a.Trigger, a.Late = TriggerCatchup, true },
			headers(map[string]string{"Punctual-Trigger": "catchup", "Punctual-Late": "true"}),
		},
		{
			"a manual run",
			``, func(a *Assignment) { a.Trigger = TriggerManual },
			headers(map[string]string{"Punctual-Trigger": "manual", "Idempotency-Key": runID}),
		},
		{
			"a run that an event caused",
			``, func(a *Assignment) { a.Trigger, a.CausedBy = TriggerEvent, jobID },
			headers(map[string]string{
				"Punctual-Trigger": "event", "Punctual-Caused-By": jobID.String(), "Idempotency-Key": runID,
			}),
		},
		{
			"a slot between seconds",
			``, func(a *Assignment) { a.ScheduledFor = instant(t, "03:00:00.25") },
			headers(map[string]string{"Punctual-Scheduled-For": "2026-10-11T03:00:00.25Z"}),
		},
		{"headers of the job do not replace them", `"headers":{"webhook-id":"x","PUNCTUAL-RUN":"x"},`, nil, headers(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := definition(t, `{"target":{`+c.headers+`"url":"http://127.0.0.1"}}`)
			if refused := d.Validate() != nil; refused != (c.headers != "") {
				t.Errorf("refused: %v", d.Validate())
			}
			// If such headers were stored all the same, they must not win.
			got := send(t, `{"target":{"url":"$URL/hook?x=1"}}`, func(a *Assignment) {
				a.Job.header = requestHeader(d.Target.Headers, false)
				if c.change != nil {
					c.change(a)
				}
			})
			if got.Method != "POST" || got.Path != "/hook?x=1" {
				t.Errorf("%s %s", got.Method, got.Path)
			}
			checkHeaders(t, got.Header, c.want)
		})
	}
}

func TestRequestBodyAndContentType(t *testing.T) {
	for _, c := range []struct {
		name, target  string
		body          string
		headers       map[string]string
		wantBody      string
		wantType      string
		wantKey, want string // a header and the value it must have
	}{
		{name: "no body has no type"},
		{name: "null is no body", target: `"body":null`},
		{
			name:   "an object is sent as JSON, as it was written",
			target: `"body":{"b": 1.50, "a":"<é>"}`, wantBody: `{"b": 1.50, "a":"<é>"}`, wantType: "application/json",
		},
		{name: "so is an array", target: `"body":[1, 2]`, wantBody: `[1, 2]`, wantType: "application/json"},
		{name: "so is a number", target: `"body":0`, wantBody: `0`, wantType: "application/json"},
		{name: "so is false", target: `"body":false`, wantBody: `false`, wantType: "application/json"},
		{
			name:   "a string is sent as it is, and claims no type",
			target: `"body":"a=1\u0026b=\"2\"\n"`, wantBody: "a=1&b=\"2\"\n",
		},
		{name: "an empty string is no body", target: `"body":""`},
		{
			name:     "the job's own type wins",
			target:   `"body":{},"headers":{"content-type":"application/cloudevents+json"}`,
			wantBody: `{}`, wantType: "application/cloudevents+json",
		},
		{
			name:   "a string has the job's type",
			target: `"body":"<a/>","headers":{"Content-Type":"text/xml"}`, wantBody: `<a/>`, wantType: "text/xml",
		},
		{name: "the job's headers are sent", target: `"headers":{"x-key":"1"}`, wantKey: "X-Key", want: "1"},
		{
			name:   "a run's body replaces the job's",
			target: `"body":{"job":1},"headers":{"X-Key":"1"}`, body: `{"run":1}`,
			wantBody: `{"run":1}`, wantType: "application/json", wantKey: "X-Key", want: "1",
		},
		{
			name:   "a run's body replaces none",
			target: `"headers":{"X-Key":"1"}`, body: `[]`,
			wantBody: `[]`, wantType: "application/json", wantKey: "X-Key", want: "1",
		},
		{
			name:   "a run's text keeps the job's type",
			target: `"body":"a","headers":{"Content-Type":"text/csv"}`, body: `"b"`, wantBody: `b`, wantType: "text/csv",
		},
		{name: "a run's null leaves out the job's body", target: `"body":{"job":1}`, body: `null`},
		{
			name:   "a run's headers replace the job's",
			target: `"body":{"job":1},"headers":{"X-Key":"1","Content-Type":"x/y"}`, headers: map[string]string{"x-other": "2"},
			wantBody: `{"job":1}`, wantType: "application/json", wantKey: "X-Other", want: "2",
		},
		{
			name:   "a run's lack of headers too",
			target: `"headers":{"X-Key":"1"}`, headers: map[string]string{}, wantKey: "X-Key", want: "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := `{"target":{"url":"$URL/"`
			if c.target != "" {
				text += "," + c.target
			}
			got := send(t, text+`}}`, func(a *Assignment) {
				a.Headers = c.headers
				if c.body != "" {
					a.Body = []byte(c.body)
				}
			})
			if got.Body != c.wantBody {
				t.Errorf("body %q, want %q", got.Body, c.wantBody)
			}
			if value := got.Header.Get("Content-Type"); value != c.wantType {
				t.Errorf("Content-Type %q, want %q", value, c.wantType)
			}
			if c.wantKey != "" && got.Header.Get(c.wantKey) != c.want {
				t.Errorf("%s: %q, want %q", c.wantKey, got.Header.Get(c.wantKey), c.want)
			}
			if got.Header.Get("Webhook-Id") == "" {
				t.Error("no Webhook-Id")
			}
		})
	}
}

func TestATargetIsCalledByTheNameOfTheJob(t *testing.T) {
	t.Parallel()
	a := Assignment{
		RunID: uuid.New(), Attempt: 1,
		Job: compiled(t, `{"name":"a","target":{"url":"http://127.0.0.1/a","host":"billing.internal:8443"}}`),
	}
	shown := a.Sent(Origin{}, time.Time{})
	if r := a.Request(Origin{}); r.Host != "billing.internal:8443" || r.URL.Host != "127.0.0.1" ||
		shown.Headers["Host"] != r.Host || shown.URL != "http://127.0.0.1/a" {
		t.Errorf("%s at %s, shown as %+v", r.Host, r.URL, shown)
	}
}

func TestRequestHasTheJobsMethodAndTimeout(t *testing.T) {
	t.Parallel()
	a := Assignment{Job: compiled(t, `{"timeout":"7s","target":{"url":"http://127.0.0.1/a","method":"DELETE"}}`)}
	r := a.Request(Origin{})
	if r.Method != "DELETE" || r.Timeout != 7*time.Second || r.URL.String() != "http://127.0.0.1/a" {
		t.Errorf("%s %s within %s", r.Method, r.URL, r.Timeout)
	}
}

// All runs of a job share its prepared request, so an override must not write to it.
func TestOverridesLeaveTheJobAlone(t *testing.T) {
	t.Parallel()
	job := compiled(t, `{"target":{"url":"http://127.0.0.1/a","headers":{"X-Key":"1"},"body":{"job":1}}}`)
	before, err := json.Marshal(Assignment{Job: job}.Request(Origin{}))
	must(t, err)
	_ = Assignment{Job: job, Body: []byte(`{"run":1}`), Headers: map[string]string{"X-Key": "2"}}.Request(Origin{})
	after, err := json.Marshal(Assignment{Job: job}.Request(Origin{}))
	must(t, err)
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func TestTheRequestThatIsShownIsTheOneThatIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, target string
		own          string // the run's own body
		body         string // the body that is shown
	}{
		{"JSON", `{"url":"http://x/","body":{"a":"<&>"}}`, "", `{"a":"<&>"}`},
		{"text", `{"url":"http://x/","body":"a <&> \"b\""}`, "", `"a <&> \"b\""`},
		{"text that is JSON", `{"url":"http://x/","body":"{}"}`, "", `"{}"`},
		{"none", `{"url":"http://x/"}`, "", ""},
		{"of the run itself", `{"url":"http://x/","body":"the job's"}`, `{"n":1}`, `{"n":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Assignment{RunID: uuid.New(), Job: compiled(t, `{"name":"a","target":`+c.target+`}`), Attempt: 1, Fence: 7}
			if c.own != "" {
				a.Body = []byte(c.own)
			}
			s := a.Sent(Origin{PublicURL: "https://punctual.example"}, time.Unix(1e9, 0))
			if string(s.Body) != c.body || s.Body != nil && !json.Valid(s.Body) || s.URL != "http://x/" || s.Method != "POST" {
				t.Errorf("shown %s %s %s", s.Method, s.URL, s.Body)
			}
			if s.Headers["Webhook-Timestamp"] != "1000000000" || s.Headers["Webhook-Signature"] != jobspec.Mask ||
				s.Headers["Punctual-Fencing-Token"] != "7" {
				t.Errorf("headers %v", s.Headers)
			}
		})
	}
}
