package httpapi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/api"
	"punctual/httpapi/problem"
)

func TestEveryBadFieldIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct {
		name, body string
		want       []string // sorted
	}{
		{"an empty object lacks what is required", `{}`, []string{"body.name", "body.target.url"}},
		{"null is absent", `{"name":null,"target":null,"timeout":null}`, []string{"body.name", "body.target.url"}},
		{"every field is wrong", `{"name":"a b","description":5,"labels":{"-":"x","ok":null},` +
			`"schedule":{"cron":"61 * * * *","timezone":"Mars","starts_at":"soon"},
			"jitter":"-1s","missed":{"policy":"never","tolerance":"x","window":[]},` +
			`"concurrency_policy":"maybe","expires_after":{},
			"target":{"url":"ftp://x","method":"get","headers":{"Host":"x"}},"timeout":"25h",
			"retry":{"max_attempts":101,"initial_backoff":"y","multiplier":0.5,"max_backoff":true,"give_up_on":[200,"x"]},` +
			`"queue":"a b","priority":"urgent","paused":"no"}`, []string{
			"body.concurrency_policy", "body.description", "body.expires_after", "body.jitter", "body.labels.-",
			"body.labels.ok", "body.missed.policy", "body.missed.tolerance", "body.missed.window", "body.name", "body.paused",
			"body.priority", "body.queue", "body.retry.give_up_on[0]", "body.retry.give_up_on[1]", "body.retry.initial_backoff",
			"body.retry.max_attempts", "body.retry.max_backoff", "body.retry.multiplier", "body.schedule.cron",
			"body.schedule.starts_at", "body.schedule.timezone", "body.target.headers.Host", "body.target.method",
			"body.target.url", "body.timeout",
		}},
		{
			"a field of the wrong type counts as present",
			`{"name":"n","schedule":{"cron":5,"timezone":"Europe/Berlin"},"jitter":"5s","target":{"url":true}}`,
			[]string{"body.schedule.cron", "body.target.url"},
		},
		{
			"objects of the wrong type", `{"name":"n","schedule":"@daily","target":[],"retry":5,"labels":"x","missed":null}`,
			[]string{"body.labels", "body.retry", "body.schedule", "body.target"},
		},
		{
			"empty and zero are not absent",
			`{"name":"n","schedule":{"cron":""},"target":{"url":"http://example.com/","method":""},` +
				`"retry":{"max_attempts":0,"multiplier":0.0},"queue":"","timeout":"","description":""}`,
			[]string{
				"body.queue", "body.retry.max_attempts", "body.retry.multiplier", "body.schedule.cron", "body.target.method",
				"body.timeout",
			},
		},
		{
			"empty secrets are not absent, but null is",
			`{"name":"n","target":{"url":"http://example.com/","auth":{"type":"bearer","value":""},` +
				`"secret_headers":{"X-Key":""}},"notify":[{"on":["dead"],"url":"http://example.com/","secret":null,"format":""}]}`,
			[]string{"body.notify[0].format", "body.target.auth.value", "body.target.secret_headers.X-Key"},
		},
		{
			"names with dots and brackets",
			`{"name":"n","labels":{"app.kubernetes.io/name":5,"a[0]":6},"b.c":7,"queue":8,"target":{"url":9}}`,
			[]string{
				"body.b.c", "body.labels.a[0]", "body.labels.app.kubernetes.io/name", "body.queue", "body.target.url",
			},
		},
		{
			"numbers for durations and fractions for counts",
			`{"name":"n","target":{"url":"http://example.com/"},"timeout":30,"jitter":0,"retry":{"max_attempts":1.5}}`,
			[]string{"body.jitter", "body.retry.max_attempts", "body.timeout"},
		},
		{
			"numbers out of range",
			`{"name":"n","target":{"url":"http://example.com/"},` +
				`"retry":{"max_attempts":99999999999999999999,"multiplier":1e999}}`,
			[]string{"body.retry.max_attempts", "body.retry.multiplier"},
		},
		{
			"names are exact", `{"Name":"n","TARGET":{"url":"http://example.com/"}}`,
			[]string{"body.Name", "body.TARGET", "body.name", "body.target.url"},
		},
		{
			"fields that appear twice",
			`{"name":"n","name":"m","labels":{"a":"1","a":"2"},` +
				`"target":{"url":"http://example.com/","url":"http://example.com/"}}`,
			[]string{"body.labels.a", "body.name", "body.target.url"},
		},
		{
			"what the database cannot store",
			`{"name":"n","description":"\u0000","target":{"url":"http://example.com/","body":{"a":"\u0000"}}}`,
			[]string{"body.description", "body.target.body"},
		},
		{
			"half of a surrogate pair", `{"name":"n","target":{"url":"http://example.com/","body":"\ud83d"}}`,
			[]string{"body.target.body"},
		},
		{
			"too many",
			`{"name":"n","target":{"url":"http://example.com/"},` +
				`"retry":{"give_up_on":[` + strings.Repeat("404,", 1000) + `404]}}`,
			[]string{"body.retry.give_up_on"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := locations(s.in(t).do("POST", "/v1/jobs", c.body).code(problem.CodeInvalid))
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnknownFieldsSayWhatWasMeant(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for field, want := range map[string]string{
		"shedule":   "unknown field; did you mean schedule?",
		"timezone":  "unknown field; did you mean schedule.timezone?",
		"url":       "unknown field; did you mean target.url?",
		"version":   "unknown field: it is set by the server; leave it out",
		"last_run":  "unknown field: it is set by the server; leave it out",
		"something": "unknown field",
	} {
		body := fmt.Sprintf(`{%q:1,"name":"n","target":{"url":"http://example.com/"}}`, field)
		if diff := cmp.Diff([]problem.FieldError{problem.At("body."+field, want)},
			s.do("POST", "/v1/jobs", body).code(problem.CodeInvalid).Errors); diff != "" {
			t.Error(diff)
		}
	}
}

func TestErrorsNeverRepeatSecretsOrLargeValues(t *testing.T) {
	t.Parallel()
	s := serve(t)
	secret, large := "hunter2-hunter2", strings.Repeat("A", 10_000)
	r := s.do("POST", "/v1/jobs", `{"name":"`+large+`","`+large+`":1,"timeout":"`+large+`",`+
		`"schedule":{"cron":"`+large+`","timezone":"`+large+`"},"priority":"`+large+`",
		"target":{"url":"http://u:`+secret+`@example.com/","method":"`+secret+`",`+
		`"headers":{"Authorization":"Bearer `+secret+`\n","X":["`+secret+`"]},"body":"\u0000`+secret+`",`+
		`"auth":{"type":"bearer","value":{"x":"`+secret+`"}},"secret_headers":{"Y":["`+secret+`"]},"tls":"`+secret+`"}}`).want(422)
	if bytes.Contains(r.body, []byte(secret)) || len(r.body) > 8000 {
		t.Errorf("%d bytes: %s", len(r.body), r.body)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const path = "/v1/jobs"
	for _, c := range []struct {
		name, body, header, detail string
		code                       problem.Code
	}{
		{"no body", "", "", "empty", problem.CodeMalformed},
		{"white space", " \n", "", "empty", problem.CodeMalformed},
		{"cut off", `{"name":`, "", "byte", problem.CodeMalformed},
		{"a comma too many", "{\n \"name\":\"n\",}", "", "line 2, column 13", problem.CodeMalformed},
		{"two values", `{}{}`, "", "byte 2", problem.CodeMalformed},
		{"bytes that are not UTF-8", "{\"name\":\"\xff\"}", "", "UTF-8 at byte 9", problem.CodeMalformed},
		{"a NaN", `{"retry":{"multiplier":NaN}}`, "", "", problem.CodeMalformed},
		{
			"nests deep", `{"target":{"body":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, "", "80 levels",
			problem.CodeMalformed,
		},
		{"nests very deep", strings.Repeat("[", 500_000), "", "80 levels", problem.CodeMalformed},
		{"a list", `[]`, "", "", problem.CodeInvalid},
		{"a string", `"x"`, "", "", problem.CodeInvalid},
		{"null", `null`, "", "", problem.CodeInvalid},
		{"a form", `name=n`, "Content-Type: application/x-www-form-urlencoded", "application/json", problem.CodeMediaType},
		{"plain text", minimal("n"), "Content-Type: text/plain", "", problem.CodeMediaType},
		{"a merge patch where none is taken", minimal("n"), "Content-Type: application/merge-patch+json", "", problem.CodeMediaType},
		{"no type", minimal("n"), "Content-Type: ", "", problem.CodeMediaType},
		{"rubbish for a type", minimal("n"), "Content-Type: ;;", "", problem.CodeMediaType},
		{"another charset", minimal("n"), "Content-Type: application/json; charset=latin1", "", problem.CodeMediaType},
		{"compressed", minimal("n"), "Content-Encoding: gzip", "", problem.CodeMediaType},
		{"a byte too many", `{"description":"` + strings.Repeat("x", api.MaxBody) + `"}`, "", "1048576", problem.CodeTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = append(headers, c.header)
			}
			p := s.in(t).do("POST", path, c.body, headers...).code(c.code)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("detail %q does not say %q", p.Detail, c.detail)
			}
		})
	}
	s.do("POST", path, minimal("n"), "Content-Type: application/json; charset=UTF-8").want(201)
	s.do("POST", path, strings.Repeat(" ", api.MaxBody-len(minimal("m")))+minimal("m")).want(201)
	s.do("POST", "/v1/jobs/batch",
		`{"jobs":[`+minimal("b1")+`],"x":"`+strings.Repeat("x", 2*api.MaxBody)+`"}`).code(problem.CodeInvalid)
	s.do("POST", "/v1/jobs/batch", `{"x":"`+strings.Repeat("x", maxBatchBody)+`"}`).code(problem.CodeTooLarge)
	s.do("POST", "/v1/jobs/n/trigger", "x", "Content-Type: text/plain").code(problem.CodeMediaType)
}
