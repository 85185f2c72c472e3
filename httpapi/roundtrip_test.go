package httpapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
)

// Writing back a job as it was read changes nothing. Writing it back with one edited field changes only that field.
func TestAPutOfWhatAGetGaveChangesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"token", "certificate"} {
		s.do("PUT", "/v1/secrets/"+name, `{"value":"planted"}`).want(201)
	}
	s.do("PUT", "/v1/limits/warehouse", `{"max_running":1}`).want(201)
	schemas := dig(static200(t, "/openapi.json").fields(), "components", "schemas").(map[string]any)
	for name, job := range map[string]string{
		"cron":    `"schedule":{"cron":"0 3 * * mon-fri","timezone":"Europe/Berlin"}`,
		"seconds": `"schedule":{"cron":"*/10 * * * * *"},"jitter":"2s"`,
		"every":   `"schedule":{"every":"90s","starts_at":"2026-01-01T00:00:00+01:00"},"paused":true`,
		"at":      `"schedule":{"at":"2100-01-01T00:00:00Z"}`,
		"past":    `"schedule":{"at":"` + hourAgo() + `"}`,
		"delay":   `"schedule":{"delay":"1h"}`,
		"none":    `"description":"only by hand","labels":{"team":"billing"}`,
		"policies": `"missed":{"policy":"skip","tolerance":"60s"},"concurrency_policy":"wait","expires_after":"90m",` +
			`"delivery":"at_most_once","priority":"low","retry":{"give_up_on":[]}`,
		"async":   `"completion":"async"`,
		"limited": `"limits":["warehouse"]`,
		"event":   `"schedule":{"event":"order"},"concurrency_policy":"queue"`,
		"steps":   `"steps":[{"name":"a","target":{"url":"http://example.com/"}}]`,
		"notify":  `"notify":[{"on":["dead","recovered","started","succeeded"],"url":"http://example.com/pager"}]`,
		"body": `"target":{"url":"http://example.com/","method":"PUT","headers":{"X-A":"b"},` +
			`"body":{"z":1.50,"a":["<&>",null,9007199254740993]}}`,
		"host":     `"target":{"url":"https://10.0.0.1/","host":"billing.internal:8443"}`,
		"repeated": `"target":{"url":"http://example.com/","body":{"a":1,"a":  {"b":2,"b":3}}}`,
		"text":     `"target":{"url":"http://example.com/","body":"a=b"}`,
		"inline": `"target":{"url":"http://example.com/","auth":{"type":"bearer","value":"planted"},` +
			`"secret_headers":{"X-Key":"planted","X-Other":"planted too"}}`,
		"named": `"target":{"url":"http://example.com/","auth":{"type":"basic","username":"u","secret":"token"}}`,
		"tls":   `"target":{"url":"https://example.com/","tls":{"client_certificate":"certificate"}}`,
		"oauth": `"target":{"url":"http://example.com/","auth":{"type":"oauth2",` +
			`"token_url":"http://example.com/token","client_id":"c","scopes":["a"],"value":"planted"}}`,
		"everything": `"schedule":{"cron":"0 3 * * *","ends_at":"2100-01-01T00:00:00Z"},"timeout":"60s"`,
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			body := `{"name":"` + name + `",` + job
			if !strings.Contains(job, `"target"`) {
				body += `,"target":{"url":"http://example.com/"}`
			}
			created := s.create(body + "}")
			for _, misfit := range misfits(schemas, schemas["Job"].(map[string]any), created, "") {
				t.Errorf("in the answer, %s", misfit) // generated clients rely on what is required
			}
			if diff := cmp.Diff(created, s.do("GET", "/v1/jobs/"+name, "").want(200).fields()); diff != "" {
				t.Errorf("the answer to the POST is not what a GET gives: %s", diff)
			}
			for _, path := range []string{
				"/v1/jobs/" + name, "/v1/jobs/" + s.do("GET", "/v1/jobs/"+name, "").want(200).fields()["id"].(string),
			} {
				before := s.do("GET", path, "").want(200)
				after := s.do("PUT", path, string(before.body)).want(200)
				if diff := cmp.Diff(before.fields(), after.fields()); diff != "" {
					t.Errorf("PUT %s: %s", path, diff)
				}
				if v := after.fields()["version"]; v != 1. {
					t.Errorf("PUT %s: version %v", path, v)
				}
			}
			edited := s.do("GET", "/v1/jobs/"+name, "").fields()
			edited["description"] = "edited"
			text, err := json.Marshal(edited)
			must(t, err)
			after := s.do("PUT", "/v1/jobs/"+name, string(text), `If-Match: "1"`).want(200).fields()
			if after["version"] != 2. || after["description"] != "edited" {
				t.Errorf("edited: version %v, %v", after["version"], after["description"])
			}
			for _, volatile := range []string{
				"version", "updated_at", "next_run_at", "next_scheduled_for", "next_local", "last_run", "state", "completed_at",
				"warnings", // what is written by now names its zone
			} {
				delete(edited, volatile)
				delete(after, volatile)
			}
			if name == "body" {
				delete(edited, "target") // a float64 does not hold its large number
				delete(after, "target")
			}
			if diff := cmp.Diff(edited, after); diff != "" {
				t.Errorf("edited: %s", diff)
			}
		})
	}
}

func TestAPutOfWhatAGetGaveHasItsBounds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"job","target":{"url":"https://example.com/","auth":{"type":"bearer","value":"planted"}}}`)
	got := string(s.do("GET", "/v1/jobs/job", "").want(200).body)
	added := func(text string) string { return strings.Replace(got, "{", "{"+text+",", 1) }
	for _, c := range []struct {
		name, method, path, body, at string
	}{
		{"an unknown field", "PUT", "/v1/jobs/job", added(`"colour":"red"`), "body.colour"},
		{"a field that is misspelt", "PUT", "/v1/jobs/job", added(`"next_runat":null`), "body.next_runat"},
		{"another name", "PUT", "/v1/jobs/other", got, "body.name"},
		{
			"a secret where none is stored", "PUT", "/v1/jobs/copy", strings.Replace(got, `"name":"job"`, `"name":"copy"`, 1),
			"body.target.auth.value",
		},
		{
			"the field of another level", "PUT", "/v1/jobs/job", strings.Replace(got, `"target":{`, `"target":{"id":"x",`, 1),
			"body.target.id",
		},
	} {
		t.Run(c.name, func(t *testing.T) { s.in(t).do(c.method, c.path, c.body).blames(c.at) })
	}
	// A POST creates a job. Fields that the server sets are refused there, so that no caller believes they were
	// accepted.
	if at := locations(s.do("POST", "/v1/jobs", got).code(problem.CodeInvalid)); !slices.Contains(at, "body.id") ||
		!slices.Contains(at, "body.last_run") {
		t.Errorf("a POST: %v", at)
	}
	if v := s.do("GET", "/v1/jobs/job", "").fields()["version"]; v != 1. {
		t.Errorf("version %v", v)
	}
}

func hourAgo() string { return time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) }
