package httpapi

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
)

func TestTheAuditLogTellsWhoChangedWhat(t *testing.T) {
	t.Parallel()
	who := audit.Actor{
		Kind: audit.Token, Name: "alice", Address: netip.MustParseAddr("203.0.113.7"), RequestID: "r-1",
	}
	ctx := audit.WithActor(t.Context(), who)
	s := serve(t)
	d := jobspec.Definition{
		Name: "n", Target: jobspec.Target{URL: "http://example.com/hook"}, Schedule: jobspec.Schedule{Cron: "0 3 * * *"},
	}
	if _, err := s.store.For(1).CreateJob(ctx, jobs.NewJob{Definition: d}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Jobs.PauseJob(ctx, 1, "n", "moving", nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range s.items("/v1/audit-log?job=n") {
		got = append(got, fmt.Sprintln(e["action"], e["name"], e["actor_kind"], e["actor"], e["address"], e["request_id"],
			e["resource"], e["before"] != nil, e["after"] != nil))
	}
	want := []string{
		"job.pause n token alice 203.0.113.7 r-1 job true true\n",
		"job.create n token alice 203.0.113.7 r-1 job false true\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for path, n := range map[string]int{
		"?action=job.create": 1, "?actor=alice": 2, "?actor=bob": 0, "?resource=run": 0, "?name=n&resource=job": 2,
		"?limit=1": 1, "?from=2000-01-01T00:00:00Z&to=2001-01-01T00:00:00Z": 0, "?job=nobody": 0,
	} {
		if data := s.items("/v1/audit-log" + path); len(data) != n {
			t.Errorf("%s: %d entries, want %d", path, len(data), n)
		}
	}
	for path, at := range map[string]string{
		"?action=job.paint": "query.action", "?resource_id=x": "query.resource_id", "?cursor=x": "query.cursor",
		"?from=yesterday": "query.from",
	} {
		s.do("GET", "/v1/audit-log"+path, "").blames(at)
	}
	e := s.do("GET", "/v1/jobs/n/explain?at=2099-01-01T03:00:00Z", "").want(200).fields()
	if pause, _ := e["pause"].(map[string]any); pause["by"] != "token alice" {
		t.Errorf("paused by %v", e["pause"])
	}
}

// A key that has leaked is known by its prefix.
func TestTheAuditLogIsReadByKey(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("beta")
	admin, beta, operator := s.as("default", auth.RoleAdmin), s.as("beta", auth.RoleAdmin), s.as("default", auth.RoleOperator)
	made := into[NewKey](admin.do("POST", "/v1/api-keys", `{"name":"leaked","role":"editor"}`).want(201))
	admin.create(minimal("other"))
	s.with(made.Secret).create(minimal("n"))
	s.with(made.Secret).do("POST", "/v1/jobs/n/pause", "").want(200)
	admin.do("DELETE", "/v1/api-keys/"+made.ID.String(), "").want(204)
	for _, key := range []string{made.Prefix, strings.TrimPrefix(made.Prefix, "punctual_")} {
		got := ""
		for _, e := range admin.items("/v1/audit-log?key=" + key) {
			got += fmt.Sprintln(e["action"], e["actor_name"])
		}
		if got != "job.pause leaked\njob.create leaked\n" {
			t.Errorf("%s: %s", key, got)
		}
	}
	if got := admin.items("/v1/audit-log?key=" + made.Prefix + "&action=job.pause&from=2026-01-01T00:00:00Z"); len(got) != 1 {
		t.Errorf("%d pauses", len(got))
	}
	admin.do("GET", "/v1/audit-log?key="+made.Secret, "").blames("query.key")
	admin.do("GET", "/v1/audit-log?key=leaked", "").blames("query.key")
	admin.do("GET", "/v1/audit-log?key=0123456789abcdef", "").code(problem.CodeNotFound, "prefix")
	// Another tenant learns nothing of it. An operator's own key is found in the tenants that the operator acts for.
	beta.do("GET", "/v1/audit-log?key="+made.Prefix, "").code(problem.CodeNotFound, "prefix")
	acting := into[NewKey](operator.do("POST", "/v1/api-keys", `{"name":"acting","role":"operator"}`).want(201))
	s.with(acting.Secret).acting("beta").create(minimal("m"))
	if got := operator.acting("beta").items("/v1/audit-log?key=" + acting.Prefix); len(got) != 1 {
		t.Errorf("the operator has made %d changes", len(got))
	}
	beta.do("GET", "/v1/audit-log?key="+acting.Prefix, "").code(problem.CodeNotFound)
}

// The log can be filtered by each action and each kind of resource. (Changes of limits could not be asked for.)
func TestTheAuditLogCanBeFilteredByEachAction(t *testing.T) {
	t.Parallel()
	paths := static200(t, "/openapi.json").fields()["paths"]
	resources := map[string]bool{}
	for _, action := range audit.Actions {
		resources[action.Resource()] = true
	}
	want := map[string][]string{
		"action": pg.Texts(slices.Sorted(slices.Values(audit.Actions))), "resource": slices.Sorted(maps.Keys(resources)),
	}
	for _, v := range dig(paths, "/v1/audit-log", "get", "parameters").([]any) {
		name := dig(v, "name").(string)
		if want[name] == nil {
			continue
		}
		got := api.Texts(dig(v, "schema", "enum").([]any))
		slices.Sort(got)
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no parameter is called %v", want)
	}
}
