package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A cursor in a file lets each call print what has ended since the last one.
func TestRunsAreFollowedFromWhereTheLastCallStopped(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	r := serve(t, dsnFor(t), "--allow-targets=127.0.0.1/32")
	calls(t, r, "PATCH", "/v1/tenants/default", map[string]any{"changes_kept": "24h"}, nil)
	calls(t, r, "POST", "/v1/jobs", map[string]any{"name": "a", "target": map[string]any{"url": target.URL}}, nil)
	env := []string{"PUNCTUAL_API_URL=" + r.API.URL}
	cursor := filepath.Join(t.TempDir(), "cursor")
	changes := func() (ended []string) {
		t.Helper()
		for line := range strings.Lines(succeeds(t, env, "runs", "changes", "--cursor="+cursor)) {
			var run struct{ ID, Job, Status string }
			if err := json.Unmarshal([]byte(line), &run); err != nil || run.Job != "a" || run.Status != "succeeded" {
				t.Errorf("%v: %s", err, line)
			}
			ended = append(ended, run.ID)
		}
		return ended
	}
	runs := func() (id string) {
		t.Helper()
		var run struct{ ID string }
		calls(t, r, "POST", "/v1/jobs/a/trigger", nil, &run)
		return run.ID
	}
	for range 2 {
		want := runs()
		var got []string
		await(t, "the end of the run in the feed", func() bool { got = changes(); return len(got) > 0 })
		if len(got) != 1 || got[0] != want {
			t.Errorf("ended since the last call: %v, want %s", got, want)
		}
	}
	if code, out := punctual(t, env, "runs", "changes", "--cursor="+t.TempDir()); code != 1 {
		t.Errorf("a directory is taken for a cursor: %s", out)
	}
	whole := succeeds(t, env, "runs", "changes")
	if n := strings.Count(whole, "\n"); n != 2 {
		t.Errorf("without a cursor it prints %d runs: %s", n, whole)
	}
	stop(t, r)
}
