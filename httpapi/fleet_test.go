package httpapi

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/jobspec"
)

func TestQueuesAndReplicas(t *testing.T) {
	t.Parallel()
	s := serve(t)
	replica := scheduler.Replica{
		ID: uuid.New(), Host: "here", Version: "1.2.3", Queues: map[string]int{"default": 10, "critical": 5},
	}
	if _, err := s.store.Replicas.Register(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	s.create(`{"name":"a","target":{"url":"http://example.com/"}}`)
	s.do("POST", "/v1/jobs/a/trigger", "").want(202)
	queues := get[QueueList](s, "/v1/queues")
	if len(queues.Data) != 2 || queues.Data[0].Name != "critical" || queues.Data[1].DueRuns != 1 ||
		queues.Data[1].OldestDue == nil || queues.HeldBack != nil {
		t.Errorf("%+v", queues)
	}
	replicas := get[ReplicaList](s, "/v1/replicas")
	if len(replicas.Data) != 1 || replicas.Data[0].ID != replica.ID || replicas.Data[0].Queues["critical"] != 5 ||
		replicas.Data[0].Draining {
		t.Errorf("%+v", replicas)
	}
}

func TestAJobBeyondALimitIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(`UPDATE punctual.tenants SET max_jobs = 1 WHERE name = 'default'`)
	s.create(minimal("a"))
	if p := s.do("POST", "/v1/jobs", minimal("b")).code(problem.CodeLimit); !strings.HasPrefix(p.Detail, "The tenant has 1 ") {
		t.Errorf("detail %q", p.Detail)
	}
	s.do("PUT", "/v1/jobs/b", minimal("b")).code(problem.CodeLimit)
	s.do("POST", "/v1/jobs/batch", `{"jobs":[`+minimal("b")+`]}`).code(problem.CodeLimit)
	s.exec(`UPDATE punctual.tenants SET max_jobs = NULL, min_interval = '1 h' WHERE name = 'default'`)
	often := strings.Replace(minimal("b"), "0 3 * * *", "0,30 3 * * *", 1)
	s.do("POST", "/v1/jobs", often).wantMessage("body.schedule.cron", "30m0s")
	s.do("POST", "/v1/jobs/batch", `{"jobs":[`+often+`]}`).blames("body.jobs[0].schedule.cron")
}

// A payload has 256 KiB at most, on every path by which it can come.
func TestAPayloadIsNoLargerThanItMayBe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	body := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	job := func(name string, bytes int) string {
		return `{"name":"` + name + `","target":{"url":"http://example.com/","body":` + body(bytes) + `}}`
	}
	s.create(job("a", jobspec.MaxPayload))
	for path, request := range map[string]string{
		"/v1/jobs":           job("b", jobspec.MaxPayload+1),
		"/v1/jobs/a/trigger": `{"body":` + body(jobspec.MaxPayload+1) + `}`,
	} {
		p := s.do("POST", path, request).code(problem.CodeInvalid)
		if len(p.Errors) != 1 || !strings.HasSuffix(p.Errors[0].Location, "body") ||
			p.Errors[0].Message != "262145 bytes; at most 262144 (256 KiB)" {
			t.Errorf("%s: %+v", path, p.Errors)
		}
	}
}
