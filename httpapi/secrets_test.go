package httpapi

import (
	"strings"
	"testing"

	"punctual/httpapi/problem"
	"punctual/store/secrets"
)

func TestASecretIsWrittenAndNeverShown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const value = "planted-value"
	made := s.do("PUT", "/v1/secrets/billing-token", `{"value":"`+value+`","description":"of billing"}`).want(201)
	again := s.do("PUT", "/v1/secrets/billing-token", `{"value":"`+value+`","description":"of billing"}`).want(200)
	if string(made.body) != string(again.body) {
		t.Errorf("the same changed it: %s, was %s", again.body, made.body)
	}
	changed := s.do("PUT", "/v1/secrets/billing-token", `{"value":"`+value+`2"}`).want(200)
	if got := changed.fields(); got["version"] != 2.0 || got["description"] != "" {
		t.Errorf("changed: %s", changed.body)
	}
	shown := s.do("GET", "/v1/secrets/billing-token", "").want(200)
	if got := shown.fields(); got["name"] != "billing-token" || len(got) != 5 {
		t.Errorf("shown: %s", shown.body)
	}
	s.do("PUT", "/v1/secrets/second", `{"value":"x"}`).want(201)
	page := get[List[secrets.Secret]](s, "/v1/secrets?limit=1")
	if len(page.Data) != 1 || page.Data[0].Name != "second" || page.NextCursor == nil {
		t.Fatalf("the first page: %+v", page)
	}
	page = get[List[secrets.Secret]](s, "/v1/secrets?limit=1&cursor="+*page.NextCursor)
	if len(page.Data) != 1 || page.Data[0].Name != "billing-token" || page.NextCursor != nil {
		t.Errorf("the second page: %+v", page)
	}
	s.do("DELETE", "/v1/secrets/second", "").want(204)
	s.do("GET", "/v1/secrets/second", "").code(problem.CodeNotFound, "no secret with that name")
	for _, r := range []*reply{made, again, changed, shown} {
		r.hides(value)
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct{ name, path, body, at string }{
		{"no value", "a", `{}`, "body.value"},
		{"an empty value", "a", `{"value":""}`, "body.value"},
		{"the mask", "a", `{"value":"***"}`, "body.value"},
		{"a number", "a", `{"value":314159}`, "body.value"},
		{"what is stored", "a", `{"value":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}}`, "body.value"},
		{"too much", "a", `{"value":"` + strings.Repeat("x", 64<<10+1) + `"}`, "body.value"},
		{"a long description", "a", `{"value":"x","description":"` + strings.Repeat("x", 2000) + `"}`, "body.description"},
		{"a name with a space", "a%20b", `{"value":"x"}`, "path.secret"},
		{"an unknown field", "a", `{"value":"x","valeu":"y"}`, "body.valeu"},
	} {
		s.do("PUT", "/v1/secrets/"+c.path, c.body).hides("314159").blames(c.at)
	}
	s.do("PUT", "/v1/secrets/largest", `{"value":"`+strings.Repeat("x", 64<<10)+`"}`).want(201)
}

// withTarget returns a job whose target has an additional part.
func withTarget(name, part string) string {
	return `{"name":"` + name + `","target":{"url":"https://example.com/hook",` + part + `}}`
}

