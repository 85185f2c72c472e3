package admit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// compiled returns a job from the JSON of a definition.
func compiled(t *testing.T, text string) *domain.Job {
	t.Helper()
	d := jobspec.Definition{Name: "job", Target: jobspec.Target{URL: "http://127.0.0.1:9/hook"}}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	job, err := domain.Compile(uuid.New(), 1, 1, d, 0)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return job
}

func TestHowLongARunWaitsForItsHost(t *testing.T) {
	host := &breaker.Wait{By: "breaker a:80", Why: "waiting: a"}
	hangs := &breaker.Wait{By: "hanging a:80", Why: "waiting: a", Hanging: true}
	job := compiled(t,
		`{"timeout":"7s","retry":{"max_attempts":4,"initial_backoff":"10s","multiplier":3,"max_backoff":"80s"}}`)
	for _, c := range []struct {
		name    string
		attempt int
		wait    *breaker.Wait
		want    time.Duration
	}{
		{"all backoffs", 1, host, (10 + 30 + 80) * time.Second},
		{"those that are left", 3, host, 80 * time.Second},
		{"none is left", 4, host, 0},
		{"of a host that hangs the timeouts too", 1, hangs, (10 + 30 + 80 + 4*7) * time.Second},
		{"so that its last attempt may wait", 4, hangs, 7 * time.Second},
	} {
		if got := patience(domain.Assignment{Job: job, Attempt: c.attempt}, c.wait); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWhatItMeansForARunToBeHeldBack(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	host := &breaker.Wait{
		By: "breaker a:80", Why: "waiting: the circuit breaker of a:80 is open", Failed: due.Add(19 * time.Second), Again: 3 * time.Second,
	}
	hangs := &breaker.Wait{By: "hanging a:80", Why: "waiting: a:80 hangs", Hanging: true, Failed: due.Add(50 * time.Second)}
	recovers := &breaker.Wait{By: "breaker a:80", Why: "waiting: a:80 can be reached again", Again: time.Minute}
	const retry = `"retry":{"max_attempts":3,"initial_backoff":"10s","multiplier":2}`
	for _, c := range []struct {
		name    string
		job     string
		wait    *breaker.Wait
		attempt int
		held    *domain.Held
		after   time.Duration
		want    domain.Outcome
	}{
		{
			"it waits for as long as its backoffs", `{` + retry + `}`, host, 1, nil, 0,
			domain.Outcome{Verdict: domain.Hold, RetryIn: 30 * time.Second, Error: host.Why},
		},
		{
			"from when it first had to", `{` + retry + `}`, host, 1, &domain.Held{Since: due, Until: due.Add(30 * time.Second)},
			20 * time.Second,
			domain.Outcome{Verdict: domain.Hold, RetryIn: 10 * time.Second, Error: host.Why},
		},
		{
			"not beyond its expiry", `{"expires_after":"15s",` + retry + `}`, host, 1, nil, 0,
			domain.Outcome{Verdict: domain.Hold, RetryIn: 15 * time.Second, Error: host.Why},
		},
		{
			"then it is dead", `{` + retry + `}`, host, 2, &domain.Held{Since: due, Until: due.Add(20 * time.Second)}, 20 * time.Second,
			domain.Outcome{
				Verdict: domain.Abandon, Reason: domain.ReasonUnreachable,
				Error: "1 of 3 attempts made, 2 not made; waited 20s: the circuit breaker of a:80 is open",
			},
		},
		{
			"but not where the host was asked only before the last tenth of that time",
			`{` + retry + `}`, host, 2, &domain.Held{Since: due.Add(2 * time.Second), Until: due.Add(22 * time.Second)}, 22 * time.Second,
			domain.Outcome{Verdict: domain.Hold, RetryIn: 3 * time.Second, Error: host.Why},
		},
		{
			"where no backoff is left it waits for a probe", `{` + retry + `}`, host, 3, nil, 20 * time.Second,
			domain.Outcome{Verdict: domain.Hold, RetryIn: 3 * time.Second, Error: host.Why},
		},
		{
			"and dies by it", `{` + retry + `}`, host, 3, &domain.Held{Since: due.Add(18 * time.Second), Until: due.Add(21 * time.Second)},
			21 * time.Second,
			domain.Outcome{
				Verdict: domain.Abandon, Reason: domain.ReasonUnreachable,
				Error: "2 of 3 attempts made, 1 not made; waited 3s: the circuit breaker of a:80 is open",
			},
		},
		{
			"it does not die of a host that recovers", `{` + retry + `}`, recovers, 2,
			&domain.Held{Since: due, Until: due.Add(20 * time.Second)}, 20 * time.Second,
			domain.Outcome{Verdict: domain.Hold, RetryIn: time.Minute, Error: recovers.Why},
		},
		{
			"of a host that hangs it is a timeout", `{` + retry + `}`, hangs, 3, &domain.Held{Since: due, Until: due.Add(time.Minute)},
			time.Minute,
			domain.Outcome{Verdict: domain.Abandon, Reason: domain.ReasonTimeout, Error: "2 of 3 attempts made, 1 not made; waited 1m0s: a:80 hangs"},
		},
	} {
		run := domain.Assignment{Job: compiled(t, c.job), Attempt: c.attempt, DueAt: due, Held: c.held}
		got := domain.Outcome{Assignment: run}
		HoldBack(&got, c.wait, due.Add(c.after))
		if got.Verdict != c.want.Verdict || got.RetryIn != c.want.RetryIn || got.Reason != c.want.Reason ||
			got.Error != c.want.Error {
			t.Errorf("%s: %d after %s, %s, %q", c.name, got.Verdict, got.RetryIn, got.Reason, got.Error)
		}
	}
}

func TestSpellingsOfAPlace(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a.test/x?y=1":                  "a.test:80/x",
		"https://a.test":                       "a.test:443/",
		"https://A.Test.:443/":                 "a.test:443/",
		"https://a.test:0443?x=1":              "a.test:443/",
		"http://a.test:443/":                   "a.test:443/",
		"http://127.0.0.1:8080":                "127.0.0.1:8080/",
		"https://[2001:db8::1]/":               "[2001:db8::1]:443/",
		"https://[2001:DB8::1]:99/":            "[2001:db8::1]:99/",
		"https://[2001:0db8:0:0:0:0:0:1]:443/": "[2001:db8::1]:443/",
		"http://[::ffff:127.0.0.1]:8080":       "127.0.0.1:8080/",
		"http://a.test/%61%2db/%7e":            "a.test:80/a-b/~",
		"http://a.test/a%20b":                  "a.test:80/a%20b",
		"http://a.test/a%2Fb":                  "a.test:80/a%2Fb",
		"http://a.test/a/b":                    "a.test:80/a/b",
		"http://a.test/A/":                     "a.test:80/A/",
	} {
		u, err := wire.CheckURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := placeOf(7, u); got.Tenant != 7 || got.Host+got.Path != want {
			t.Errorf("%s: %v, want %s", raw, got, want)
		}
	}
}

func TestWhatAnAnswerSaysAboutItsHost(t *testing.T) {
	for _, c := range []struct {
		result wire.Result
		want   breaker.Answer
	}{
		{wire.Result{Status: 200, Sent: true}, breaker.Answered},
		{wire.Result{Status: 302, Sent: true, Reason: wire.ReasonRedirect}, breaker.Answered},
		{wire.Result{Status: 404, Sent: true, Reason: wire.ReasonHTTP4xx}, breaker.Answered},
		{wire.Result{Status: 503, Sent: true, Reason: wire.ReasonHTTP5xx}, breaker.Answered},
		{wire.Result{Status: 200, Sent: true, Reason: wire.ReasonTimeout}, breaker.Answered},
		{wire.Result{Sent: true, Reason: wire.ReasonTimeout}, breaker.Reached},
		{wire.Result{Sent: true, Reason: wire.ReasonConnect}, breaker.Reached},
		{wire.Result{Reason: wire.ReasonConnect}, breaker.Unreachable},
		{wire.Result{Reason: wire.ReasonTimeout}, breaker.Unreachable},
		{wire.Result{Reason: wire.ReasonTLS}, breaker.Unreachable},
		{wire.Result{Sent: true, Reason: wire.ReasonTLS}, breaker.Unreachable},
		{wire.Result{Reason: wire.ReasonBlockedAddress}, breaker.Unknown},
		{wire.Result{Reason: wire.ReasonConnect, Lacks: "file descriptors"}, breaker.Unknown},
		{wire.Result{Reason: wire.ReasonConnect, Proxy: true}, breaker.Unknown},
		{wire.Result{Reason: wire.Reason(domain.ReasonAuth)}, breaker.Unknown},
		{wire.Result{Cancelled: true}, breaker.Unknown},
		{wire.Result{Status: 500, Cancelled: true}, breaker.Answered},
	} {
		if got := hostAnswer(c.result); got != c.want {
			t.Errorf("%+v: %d, want %d", c.result, got, c.want)
		}
	}
}
