package domain

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
)

// filled returns the request of an attempt of a job whose zone is Europe/Berlin.
func filled(t testing.TB, target string, change func(*Assignment)) wire.Request {
	t.Helper()
	job := compiled(t,
		`{"name":"nightly","schedule":{"cron":"0 3 * * *","timezone":"Europe/Berlin"},"target":`+target+`}`)
	a := Assignment{
		RunID: uuid.MustParse(runID), Job: job, Trigger: TriggerSchedule, Attempt: 2, Fence: 9,
		ScheduledFor: instant(t, "01:00"),
	}
	if change != nil {
		change(&a)
	}
	return a.Request(Origin{})
}

func TestPlaceholdersOfARequestAreFilledIn(t *testing.T) {
	const whole = `{"url":"http://host.example:8080/{{job}}/{{scheduled_for_local|date}}/a%2Fb?at={{scheduled_for_local}}&n={{attempt}}&x=%7B%7B",` +
		`"headers":{"X-Slot":"{{scheduled_for|unix}};{{run}}"},"body":{"day":"{{scheduled_for|date}}","run":["{{run}}"],"{{job}}":1}}`
	const path = "http://host.example:8080/nightly/2026-10-11/a%2Fb?at=2026-10-11T03:00:00%2B02:00&n=2&x=%7B%7B"
	for _, c := range []struct {
		name, target, url, body string
		change                  func(*Assignment)
		headers                 map[string]string
	}{
		{
			name: "in the URL, header values and the strings of the body", target: whole, url: path,
			body:    `{"day":"2026-10-11","run":["` + runID + `"],"{{job}}":1}`,
			headers: map[string]string{"X-Slot": "1791680400;" + runID, "Content-Type": "application/json"},
		},
		{
			name:   "in a body that is a text",
			target: `{"url":"http://host.example","headers":{"Content-Type":"text/csv"},"body":"{{job}},{{scheduled_for_local}}\n"}`,
			url:    "http://host.example", body: "nightly,2026-10-11T03:00:00+02:00\n",
			headers: map[string]string{"Content-Type": "text/csv"},
		},
		{
			name:   "in a form, percent-encoded",
			target: `{"url":"http://host.example","headers":{"content-type":"application/x-www-form-urlencoded; charset=utf-8"},"body":"at={{scheduled_for_local}}"}`,
			url:    "http://host.example", body: "at=2026-10-11T03:00:00%2B02:00",
		},
		{
			name:   "not in the body and headers of a trigger, which are data",
			target: whole, url: path, body: `["{{attempt}}","{{{{ {{ name }}"]`,
			headers: map[string]string{"X-Own": "{{job}} {{ name }}", "X-Slot": ""},
			change: func(a *Assignment) {
				a.Body = []byte(`["{{attempt}}","{{{{ {{ name }}"]`)
				a.Headers = map[string]string{"X-Own": "{{job}} {{ name }}"}
			},
		},
		{
			name:   "in a body that is made of the job's own, with data in which braces are escaped",
			target: whole, url: path, body: `{"day":"2026-10-11","upstream":{"result":"{{job}}"}}`,
			headers: map[string]string{"X-Slot": "1791680400;" + runID},
			change: func(a *Assignment) {
				a.Body = []byte(`{"day":"{{scheduled_for|date}}","upstream":{"result":"{{{{job}}"}}`)
				a.Template = true
			},
		},
		{
			name:   "in the job's headers beside a body of a trigger",
			target: whole, url: path, body: `[1]`, headers: map[string]string{"X-Slot": "1791680400;" + runID},
			change: func(a *Assignment) { a.Body = []byte(`[1]`) },
		},
		{
			name:   "of a job without any, not in what a trigger gives",
			target: `{"url":"http://host.example/","body":{"job":1}}`, url: "http://host.example/", body: `{"a":"{{job}}"}`,
			change: func(a *Assignment) { a.Body = []byte(`{"a":"{{job}}"}`) },
		},
		{
			name:   "a replay has the slot of the run that died",
			target: `{"url":"http://host.example/{{scheduled_for|unix}}"}`, url: "http://host.example/1791680400",
			change: func(a *Assignment) { a.Trigger, a.IdempotencyKey = TriggerReplay, "key" },
		},
		{
			name:   "not in a notice, which quotes others",
			target: `{"url":"http://host.example/"}`, url: "http://host.example/", body: `{"error":"{{job}} {{rubbish"}`,
			change: func(a *Assignment) { a.Trigger, a.Body = TriggerNotify, []byte(`{"error":"{{job}} {{rubbish"}`) },
		},
		{
			name: "only a query", target: `{"url":"http://host.example?run={{run}}"}`, url: "http://host.example?run=" + runID,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := filled(t, c.target, c.change)
			if r.URL.String() != c.url ||
				r.URL.Scheme+"://"+r.URL.Host+r.URL.RequestURI() != strings.Replace(c.url, "example?", "example/?", 1) &&
					r.URL.Path != "" {
				t.Errorf("URL %s, want %s", r.URL, c.url)
			}
			if string(r.Body) != c.body {
				t.Errorf("body %s, want %s", r.Body, c.body)
			}
			checkHeaders(t, r.Header, c.headers)
		})
	}
}