func TestSecretsOfAJobAreMasked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const auth = `"auth":{"type":"basic","username":"punctual","value":"planted"},"secret_headers":{"X-Key":"planted"}`
	mask := func(r *reply, version float64) map[string]any {
		t.Helper()
		job := r.hides("planted", "sealed").fields()
		target := job["target"].(map[string]any)
		if job["version"] != version {
			t.Errorf("version %v: %s", version, r.body)
		}
		if got := target["auth"].(map[string]any)["value"]; got != "***" {
			t.Errorf("the value is shown as %v", got)
		}
		return target
	}
	target := mask(s.do("POST", "/v1/jobs", withTarget("job", auth), "Idempotency-Key: k").want(201), 1)
	if got := target["secret_headers"].(map[string]any)["X-Key"]; got != "***" {
		t.Errorf("the header is shown as %v", got)
	}
	mask(s.do("POST", "/v1/jobs", withTarget("job", auth), "Idempotency-Key: k").want(201), 1)
	mask(s.do("GET", "/v1/jobs/job", "").want(200), 1)
	mask(s.do("PUT", "/v1/jobs/job", withTarget("job", auth)).want(200), 1)
	mask(s.do("PATCH", "/v1/jobs/job", `{"description":"other"}`).want(200), 2)
	mask(s.do("PATCH", "/v1/jobs/job", `{"target":{"auth":{"username":"other"}}}`).want(200), 3)
	mask(s.do("PATCH", "/v1/jobs/job", `{"target":{"auth":{"value":"planted"}}}`).want(200), 3)
	mask(s.do("PATCH", "/v1/jobs/job", `{"target":{"auth":{"value":"planted too"}}}`).want(200), 4)
	for _, list := range []string{"/v1/jobs", "/v1/jobs/job/explain?at=2026-11-01T00:00:00Z"} {
		s.do("GET", list, "").want(200).hides("planted", "sealed")
	}
	// A removed secret is gone.
	target = s.do("PATCH", "/v1/jobs/job",
		`{"target":{"secret_headers":{"X-Key":null},"auth":null}}`).want(200).fields()["target"].(map[string]any)
	if target["auth"] != nil || target["secret_headers"] != nil {
		t.Errorf("after its secrets were removed: %v", target)
	}
}

func TestTheMaskIsNoValue(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(withTarget("job", `"auth":{"type":"bearer","value":"planted"}`))
	for _, c := range []struct{ method, path, body, at string }{
		{"POST", "/v1/jobs", withTarget("new", `"auth":{"type":"bearer","value":"***"}`), "body.target.auth.value"},
		{"PUT", "/v1/jobs/new", withTarget("new", `"auth":{"type":"bearer","value":"***"}`), "body.target.auth.value"},
		{"PUT", "/v1/jobs/job", withTarget("job", `"secret_headers":{"X-Key":"***"}`), "body.target.secret_headers.X-Key"},
		{
			"PUT", "/v1/jobs/job",
			withTarget("job", `"auth":{"type":"bearer","value":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}}`),
			"body.target.auth.value",
		},
		{"PATCH", "/v1/jobs/job", `{"target":{"auth":{"value":"***"}}}`, "body.target.auth.value"},
		{"PATCH", "/v1/jobs/job", `{"target":{"secret_headers":{"X-Key":"***"}}}`, "body.target.secret_headers.X-Key"},
		{
			"PATCH", "/v1/jobs/job", `{"target":{"auth":{"value":{"sealed":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}}}}`,
			"body.target.auth.value",
		},
		{
			"POST", "/v1/jobs/batch", `{"jobs":[` + withTarget("new", `"auth":{"type":"bearer","value":"***"}`) + `]}`,
			"body.jobs[0].target.auth.value",
		},
	} {
		s.do(c.method, c.path, c.body).blames(c.at)
	}
}

