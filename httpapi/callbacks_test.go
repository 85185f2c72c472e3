package httpapi

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/runs"
)

// claim registers a replica and returns its claim of ten runs.
func (s *service) claim() scheduler.Claim {
	s.t.Helper()
	replica := scheduler.Replica{ID: uuid.New(), Host: "test", Queues: map[string]int{"default": 10}}
	queues, err := s.store.Replicas.Register(s.t.Context(), replica)
	must(s.t, err)
	return scheduler.Claim{Replica: replica.ID, Quotas: []admit.Quota{{Queue: queues["default"], Slots: 10}}}
}

// working creates a run whose target has its token. It returns the path of the run and the header with the token.
func (s *service) working(name string) (path, token string) {
	s.t.Helper()
	s.create(jobOf(name, `,"completion":"async","heartbeat_timeout":"1m"`))
	s.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
	batch, err := s.store.Claims.ClaimReady(s.t.Context(), s.claim())
	if err != nil || len(batch.Runs) != 1 {
		s.t.Fatalf("claimed %d runs, error %v", len(batch.Runs), err)
	}
	a := batch.Runs[0]
	return runPath(a.RunID), "Punctual-Run-Token: " + a.RunToken
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run, token := s.working("a")

	beat := into[claim.Heartbeat](s.do("POST", run+"/heartbeat", `{"progress":{"rows":[1,2]}}`, token).want(200))
	if beat.CancelRequested || beat.Deadline.IsZero() {
		t.Errorf("heartbeat %+v", beat)
	}
	s.do("GET", run, "").want(200).shows(`"progress":{"rows":[1,2]}`, `"progress_at":"`, `"queue":"`)
	s.do("GET", run+"/progress", "", token).want(200).shows(`"progress":{"rows":[1,2]}`, `"attempt":1`)
	s.do("POST", run+"/heartbeat", "", token).want(200)
	s.do("POST", run+"/cancel", "").want(202)
	if beat := into[claim.Heartbeat](s.do("POST", run+"/heartbeat", `{}`, token).want(200)); !beat.CancelRequested {
		t.Error("the cancel is not told")
	}
	for range 2 {
		if ended := into[runs.Run](s.do("POST", run+"/complete", "", token).want(200)); ended.Status != domain.StatusCancelled {
			t.Errorf("completed after a cancel: %s", ended.Status)
		}
	}
	s.do("POST", run+"/heartbeat", "", token).code(problem.CodeSuperseded)
	s.do("POST", run+"/fail", "", token).code(problem.CodeSuperseded)

	run, token = s.working("b")
	if failed := into[runs.Run](s.do("POST", run+"/fail", `{"error":"out of ink","retry":false}`,
		token).want(200)); failed.Status != domain.StatusDead || *failed.Error != "out of ink" ||
		*failed.Reason != domain.ReasonFailed {
		t.Errorf("failed: %+v", failed)
	}
	run, token = s.working("c")
	if failed := into[runs.Run](s.do("POST", run+"/fail", "", token).want(200)); failed.Status != domain.StatusRetrying ||
		*failed.Error == "" {
		t.Errorf("failed: %+v", failed)
	}
}

func TestCallbacksThatAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run, token := s.working("a")
	other, _ := s.working("b")
	for _, c := range []struct {
		name, method, path, body, token string
		code                            problem.Code
	}{
		{"without a token", "POST", run + "/heartbeat", "", "X: y", problem.CodeRunToken},
		{"with rubbish for a token", "POST", run + "/complete", "", "Punctual-Run-Token: rubbish", problem.CodeRunToken},
		{
			"with far too much for a token", "POST", run + "/complete", "", "Punctual-Run-Token: " + strings.Repeat("x", 300),
			problem.CodeRunToken,
		},
		{"with the token of another run", "POST", other + "/complete", "", token, problem.CodeRunToken},
		{"of no run", "POST", "/v1/runs/" + uuid.NewString() + "/complete", "", token, problem.CodeRunToken},
		{"of what cannot be a run", "GET", "/v1/runs/x/progress", "", token, problem.CodeRunToken},
		{
			"with too much progress", "POST", run + "/heartbeat", `{"progress":"` + strings.Repeat("x", maxProgress) + `"}`,
			token, problem.CodeInvalid,
		},
		{
			"with far too much progress", "POST", run + "/heartbeat",
			`{"progress":"` + strings.Repeat("x", maxCallbackBody) + `"}`, token, problem.CodeTooLarge,
		},
		{
			"with a progress beyond all numbers", "POST", run + "/heartbeat", `{"progress":[1e999999]}`, token,
			problem.CodeInvalid,
		},
		{
			"with a result beyond all numbers", "POST", run + "/complete", `{"result":[1e999999]}`, token,
			problem.CodeInvalid,
		},
		{"with an unknown field", "POST", run + "/fail", `{"eror":"x"}`, token, problem.CodeInvalid},
		{"with an error that cannot be stored", "POST", run + "/fail", `{"error":"\u0000"}`, token, problem.CodeInvalid},
		{"with what is not JSON", "POST", run + "/heartbeat", `{`, token, problem.CodeMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.in(t).do(c.method, c.path, c.body, c.token).code(c.code)
		})
	}
	if scheme := s.do("POST", run+"/complete", "").
		want(401).header.Get("WWW-Authenticate"); scheme != "Punctual-Run-Token" {
		t.Errorf("a request without a token is asked for %q", scheme)
	}
	s.do("POST", run+"/complete", "", token).want(200) // none of the calls above has ended it
}
