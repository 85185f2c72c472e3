//prove:targets

package prove

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// theRun waits until a job has a run and the run has ended, and returns it.
func theRun(t *testing.T, a *client.Client, job string) runView {
	t.Helper()
	var runs []runView
	await(t, "a run of "+job, func() bool {
		runs = do[struct{ Data []runView }](t, a, "GET", "/v1/jobs/"+job+"/runs", nil).Data
		return len(runs) > 0
	})
	return finalRun(t, a, runs[0].ID)
}

// A target fails, hangs, drops connections or redirects. Each run has its status, reason and number of attempts.
//
// Or says Retry-After.
func TestFailedAttemptsEndAsTheyShould(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	quick := func(attempts int, answers []Answer) process.JobSpec {
		timeout := "5m"
		if slices.ContainsFunc(answers, func(a Answer) bool { return a.Hang }) {
			timeout = "2s"
		}
		return process.JobSpec{
			"schedule": delayed("100ms"), "timeout": timeout,
			"retry": map[string]any{"max_attempts": attempts, "initial_backoff": "10ms", "multiplier": 1, "max_backoff": "10s"},
		}
	}
	busy := Answer{Status: 503, Header: http.Header{"Retry-After": {"2"}}}
	limping := Answer{Status: 500, Header: http.Header{"Retry-After": {"1.1"}}}
	for _, test := range []struct {
		name           string
		answers        []Answer
		attempts       int // how many are allowed
		status, reason string
		outcomes       string // of the attempts
		least          time.Duration
	}{
		{"busy-once", []Answer{busy, {}}, 3, "succeeded", "", "failed succeeded", 1900 * time.Millisecond},
		{"limping-once", []Answer{limping, {}}, 3, "succeeded", "", "failed succeeded", 1900 * time.Millisecond},
		{"broken", []Answer{{Status: 500, Body: "no luck"}}, 3, "dead", "http_5xx", "failed failed failed", 0},
		{"not-found", []Answer{{Status: 404}}, 2, "dead", "http_4xx", "failed failed", 0},
		{"gone", []Answer{{Status: 410}}, 3, "dead", "gone", "failed", 0},
		{
			"redirect",
			[]Answer{{Status: 302, Header: http.Header{"Location": {"/elsewhere"}}}},
			1, "dead", "redirect", "failed", 0,
		},
		{"hangs", []Answer{{Hang: true}}, 2, "dead", "timeout", "timed_out timed_out", 0},
		{"drops", []Answer{{Drop: true}}, 2, "dead", "connect", "failed failed", 0},
		{
			"recovers",
			[]Answer{{Status: 500}, {Hang: true}, {Drop: true}, {Status: 201}},
			5, "succeeded", "", "failed timed_out failed succeeded", 0,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.Script("/"+test.name, test.answers...)
			create(t, r.API, job(test.name, w.URL+"/"+test.name, quick(test.attempts, test.answers)))
			run := theRun(t, r.API, test.name)
			if run.Status != test.status || run.Reason != test.reason {
				t.Errorf("the run is %s (%s), want %s (%s)", run.Status, run.Reason, test.status, test.reason)
			}
			var outcomes []string
			for i, a := range run.Attempts {
				outcomes = append(outcomes, a.Outcome)
				if a.Number != i+1 {
					t.Errorf("attempt %d has the number %d", i+1, a.Number)
				}
			}
			if got := strings.Join(outcomes, " "); got != test.outcomes {
				t.Errorf("the attempts ended %q, want %q", got, test.outcomes)
			}
			requests := w.At("/" + test.name)
			if len(requests) != len(run.Attempts) {
				t.Errorf("%d requests for %d attempts", len(requests), len(run.Attempts))
			}
			if n := len(requests); n > 1 && test.least > 0 && requests[1].At.Sub(requests[0].Ended) < test.least {
				t.Errorf("the second attempt came after %s, Retry-After asked for more", requests[1].At.Sub(requests[0].Ended))
			}
		})
	}
	if n := len(w.At("/elsewhere")); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
	broken := theRun(t, r.API, "broken").Attempts
	if len(broken) == 0 || broken[0].HTTPStatus != 500 || broken[0].Response != "no luck" || broken[0].Error == "" {
		t.Errorf("a failed attempt shows %+v", broken)
	}
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	if len(f.DeadLetters) != 6 {
		t.Errorf("%d dead letters, want 6", len(f.DeadLetters))
	}
}