// All runs of a job share its prepared request, so filling in placeholders must not write to it.
func TestFillingInLeavesTheJobAlone(t *testing.T) {
	t.Parallel()
	job := compiled(t, `{"name":"j","target":{"url":"http://127.0.0.1/{{attempt}}","headers":{"X-Key":"{{attempt}}"},"body":["{{attempt}}"]}}`)
	for attempt, want := range []string{"0", "1", "2", "0"} {
		r := Assignment{Job: job, Attempt: attempt % 3}.Request(Origin{})
		if r.URL.Path != "/"+want || r.Header["X-Key"][0] != want || string(r.Body) != `["`+want+`"]` {
			t.Errorf("attempt %s: %s %v %s", want, r.URL, r.Header, r.Body)
		}
	}
}

func TestPlaceholdersAreCheckedWhenTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ name, target, field, says string }{
		{"a misspelt one in the URL", `{"url":"http://h.example/{{slot}}"}`, "target.url", `"{{slot}}" is not a placeholder`},
		{"an unknown form", `{"url":"http://h.example/?{{scheduled_for|iso}}"}`, "target.url", `no form "iso"`},
		{"as the host", `{"url":"http://{{job}}/"}`, "target.url", "path and the query only"},
		{"in the host", `{"url":"http://{{job}}.h.example/"}`, "target.url", "path and the query only"},
		{"after a host without a path", `{"url":"http://h.example{{job}}"}`, "target.url", "path and the query only"},
		{"as the port", `{"url":"http://h.example:{{attempt}}/"}`, "target.url", "path and the query only"},
		{"as the user", `{"url":"http://{{job}}@h.example/"}`, "target.url", "path and the query only"},
		{"as the scheme", `{"url":"{{job}}://h.example/"}`, "target.url", "path and the query only"},
		{"as the whole", `{"url":"{{job}}"}`, "target.url", "path and the query only"},
		{"a user before it", `{"url":"http://u@h.example/{{job}}"}`, "target.url", "user"},
		{"in a fragment", `{"url":"http://h.example/#{{job}}"}`, "target.url", "fragment"},
		{"literal braces in a URL", `{"url":"http://h.example/{{{{{{job}}"}`, "target.url", "percent-encoded"},
		{
			"a URL that becomes too long",
			`{"url":"http://h.example/` + strings.Repeat("{{job}}", 20) + `"}`, "target.url", "can become",
		},
		{"in a header", `{"headers":{"X-Slot":"{{ run }}"}}`, "target.headers.X-Slot", "did you mean {{run}}"},
		{
			"a header that becomes too long",
			`{"headers":{"X-Slot":"` + strings.Repeat("{{job}}", 100) + `"}}`, "target.headers.X-Slot",
			"can become",
		},
		{"deep in the body", `{"body":{"a":[{"b":"{{run|date}}"}]}}`, "target.body", "have forms"},
		{"escaped in the body", `{"body":["\u007B\u007Brum}}"]}`, "target.body", "{{rum}}"},
		{"in a text", `{"body":"hello {{name}}"}`, "target.body", "{{name}}"},
		{"a body that becomes too large", `{"body":"` + strings.Repeat("{{job}}", 3000) + `"}`, "target.body", "can become"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			problems := definition(t, `{"target":`+c.target+`}`).Validate()
			if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Message, c.says) {
				t.Errorf("%v, want %s: … %s …", problems, c.field, c.says)
			}
		})
	}
	if problems := jobspec.ValidateRequest(
		"", map[string]string{"X-A": "{{nope}}"}, json.RawMessage(`["{{nope}}"]`),
	); len(problems) != 0 {
		t.Errorf("of a trigger, which gives data: %v", problems)
	}
}

// FuzzTargetURL checks that a URL keeps its scheme and host, and stays a URL that may be called, whatever its
// placeholders are filled with.
func FuzzTargetURL(f *testing.F) {
	for _, seed := range []string{
		"http://h.example/{{job}}", "https://h.example:8443/a/{{run}}?x={{scheduled_for_local}}&y={{job}}",
		"http://h.example?{{job}}", "http://h.example/%2F{{job}}/..//{{attempt}}", "http://{{job}}/",
		"http://[::1]/{{job}}", "http://h.example/{{job}}?{{job}}?{{job}}", "http:///{{job}}", "http://h.example/{{{{{{job}}",
	} {
		f.Add(seed, "nightly")
	}
	f.Add("http://h.example/{{job}}", "../@evil.example:1/?#%")
	f.Fuzz(func(t *testing.T, raw, name string) {
		u, err := jobspec.ParseAddress(raw)
		if err != nil {
			return
		}
		parts, err := jobspec.NewFills(jobspec.Target{URL: raw}, u)
		must(t, err)
		r := wire.Request{URL: u.URL}
		if parts != nil {
			job := &Job{Definition: jobspec.Definition{Name: name}, Timetable: &jobspec.Timetable{}}
			parts.Fill(&r, Assignment{Job: job}.values())
		}
		again, err := url.Parse(r.URL.String())
		if err != nil || again.Host != u.Host || again.Scheme != u.Scheme || again.User != nil || again.Fragment != "" {
			t.Fatalf("%q with %q became %q (%v)", raw, name, r.URL, err)
		}
		head, _, _ := strings.Cut(raw, "{{")
		if parts != nil && !strings.HasPrefix(strings.ToLower(r.URL.String()), strings.ToLower(u.Scheme+"://"+u.Host)) {
			t.Fatalf("%q became %q", head, r.URL)
		}
		if len(name) <= jobspec.MaxName && jobspec.NameForm.MatchString(name) {
			if _, err := wire.CheckURL(r.URL.String()); err != nil {
				t.Fatalf("%q with %q became %q: %v", raw, name, r.URL, err)
			}
		}
	})
}
