package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/store/runs"
)

// A run says who asked for it. That is kept with the run, however short the audit log is.
func TestARunSaysWhoAskedForIt(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	submitter, editor, admin := s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleEditor), s.as("default", auth.RoleAdmin)
	dead := func(name string) string {
		path, token := editor.working(name)
		editor.do("POST", path+"/fail", `{"error":"x","retry":false}`, token).want(200)
		return strings.TrimPrefix(path, "/v1/runs/")
	}
	first := dead("dead-1")
	dead("dead-2")
	editor.create(`{"name":"n","schedule":{"every":"1h"},"submitters_may_trigger":true,"target":{"url":"http://example.com/hook"}}`)
	s.exec(`UPDATE punctual.jobs SET created_at = now() - interval '1 day' WHERE name = 'n'`)
	got := map[string]string{}
	note := func(how string, run runs.Run) {
		by, id, _ := strings.Cut(or(run.TriggeredBy, ""), " (")
		if got[how] = string(run.Trigger) + " by " + by; len(id) != len(first)+1 {
			t.Errorf("%s: by %q", how, or(run.TriggeredBy, ""))
		}
	}
	triggered := submitter.do("POST", "/v1/jobs/n/trigger", "").want(202)
	note("a trigger", into[runs.Run](triggered))
	note("the same, read", get[runs.Run](editor, triggered.header.Get("Location")))
	note("a rerun", into[runs.Run](editor.do("POST", "/v1/runs/"+first+"/rerun", "").want(202)))
	note("a replay", into[runs.Run](editor.do("POST", "/v1/dead-letters/"+first+"/replay", "").want(202)))
	admin.do("POST", "/v1/dead-letters/replay", `{"filter":{}}`).want(202)
	admin.do("POST", "/v1/jobs/n/backfill", between(3*time.Hour, time.Hour, `,"concurrency":"allow"`)).want(202)
	until(t, "the operations to end", func() bool {
		_, left, err := s.store.Letters.Operate(t.Context())
		must(t, err)
		return !left
	})
	for how, trigger := range map[string]string{"a replay of many": "replay", "a backfill": "backfill"} {
		for _, run := range get[List[runs.Run]](editor, "/v1/runs?limit=1&trigger="+trigger).Data {
			note(how, run)
		}
	}
	want := map[string]string{
		"a trigger": "manual by key submitter", "the same, read": "manual by key submitter", "a rerun": "manual by key editor",
		"a replay": "replay by key editor", "a replay of many": "replay by key admin", "a backfill": "backfill by key admin",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var shown string
	must(t, s.store.Pool().QueryRow(t.Context(), `
		SELECT string_agg(DISTINCT split_part(triggered_by, ' (', 1), ', ') FROM punctual.run_history WHERE job = 'n'`).
		Scan(&shown))
	if shown != "key admin, key submitter" {
		t.Errorf("run_history shows %q", shown)
	}
}
