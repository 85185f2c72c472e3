package domain

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
)

func TestRunTokens(t *testing.T) {
	t.Parallel()
	key, run := bytes.Repeat([]byte("k"), 32), uuid.New()
	token := RunToken(key, run, 42)
	if fence, err := ReadRunToken(key, run, token); fence != 42 || err != nil {
		t.Errorf("read %d, error %v", fence, err)
	}
	if token == RunToken(key, run, 43) {
		t.Error("two attempts have the same token")
	}
	flipped := []byte(token)
	flipped[10] ^= 1
	for name, read := range map[string]func() (int64, error){
		"another run":   func() (int64, error) { return ReadRunToken(key, uuid.New(), token) },
		"another key":   func() (int64, error) { return ReadRunToken(bytes.Repeat([]byte("x"), 32), run, token) },
		"changed":       func() (int64, error) { return ReadRunToken(key, run, string(flipped)) },
		"cut":           func() (int64, error) { return ReadRunToken(key, run, token[:len(token)-4]) },
		"longer":        func() (int64, error) { return ReadRunToken(key, run, token+"AAAA") },
		"no prefix":     func() (int64, error) { return ReadRunToken(key, run, strings.TrimPrefix(token, "prt_")) },
		"empty":         func() (int64, error) { return ReadRunToken(key, run, "") },
		"not of base64": func() (int64, error) { return ReadRunToken(key, run, "prt_"+strings.Repeat("!", 54)) },
	} {
		if fence, err := read(); fence != 0 || !errors.Is(err, ErrRunToken) {
			t.Errorf("%s: read %d, error %v", name, fence, err)
		}
	}
}

// judged returns the first attempt of a job with the given definition.
func judged(t *testing.T, definition string) Assignment {
	t.Helper()
	return Assignment{RunID: uuid.New(), Job: compiled(t, definition), Attempt: 1, DueAt: time.Unix(1e9, 0)}
}