func TestAuthenticationThatCannotBe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct{ part, at string }{
		{`"auth":{"type":"magic","value":"planted"}`, "body.target.auth.type"},
		{`"auth":{"value":"planted"}`, "body.target.auth.type"},
		{`"auth":{"type":"bearer"}`, "body.target.auth"},
		{`"auth":{"type":"bearer","secret":"a","value":"planted"}`, "body.target.auth"},
		{`"auth":{"type":"none","value":"planted"}`, "body.target.auth"},
		{`"auth":{"type":"bearer","secret":"no such"}`, "body.target.auth.secret"},
		{`"auth":{"type":"bearer","secret":"missing"}`, "body.target.auth.secret"},
		{`"auth":{"type":"bearer","value":"planted\nvalue"}`, "body.target.auth.value"},
		{`"auth":{"type":"bearer","value":"planted","username":"u"}`, "body.target.auth.username"},
		{`"auth":{"type":"basic","value":"planted","username":"a:b"}`, "body.target.auth.username"},
		{`"auth":{"type":"header","value":"planted"}`, "body.target.auth.header"},
		{`"auth":{"type":"header","value":"planted","header":"Host"}`, "body.target.auth.header"},
		{`"auth":{"type":"header","value":"planted","header":"X-Key"},"headers":{"x-key":"a"}`, "body.target.auth"},
		{`"auth":{"type":"bearer","value":"planted"},"secret_headers":{"Authorization":"planted"}`, "body.target.auth"},
		{`"auth":{"type":"oauth2","value":"planted","client_id":"c"}`, "body.target.auth.token_url"},
		{`"auth":{"type":"oauth2","value":"planted","token_url":"https://login/t"}`, "body.target.auth.client_id"},
		{`"auth":{"type":"oidc","value":"planted","client_id":"c"}`, "body.target.auth"},
		{`"auth":{"type":"oidc","value":"planted","client_id":"c","issuer":"ftp://login"}`, "body.target.auth.issuer"},
		{`"secret_headers":{"Webhook-Signature":"planted"}`, "body.target.secret_headers.Webhook-Signature"},
		{`"secret_headers":{"X-A":"planted"},"headers":{"x-a":"b"}`, "body.target.secret_headers.X-A"},
		{`"secret_headers":{"X-A":1}`, "body.target.secret_headers.X-A"},
		{`"tls":{"ca":"missing"}`, "body.target.tls.ca"},
		{`"tls":{}`, "body.target.tls"},
		{`"body":{"a":[{"$secret":"missing"}]}`, "body.target.body.a[0]"},
		{`"body":{"a":{"$secret":"no such"}}`, "body.target.body.a"},
		{`"body":{"$secret":"token","b":1}`, "body.target.body"},
	} {
		s.do("POST", "/v1/jobs", withTarget("job", c.part)).hides("planted").blames(c.at)
	}
}

func TestASecretInUseIsKept(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("PUT", "/v1/secrets/token", `{"value":"planted"}`).want(201)
	s.create(withTarget("uses-it", `"body":{"a":{"$secret":"token"}}`))
	s.do("GET", "/v1/jobs/uses-it", "").want(200).shows(`"body":{"a":{"$secret":"token"}}`).hides("planted")
	s.do("DELETE", "/v1/secrets/token", "").code(problem.CodeState, "uses-it")
	s.do("DELETE", "/v1/jobs/uses-it", "").want(204)
	s.do("DELETE", "/v1/secrets/token", "").want(204)
}

func TestSigningSecretsAreShownOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	first := get[SigningSecretList](s, "/v1/signing-secrets")
	if len(first.Data) != 1 {
		t.Fatalf("a tenant begins with %v", first)
	}
	s.do("DELETE", "/v1/signing-secrets/"+first.Data[0].ID.String(), "").code(problem.CodeState)
	made := into[NewSigningSecret](s.do("POST", "/v1/signing-secrets", "").want(201))
	if !strings.HasPrefix(made.Secret, "whsec_") {
		t.Errorf("made: %+v", made)
	}
	s.do("DELETE", "/v1/signing-secrets/"+first.Data[0].ID.String()+"?in=24h", "").want(204)
	list := s.do("GET", "/v1/signing-secrets", "").want(200).hides("whsec_")
	both := into[SigningSecretList](list)
	if len(both.Data) != 2 || both.Data[0].ExpiresAt == nil || both.Data[1].ID != made.ID {
		t.Errorf("both: %s", list.body)
	}
	s.do("DELETE", "/v1/signing-secrets/"+made.ID.String()+"?in=soon", "").blames("query.in")
	s.do("DELETE", "/v1/signing-secrets/019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11", "").code(problem.CodeNotFound, "signing secret")
}
