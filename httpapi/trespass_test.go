package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/events"
	"punctual/store/tenants"
)

// belongings are the things that a tenant has: every id and name of each, by the path parameter that takes it.
type belongings map[string][]string

// settle gives a tenant one of everything, always with "alpha" in its text.
func (s *service) settle() belongings {
	s.t.Helper()
	b := belongings{}
	for _, name := range []string{"alpha-active", "alpha-paused", "alpha-deleted"} {
		job := s.create(`{"name":"` + name + `","schedule":{"every":"1h"},"labels":{"team":"alpha"},` +
			`"target":{"url":"http://alpha.example/hook"}}`)
		b["job"] = append(b["job"], job["id"].(string), name)
	}
	s.do("POST", "/v1/jobs/alpha-paused/pause", `{"note":"alpha rests"}`).want(200)
	s.do("DELETE", "/v1/jobs/alpha-deleted", "").want(204)
	path, token := s.working("alpha-working")
	s.do("POST", path+"/heartbeat", `{"progress":"alpha"}`, token).want(200)
	dead, deadToken := s.working("alpha-dead")
	s.do("POST", dead+"/fail", `{"error":"alpha died","retry":false}`, deadToken).want(200)
	dated := s.do("POST", "/v1/jobs/alpha-active/trigger", `{"key":"alpha","delay":"1h"}`).want(202).fields()
	run := s.do("POST", "/v1/jobs/alpha-active/trigger", `{"body":{"alpha":1}}`).want(202).fields()
	b["run"] = []string{
		run["id"].(string), dated["run"].(string), strings.TrimPrefix(path, "/v1/runs/"), strings.TrimPrefix(dead, "/v1/runs/"),
	}
	operation := s.do("POST", "/v1/jobs/alpha-active/backfill",
		between(5*60*60e9, 2*60*60e9, `,"note":"alpha"`)).want(202).fields()
	b["operation"] = []string{operation["id"].(string)}
	keys := get[List[tenants.Key]](s, "/v1/api-keys")
	for _, k := range keys.Data {
		b["key"] = append(b["key"], k.ID.String(), strings.TrimPrefix(k.Prefix, "punctual_"))
	}
	event := s.do("POST", "/v1/events/alpha.event", `{"body":{"alpha":1}}`).want(202).fields()
	b["event"], b["name"] = []string{event["id"].(string)}, []string{"alpha.event"}
	b["tenant"] = []string{"alpha"}
	b["item"] = b["run"]
	notice := uuid.NewString()
	s.exec(`
		INSERT INTO punctual.notice_messages (id, tenant, format, url, happened_at, headline, events, jobs)
		SELECT $1, tenant, 'json', 'https://alpha.example/', now(), 'alpha is well', '{}', '{}'
		FROM punctual.jobs WHERE id = $2`, notice, b["job"][0])
	b["notice"] = []string{notice}
	s.do("PUT", "/v1/secrets/alpha-secret", `{"value":"alpha's own"}`).want(201)
	b["secret"] = []string{"alpha-secret"}
	s.do("PUT", "/v1/limits/alpha-limit", `{"max_running":1}`).want(201)
	b["limit"] = []string{"alpha-limit"}
	b["signing_secret"] = []string{s.do("POST", "/v1/signing-secrets", "").want(201).fields()["id"].(string)}
	return b
}

// bodies are the bodies of operations that would change something. They are valid, so only the tenant stands in the
// way.
var bodies = map[string]string{
	"put-job":              `{"schedule":{"every":"1h"},"target":{"url":"http://beta.example"}}`,
	"patch-job":            `{"timeout":"1m"}`,
	"backfill-job":         between(5*60*60e9, 2*60*60e9, ""),
	"replay-dead-letters":  `{"filter":{}}`,
	"resolve-dead-letters": `{"filter":{}}`,
	"pause-jobs":           `{"filter":{}}`,
	"resume-jobs":          `{"filter":{}}`,
	"delete-jobs":          `{"filter":{}}`,
	"create-job":           `{"name":"own","schedule":{"delay":"1h"},"target":{"url":"http://beta.example"}}`,
	"create-jobs": `{"jobs":[{"name":"own","schedule":{"delay":"1h"},"target":{"url":"http://beta.example"}}],` +
		`"on_conflict":"skip"}`,
	"preview-schedule": `{"schedule":{"every":"1h"}}`,
	"create-api-key":   `{"name":"k","role":"viewer"}`,
	"create-tenant":    `{"name":"gamma"}`,
	"patch-tenant":     `{"max_jobs":1}`,
	"put-secret":       `{"value":"beta's"}`,
	"put-limit":        `{"max_running":1}`,
	"put-grant":        `{"role":"test"}`,
	"move-dated-run":   `{"delay":"2h"}`,
	"trigger-batch":    `{"items":[{"key":"alpha","on_conflict":"replace"}]}`,
}

// puts are the operations that create a thing of the caller's own, under a name that other tenants may use too.
var puts = []string{"put-job", "put-secret", "put-limit"}

