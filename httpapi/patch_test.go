package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
)

func TestMergePatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const definition = `{"name":"n","description":"d","labels":{"a":"1","b":"2"},` +
		`"schedule":{"cron":"0 3 * * *","timezone":"Europe/Berlin"},"timeout":"90m",
		"target":{"url":"http://example.com/","headers":{"X-A":"1"},"body":{"z":1e2,"a":"<>","list":[1,null]}}}`
	for _, c := range []struct {
		name, patch string
		want        map[string]any // by path
	}{
		{"an empty patch changes nothing", `{}`, map[string]any{"version": 1., "timeout": "90m"}},
		{
			"null restores a default", `{"timeout":null,"description":null}`,
			map[string]any{"timeout": "30s", "description": nil},
		},
		{
			"an entry of a map is removed and added", `{"labels":{"a":null,"c":"3"}}`,
			map[string]any{"labels": map[string]any{"b": "2", "c": "3"}},
		},
		{
			"a schedule turns into another kind", `{"schedule":{"cron":null,"timezone":null,"every":"60s"}}`,
			map[string]any{"schedule": map[string]any{"every": "60s"}},
		},
		{
			"a member of the body is changed", `{"target":{"body":{"a":null}}}`,
			map[string]any{"target.body": map[string]any{"z": 100., "list": []any{1., nil}}},
		},
		{
			"the body is removed", `{"target":{"body":null}}`,
			map[string]any{"target.body": nil, "target.url": "http://example.com/"},
		},
		{"a list is replaced", `{"retry":{"give_up_on":[404]}}`, map[string]any{"retry.give_up_on": []any{404.}}},
		{"paused pauses", `{"paused":true}`, map[string]any{"paused": true, "state": "paused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.do("PUT", "/v1/jobs/n", definition).want(201)
			defer func() { s.do("DELETE", "/v1/jobs/n", "").want(204) }()
			job := s.do("PATCH", "/v1/jobs/n", c.patch, "Content-Type: application/merge-patch+json").want(200).fields()
			for path, want := range c.want {
				var got any = job
				for part := range strings.SplitSeq(path, ".") {
					got = got.(map[string]any)[part]
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", path, diff)
				}
			}
		})
	}
	t.Run("a body that is not patched keeps its bytes", func(t *testing.T) {
		s := s.in(t)
		s.do("PUT", "/v1/jobs/n", definition).want(201)
		s.do("PATCH", "/v1/jobs/n", `{"description":"new"}`).want(200).
			shows(`"body":{"z":1e2,"a":"<>","list":[1,null]}`)
	})
}

func TestPatchReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	p := s.do("PATCH", "/v1/jobs/n", `{"shedule":null,"timeout":"soon","retry":{"max_attempts":"x","multiplier":0},`+
		`"schedule":{"every":"60s","delay":"60s"},"id":null,"target":{"url":null}}`).code(problem.CodeInvalid)
	got := locations(p)
	slices.Sort(got)
	want := []string{
		"body.id", "body.retry.max_attempts", "body.retry.multiplier", "body.schedule", "body.shedule", "body.target.url",
		"body.timeout",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, patch := range []string{`[]`, `"x"`, `1`, `null`} {
		s.do("PATCH", "/v1/jobs/n", patch).code(problem.CodeInvalid)
	}
}
