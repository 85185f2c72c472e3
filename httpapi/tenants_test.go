package httpapi

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/tenants"
)

func TestTenantsAreMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	operator := s.as("default", auth.RoleOperator)
	made := operator.do("POST", "/v1/tenants",
		`{"name":"alpha","max_jobs":3,"min_interval":"90s","allowed_targets":["10.20.0.0/16","fd00::/8"]}`).want(201)
	if made.header.Get("Location") != "/v1/tenants/alpha" {
		t.Errorf("location %s", made.header.Get("Location"))
	}
	want := map[string]any{
		"name": "alpha", "weight": 1.0, "max_jobs": 3.0, "max_concurrent_runs": nil, "max_runs_per_second": nil,
		"max_requests_per_second": nil, "max_pending_runs": nil, "min_interval": "1m30s", "max_key_age": nil, "changes_kept": nil,
		"allowed_targets": []any{"10.20.0.0/16", "fd00::/8"}, "notify": []any{},
	}
	check := func(got map[string]any) {
		t.Helper()
		delete(got, "created_at")
		delete(got, "updated_at")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	check(made.fields())
	operator.do("POST", "/v1/tenants", `{"name":"alpha"}`).code(problem.CodeNameTaken)

	alpha := s.as("alpha", auth.RoleAdmin)
	alpha.create(minimal("n"))
	alpha.create(minimal("paused"))
	alpha.do("POST", "/v1/jobs/paused/pause", "").want(200)
	own := alpha.do("GET", "/v1/tenant", "").want(200)
	if diff := cmp.Diff(string(own.body), string(operator.do("GET", "/v1/tenants/alpha", "").want(200).body)); diff != "" {
		t.Error(diff)
	}
	if usage := own.fields()["usage"]; !cmp.Equal(usage, map[string]any{"jobs": 2.0}) {
		t.Errorf("usage %v", usage)
	}
	want["max_jobs"], want["weight"], want["allowed_targets"], want["max_runs_per_second"] = nil, 5.0, []any{}, 7.0
	check(operator.do("PATCH", "/v1/tenants/alpha",
		`{"max_jobs":null,"weight":5,"allowed_targets":null,"max_runs_per_second":7}`).want(200).fields())
	want["min_interval"], want["weight"] = nil, 1.0
	check(operator.do("PATCH", "/v1/tenants/alpha", `{"min_interval":null,"weight":null}`,
		"Content-Type: application/merge-patch+json").want(200).fields())

	operator.do("DELETE", "/v1/tenants/alpha", "").code(problem.CodeState, "2 active or paused jobs")
	for _, job := range []string{"n", "paused"} {
		alpha.do("DELETE", "/v1/jobs/"+job, "").want(204)
	}
	operator.do("DELETE", "/v1/tenants/alpha", "").want(200)
	operator.do("DELETE", "/v1/tenants/alpha", "").code(problem.CodeNotFound)
	operator.do("GET", "/v1/tenants/alpha", "").code(problem.CodeNotFound)
	until(t, "the keys to cease to work", func() bool { return alpha.do("GET", "/v1/jobs", "").status == 401 })
	operator.do("POST", "/v1/tenants", `{"name":"alpha"}`).want(201)
	if jobs := get[List[ListedJob]](s.as("alpha", auth.RoleViewer), "/v1/jobs"); len(jobs.Data) != 0 {
		t.Errorf("the new tenant has the old one's jobs: %+v", jobs)
	}
	operator.do("DELETE", "/v1/tenants/default", "").code(problem.CodeState)
}