func TestWhatEndsAnAttempt(t *testing.T) {
	t.Parallel()
	const (
		plain    = `{"retry":{"max_attempts":2}}`
		once     = `{"retry":{"max_attempts":2},"delivery":"at_most_once"}`
		callback = `{"retry":{"max_attempts":2},"completion":"async","concurrency_policy":"forbid","max_duration":"1h"}`
		gated    = `{"retry":{"max_attempts":2},"concurrency_policy":"forbid"}`
		bold     = `{"retry":{"max_attempts":2,"after_timeout":true},"concurrency_policy":"forbid"}`
		urgent   = `{"retry":{"max_attempts":2},"completion":"async","expires_after":"90s"}`
	)
	started := time.Unix(1e9, 0)
	soon, late := started.Add(time.Minute), started.Add(time.Hour)
	answered := func(status int, reason wire.Reason) func(Assignment) Outcome {
		return func(a Assignment) Outcome {
			return Judge(a, wire.Result{Status: status, Reason: reason, Sent: true}, started, soon)
		}
	}
	unsent := func(a Assignment) Outcome {
		return Judge(a, wire.Result{Reason: wire.ReasonConnect}, started, soon)
	}
	slowToConnect := func(a Assignment) Outcome {
		return Judge(a, wire.Result{Reason: wire.ReasonTimeout}, started, soon)
	}
	lost := func(a Assignment) Outcome { return JudgeLost(a, 0, started, soon) }
	interrupted := func(a Assignment) Outcome {
		return JudgeInterrupted(a, started, soon, errors.New("the replica is stopping"))
	}
	silent := func(a Assignment) Outcome { return JudgeSilent(a, 0, started, soon) }
	endless := func(a Assignment) Outcome { return JudgeSilent(a, 0, started, late) }
	reported := func(retry bool, at time.Time) func(Assignment) Outcome {
		return func(a Assignment) Outcome { return JudgeReported(a, "x", retry, started, at) }
	}
	for _, c := range []struct {
		name, job string
		judge     func(Assignment) Outcome
		verdict   Verdict
		reason    Reason
	}{
		{"202 is a success", plain, answered(202, ""), Succeed, ""},
		{"202 is accepted work, async", callback, answered(202, ""), Await, ""},
		{"any other 2xx is done, async too", callback, answered(200, ""), Succeed, ""},
		{"a failure is retried", plain, answered(500, "http_5xx"), RetryRun, ReasonHTTP5xx},
		{"a failure is the end, at most once", once, answered(500, "http_5xx"), Bury, ReasonHTTP5xx},
		{"so is a timeout", once, answered(0, "timeout"), Bury, ReasonTimeout},
		{"what was certainly not sent is retried, at most once too", once, unsent, RetryRun, ReasonConnect},
		{"a lost attempt is retried", plain, lost, RetryRun, ReasonLost},
		{"a lost attempt may have been sent: the end, at most once", once, lost, Bury, ReasonLost},
		{"an interrupted attempt is made again", plain, interrupted, Interrupt, ""},
		{"an interrupted attempt may have been sent: the end, at most once", once, interrupted, Bury, ReasonLost},
		{"a silent target has lost its attempt", callback, silent, RetryRun, ReasonSilent},
		{"an endless one is timed out, and may still be working", callback, endless, Bury, ReasonTimeout},
		{"a timeout is retried", plain, answered(0, "timeout"), RetryRun, ReasonTimeout},
		{"or not, if runs must not overlap: the target may still be working", gated, answered(0, "timeout"), Bury, ReasonTimeout},
		{"unless the job says so", bold, answered(0, "timeout"), RetryRun, ReasonTimeout},
		{"a timeout before anything was sent is retried", gated, slowToConnect, RetryRun, ReasonTimeout},
		{"so is a failure that the target answered", gated, answered(500, "http_5xx"), RetryRun, ReasonHTTP5xx},
		{"a reported failure is retried", callback, reported(true, soon), RetryRun, ReasonFailed},
		{"or not", callback, reported(false, soon), Bury, ReasonFailed},
		{"or not, whatever would have become of the next attempt", urgent, reported(false, late), Bury, ReasonFailed},
		{"a reported failure after which there is no time is the end", urgent, reported(true, late), Bury, ReasonExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			if o := c.judge(judged(t, c.job)); o.Verdict != c.verdict || o.Reason != c.reason {
				t.Errorf("verdict %d, reason %q; want %d, %q", o.Verdict, o.Reason, c.verdict, c.reason)
			}
		})
	}
}

// What follows no timeout is said where another attempt would have followed.
func TestATimeoutSaysWhyNoAttemptFollows(t *testing.T) {
	t.Parallel()
	for attempt, said := range map[int]bool{1: true, 2: false} {
		a := judged(t, `{"retry":{"max_attempts":2,"after_timeout":false}}`)
		a.Attempt = attempt
		o := Judge(a, wire.Result{Reason: wire.ReasonTimeout, Sent: true}, time.Unix(1e9, 0), time.Unix(1e9, 0))
		if got := strings.Contains(o.Error, "retry.after_timeout"); got != said || o.Verdict != Bury {
			t.Errorf("attempt %d: %q", attempt, o.Error)
		}
	}
}

func TestCallbackDeadline(t *testing.T) {
	t.Parallel()
	job := compiled(t, `{"completion":"async","heartbeat_timeout":"5m","max_duration":"12m"}`)
	start := time.Unix(1e9, 0)
	for after, want := range map[time.Duration]time.Duration{
		0: 5 * time.Minute, 3 * time.Minute: 8 * time.Minute, 8 * time.Minute: 12 * time.Minute, time.Hour: 12 * time.Minute,
	} {
		if got := job.CallbackDeadline(start, start.Add(after)).Sub(start); got != want {
			t.Errorf("heard of after %s, the deadline is at %s, want %s", after, got, want)
		}
	}
}

func TestSilenceThriceIsNoPoison(t *testing.T) {
	t.Parallel()
	a := judged(t, `{"completion":"async"}`)
	if o := JudgeSilent(a, 2, time.Unix(0, 0), time.Unix(400, 0)); o.Verdict != Bury ||
		o.Reason != ReasonSilent || o.End().Attempt != AttemptLost {
		t.Errorf("verdict %d, reason %s, attempt %s", o.Verdict, o.Reason, o.End().Attempt)
	}
}
