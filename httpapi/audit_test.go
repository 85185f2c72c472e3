package httpapi

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/jobs"
)

func TestTheAuditLogTellsWhoChangedWhat(t *testing.T) {
	t.Parallel()
	who := audit.Actor{
		Kind: audit.Token, Name: "alice", Address: netip.MustParseAddr("203.0.113.7"), RequestID: "r-1",
	}
	ctx := audit.WithActor(t.Context(), who)
	s := serve(t)
	d := domain.Definition{
		Name: "n", Target: domain.Target{URL: "http://example.com/hook"}, Schedule: domain.Schedule{Cron: "0 3 * * *"},
	}
	if _, err := s.store.For(1).CreateJob(ctx, jobs.NewJob{Definition: d}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.PauseJob(ctx, 1, "n", "moving", nil); err != nil {
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