func TestTenantsAreListedByName(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"b", "a", "B", "c"} {
		s.tenant(name)
	}
	var names []string
	for cursor := ""; ; {
		page := get[List[tenants.Tenant]](s, "/v1/tenants?limit=2&cursor="+cursor)
		for _, tenant := range page.Data {
			names = append(names, tenant.Name)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if diff := cmp.Diff([]string{"B", "a", "b", "c", "default"}, names); diff != "" {
		t.Error(diff)
	}
	s.do("GET", "/v1/tenants?cursor=%20", "").code(problem.CodeInvalid)
}

func TestTenantsAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.tenant("alpha")
	for body, at := range map[string]string{
		`{"name":"a b"}`:                                             "body.name",
		`{"max_jobs":1}`:                                             "body.name",
		`{"name":"n","max_jobs":0}`:                                  "body.max_jobs",
		`{"name":"n","max_requests_per_second":-1}`:                  "body.max_requests_per_second",
		`{"name":"n","weight":1001}`:                                 "body.weight",
		`{"name":"n","min_interval":"1ms"}`:                          "body.min_interval",
		`{"name":"n","min_interval":"often"}`:                        "body.min_interval",
		`{"name":"n","allowed_targets":["10.0.0.1"]}`:                "body.allowed_targets[0]",
		`{"name":"n","allowed_targets":["10.0.0.0/8","10.0.0.1/8"]}`: "body.allowed_targets[1]",
		`{"name":"n","allowed_targets":["::ffff:10.0.0.0/104"]}`:     "body.allowed_targets[0]",
		`{"name":"n","allowed_targets":"10.0.0.0/8"}`:                "body.allowed_targets",
		`{"name":"n","usage":{}}`:                                    "body.usage",
		`{"name":"n","max_job":1}`:                                   "body.max_job",
	} {
		s.do("POST", "/v1/tenants", body).blames(at)
	}
	for body, at := range map[string]string{
		`{"max_jobs":0,"nothing":1}`: "body.nothing body.max_jobs",
		`{"name":"beta"}`:            "body.name",
		`[]`:                         "body",
	} {
		s.do("PATCH", "/v1/tenants/alpha", body).blames(strings.Fields(at)...)
	}
	s.do("PATCH", "/v1/tenants/nobody", `{"max_jobs":1}`).code(problem.CodeNotFound)
}

func TestRequestsPerSecondAreLimitedOnAllReplicasTogether(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	const rate = 20
	limit := rate
	s.tenant("alpha", tenants.Tenant{Weight: 1, MaxRequestsPerSecond: &limit})
	s.tenant("beta")
	key := s.key("alpha", auth.RoleViewer)
	replicas := []*service{s.with(key), s.another(Config{}).with(key)}
	began, answered, refused := time.Now(), 0, 0
	for i := range 10 * rate {
		r := replicas[i%2].do("GET", "/v1/tenant", "")
		if r.header.Get("RateLimit-Limit") != strconv.Itoa(rate) || r.header.Get("RateLimit-Reset") == "" {
			t.Fatalf("headers %v", r.header)
		}
		left, err := strconv.Atoi(r.header.Get("RateLimit-Remaining"))
		if err != nil || left < 0 || left >= rate {
			t.Fatalf("%d remaining, error %v", left, err)
		}
		switch r.status {
		case 200:
			answered++
		default:
			r.code(problem.CodeRateLimited)
			refused++
			if r.header.Get("Retry-After") != "1" {
				t.Fatalf("headers %v", r.header)
			}
		}
	}
	if most := int(rate * (time.Since(began).Seconds() + 1)); answered > most || answered < rate/2 {
		t.Errorf("%d answered, at most %d", answered, most)
	}
	if time.Since(began) < 5*time.Second && refused == 0 {
		t.Error("none were refused")
	}
	beta := s.as("beta", auth.RoleViewer).do("GET", "/v1/tenant", "").want(200)
	if beta.header.Get("RateLimit-Limit") != "" {
		t.Errorf("no limit, and headers %v", beta.header)
	}
	if _, err := s.store.Tenants.EditTenant(t.Context(), "alpha", func(t *tenants.Tenant) error {
		t.MaxRequestsPerSecond = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	until(t, "the limit to be lifted",
		func() bool { return replicas[1].do("GET", "/v1/tenant", "").header.Get("RateLimit-Limit") == "" })
}