// emits is an operation that creates one of the caller's own each time.
const emits = "emit-event"

// queries are the query parameters that operations need besides.
var queries = map[string]string{"explain-job": "?at=2026-12-01T03:00:00Z"}

// route is an operation of the document.
type route struct {
	id, method, path string
	parameters       []string // in the path
	role             auth.Role
}

func routes(t *testing.T) []route {
	t.Helper()
	var list []route
	for path, item := range static200(t, "/openapi.json").fields()["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			r := route{id: op.(map[string]any)["operationId"].(string), method: strings.ToUpper(method), path: path}
			role, _ := op.(map[string]any)["x-punctual-role"].(string)
			r.role = auth.Role(role)
			for _, match := range pathParameter.FindAllStringSubmatch(path, -1) {
				r.parameters = append(r.parameters, match[1])
			}
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b route) int { return strings.Compare(a.id, b.id) })
	return list
}

// everything returns all rows that belong to a tenant, of all tables.
func (s *service) everything(tenant int32) string {
	s.t.Helper()
	var all strings.Builder
	for _, table := range []string{
		"jobs", "schedules", "runs", "ready", "dated", "dead_letters", "operations", "operation_jobs", "idempotency_keys",
		"api_keys", "tenants", "notices", "secrets", "signing_secrets", "limits", "audit_log", "events",
	} {
		of := "tenant"
		if table == "tenants" {
			of = "id"
		}
		var rows *string
		err := s.store.Pool().QueryRow(s.t.Context(),
			`SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM punctual.`+table+` t WHERE `+of+` = $1`, tenant).Scan(&rows)
		must(s.t, err)
		if rows != nil {
			fmt.Fprintf(&all, "%s: %s\n", table, *rows)
		}
	}
	return all.String()
}

var anyID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// Each role uses another tenant's ids on every route. It gets the same 404 as for an unknown one.
//
// Byte for byte, as for a resource that never existed. Also names, and filters by the other tenant's resources. The
// routes are those of the OpenAPI document. Nothing is shown, and nothing changes.
//
//prove:tenants
func TestNobodyTrespasses(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	alpha := s.tenant("alpha")
	theirs := s.as("alpha", auth.RoleAdmin).settle()
	before := s.everything(alpha)
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleSubmitter, auth.RoleEditor, auth.RoleAdmin} {
		t.Run(string(role), func(t *testing.T) {
			own := "beta-" + string(role)
			s.tenant(own)
			beta := s.in(t).as(own, role)
			beta.headers = append(beta.headers, problem.HeaderRequestID+": the-same") // answers repeat it, and must be equal
			for _, path := range filters(theirs) {
				got := beta.do("GET", path, "")
				if got.status != 404 && (got.status != 200 || !bytes.Contains(got.body, []byte(`"data":[]`))) {
					t.Errorf("GET %s: %d %s", path, got.status, got.body)
				}
			}
			for _, r := range routes(t) {
				trespass(t, beta, own, role, r, theirs)
			}
			for _, tenant := range []string{"alpha", "default", "nobody"} {
				beta.acting(tenant).do("GET", "/v1/jobs", "").code(problem.CodeForbidden)
			}
			beta.acting(own).do("GET", "/v1/jobs", "").want(200)
		})
	}
	if after := s.everything(alpha); after != before {
		t.Errorf("what was alpha's has changed from\n%s\nto\n%s", before, after)
	}
}

// trespass asks for things of another tenant. The answer must be the same as for a thing that never existed.
func trespass(t *testing.T, beta *service, own string, role auth.Role, r route, theirs belongings) {
	t.Helper()
	needed := r.role
	if len(r.parameters) == 0 {
		got := beta.do(r.method, r.path, bodies[r.id])
		if forbidden := got.status == http.StatusForbidden; forbidden == role.Includes(needed) {
			t.Errorf("%s as %s: %d %s", r.id, role, got.status, got.body)
		}
		got.hides("alpha")
		return
	}
	r.path = strings.Replace(r.path, "{version}", "1", 1) // every job of settle has a version 1
	r.path = strings.Replace(r.path, "{key}", "alpha", 1) // of the dated run that settle writes
	r.path = strings.Replace(r.path, "{schema}", "alpha", 1)
	r.path = strings.Replace(r.path, "{step}", "alpha", 1)
	if strings.Contains(r.path, "{kind}") {
		r.path, r.parameters = strings.Replace(r.path, "{kind}", "run", 1), []string{"item"}
	}
	if r.id == "get-event" {
		r.path, r.parameters = strings.Replace(r.path, "{name}", "alpha.event", 1), []string{"event"}
	}
	if theirs[r.parameters[0]] == nil || strings.Count(r.path, "{") > 1 {
		t.Fatalf("%s: the test does not know how to make the path %s; teach settle", r.id, r.path)
	}
	parameter := "{" + r.parameters[0] + "}"
	for _, theirThing := range theirs[r.parameters[0]] {
		nothing := "nothing-of-the-kind"
		if anyID.MatchString(theirThing) {
			nothing = uuid.NewString()
		}
		got := beta.do(r.method, strings.Replace(r.path, parameter, theirThing, 1)+queries[r.id], bodies[r.id])
		want := beta.do(r.method, strings.Replace(r.path, parameter, nothing, 1)+queries[r.id], bodies[r.id])
		switch {
		case r.id == emits && role.Includes(needed):
			if got.status != http.StatusAccepted || into[events.Emitted](got).Subscribed != 0 {
				t.Errorf("%s %s: %d %s", r.id, theirThing, got.status, got.body)
			}
			beta.exec(`DELETE FROM punctual.events e USING punctual.tenants t WHERE t.id = e.tenant AND t.name = $1`, own)
			continue
		case slices.Contains(puts, r.id) && !anyID.MatchString(theirThing) && role.Includes(needed):
			if got.status != http.StatusCreated || r.id == "put-job" && into[Job](got).Tenant != own {
				t.Errorf("%s %s: %d %s", r.id, theirThing, got.status, got.body)
			}
			beta.do("DELETE", strings.Replace(r.path, parameter, theirThing, 1), "").want(204)
			beta.do("DELETE", strings.Replace(r.path, parameter, nothing, 1), "").want(204)
			continue
		case got.status != want.status, !bytes.Equal(got.body, want.body):
			t.Errorf("%s as %s of what is alpha's: %d %s, of nothing: %d %s", r.id, role, got.status, got.body, want.status,
				want.body)
		}
		wanted := http.StatusNotFound
		switch {
		case needed == auth.RoleNone:
			wanted = http.StatusUnauthorized
		case !role.Includes(needed):
			wanted = http.StatusForbidden
		}
		if got.status != wanted {
			t.Errorf("%s as %s: %d, want %d: %s", r.id, role, got.status, wanted, got.body)
		}
	}
}

// filters returns the lists narrowed to things of another tenant.
func filters(theirs belongings) []string {
	list := []string{
		"/v1/runs?label=team=alpha", "/v1/jobs?label=team=alpha", "/v1/jobs?name=alpha", "/v1/jobs?q=alpha",
		"/v1/jobs?failing=true", "/v1/jobs?overdue=true",
		"/v1/dead-letters?resolved=any", "/v1/dead-letters/groups", "/v1/operations", "/v1/runs",
	}
	for _, job := range theirs["job"] {
		list = append(list, "/v1/runs?job="+job, "/v1/dead-letters?resolved=any&job="+job, "/v1/dead-letters/groups?job="+job)
		if anyID.MatchString(job) {
			list = append(list, "/v1/runs?job_id="+job, "/v1/dead-letters?resolved=any&job_id="+job,
				"/v1/dead-letters/groups?job_id="+job)
		}
	}
	for _, operation := range theirs["operation"] {
		list = append(list, "/v1/jobs?paused_by_operation="+operation)
	}
	return list
}

// Nor does another tenant's cursor show anything.
//
//prove:tenants
func TestACursorOfAnotherTenantShowsNothingOfIt(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	s.tenant("beta")
	alpha, beta := s.as("alpha", auth.RoleAdmin), s.as("beta", auth.RoleAdmin)
	for i := range 3 {
		alpha.create(minimal(fmt.Sprintf("alpha-%d", i)))
		alpha.do("POST", fmt.Sprintf("/v1/jobs/alpha-%d/trigger", i), "").want(202)
		alpha.key("alpha", auth.RoleViewer)
	}
	for _, path := range []string{"/v1/jobs", "/v1/runs", "/v1/api-keys", "/v1/audit-log"} {
		page := alpha.do("GET", path+"?limit=1", "").want(200).fields()
		beta.do("GET", path+"?cursor="+page["next_cursor"].(string), "").want(200).hides("alpha")
	}
}

func TestAnIdempotencyKeyOfAnotherTenantRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	for _, tenant := range []string{"alpha", "beta"} {
		s.tenant(tenant)
		if r := s.as(tenant, auth.RoleEditor).do("POST", "/v1/jobs", minimal("n"),
			"Idempotency-Key: k").want(201); into[Job](r).Tenant != tenant || r.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: %s", tenant, r.body)
		}
	}
}

func TestOperatorsActForAnyTenant(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	operator := s.as("default", auth.RoleOperator)
	operator.acting("alpha").create(minimal("n"))
	if got := get[Job](s.as("alpha", auth.RoleViewer), "/v1/jobs/n"); got.Tenant != "alpha" {
		t.Errorf("the job is of %s", got.Tenant)
	}
	operator.do("GET", "/v1/jobs/n", "").code(problem.CodeNotFound)
	for _, name := range []string{"nobody", "no body", strings.Repeat("n", 200)} {
		operator.acting(name).do("GET", "/v1/jobs", "").code(problem.CodeNotFound, auth.HeaderTenant)
	}
	key := into[NewKey](operator.acting("alpha").do("POST", "/v1/api-keys", `{"name":"k","role":"viewer"}`).want(201))
	if key.Tenant != "alpha" {
		t.Errorf("the key is of %s", key.Tenant)
	}
}
