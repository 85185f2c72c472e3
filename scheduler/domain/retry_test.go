package domain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"punctual/scheduler/delivery/wire"
)

func TestBackoff(t *testing.T) {
	const almostOne = 1 - 1e-12
	for _, c := range []struct {
		name, retry string
		attempt     int
		retryAfter  time.Duration
		want        time.Duration // the longest wait; the shortest is half of it
		shortest    time.Duration // the shortest wait, if it is not half the longest
	}{
		{name: "10 s after the first failure", attempt: 1, want: 10 * time.Second},
		{name: "30 s after the second", attempt: 2, want: 30 * time.Second},
		{name: "90 s after the third", attempt: 3, want: 90 * time.Second},
		{name: "4.5 min after the fourth", attempt: 4, want: 270 * time.Second},
		{name: "at most max_backoff", attempt: 7, want: time.Hour},
		{
			name: "at most max_backoff, however many", retry: `"max_attempts":100,"multiplier":100`, attempt: 99,
			want: time.Hour,
		},
		{
			name: "constant with a multiplier of 1", retry: `"multiplier":1,"initial_backoff":"7s"`, attempt: 50,
			want: 7 * time.Second,
		},
		{name: "none at all", retry: `"initial_backoff":"0s"`, attempt: 99, want: 0},
		{name: "max_backoff below the first one", retry: `"max_backoff":"1s"`, attempt: 1, want: time.Second},
		{
			name:    "what the server asked for, and up to a tenth more",
			attempt: 1, retryAfter: 10 * time.Minute, shortest: 10 * time.Minute,
			want: 11 * time.Minute,
		},
		{
			name: "less, if the server asked for less", attempt: 4, retryAfter: time.Second, shortest: time.Second,
			want: 1100 * time.Millisecond,
		},
		{
			name: "no more than max_backoff with it", attempt: 1, retryAfter: 59 * time.Minute, shortest: 59 * time.Minute,
			want: time.Hour,
		},
		{
			name:    "the server's wish up to max_backoff, spread all the same",
			attempt: 1, retryAfter: 25 * time.Hour, shortest: 54 * time.Minute,
			want: time.Hour,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			retry := compiled(t, `{"retry":{`+c.retry+`}}`).Retry
			least, most := retry.Backoff(c.attempt, c.retryAfter, 0), retry.Backoff(c.attempt, c.retryAfter, almostOne)
			least, most = min(least, most), max(least, most)
			shortest := c.want / 2
			if c.shortest > 0 {
				shortest = c.shortest
			}
			if least < shortest || least > shortest+time.Millisecond {
				t.Errorf("at the least %s, want %s", least, shortest)
			}
			if most > c.want || most < c.want-time.Millisecond {
				t.Errorf("at the most %s, want %s", most, c.want)
			}
		})
	}
}

// With the default retries, a failing run is dead after at most seven minutes plus the time its attempts take.
func TestDefaultRetriesEndWithinSevenMinutes(t *testing.T) {
	t.Parallel()
	retry := compiled(t, `{}`).Retry
	var sum time.Duration
	for attempt := 1; attempt < retry.MaxAttempts; attempt++ {
		sum += retry.Backoff(attempt, 0, 1)
	}
	if retry.MaxAttempts != 5 || sum != 400*time.Second {
		t.Errorf("%d attempts, %s between the first and the last", retry.MaxAttempts, sum)
	}
}

func TestJudge(t *testing.T) {
	failed := wire.Result{Status: 500, Reason: wire.ReasonHTTP5xx, Sent: true}
	gone := wire.Result{Status: 410, Reason: wire.ReasonHTTP4xx, Sent: true}
	refused := wire.Result{Reason: wire.ReasonConnect, Error: "refused"}
	for _, c := range []struct {
		name, job string
		attempt   int
		result    wire.Result
		want      Outcome
		status    Status // of the run then
		ended     AttemptOutcome
	}{
		{
			name: "a success", attempt: 2, result: wire.Result{Status: 204, Sent: true},
			want:   Outcome{Verdict: Succeed, HTTPStatus: 204},
			status: StatusSucceeded, ended: AttemptSucceeded,
		},
		{
			name: "a failure is tried again", attempt: 1,
			result: wire.Result{
				Status: 500, Reason: wire.ReasonHTTP5xx, Error: "500", Body: []byte("oops"), Sent: true,
			},
			want:   Outcome{Verdict: RetryRun, HTTPStatus: 500, Reason: ReasonHTTP5xx, Error: "500: oops", Response: "oops"},
			status: StatusRetrying, ended: AttemptFailed,
		},
		{
			name: "a timeout is tried again", attempt: 1,
			result: wire.Result{Reason: wire.ReasonTimeout, Error: "too slow", Sent: true},
			want:   Outcome{Verdict: RetryRun, Reason: ReasonTimeout, Error: "too slow"},
			status: StatusRetrying, ended: AttemptTimedOut,
		},
		{
			name: "a forbidden address is tried again, as names move and lists change", attempt: 1,
			result: wire.Result{Reason: wire.ReasonBlockedAddress, Error: "private"},
			want:   Outcome{Verdict: RetryRun, Reason: ReasonBlockedAddress, Error: "private"},
			status: StatusRetrying, ended: AttemptFailed,
		},
		{
			name: "also where nothing may be sent twice, as nothing was sent", job: `"delivery":"at_most_once"`, attempt: 1,
			result: wire.Result{Reason: wire.ReasonBlockedAddress},
			want:   Outcome{Verdict: RetryRun, Reason: ReasonBlockedAddress},
			status: StatusRetrying, ended: AttemptFailed,
		},
		{
			name: "the last attempt buries the run", attempt: 5, result: failed,
			want:   Outcome{Verdict: Bury, HTTPStatus: 500, Reason: ReasonHTTP5xx},
			status: StatusDead, ended: AttemptFailed,
		},
		{
			name: "the last but one does not", attempt: 4, result: failed,
			want:   Outcome{Verdict: RetryRun, HTTPStatus: 500, Reason: ReasonHTTP5xx},
			status: StatusRetrying, ended: AttemptFailed,
		},
		{
			name: "410 ends it at once", attempt: 1, result: gone,
			want:   Outcome{Verdict: Bury, HTTPStatus: 410, Reason: ReasonGone},
			status: StatusDead, ended: AttemptFailed,
		},
		{
			name: "unless the job says otherwise", job: `"retry":{"give_up_on":[]}`, attempt: 1, result: gone,
			want:   Outcome{Verdict: RetryRun, HTTPStatus: 410, Reason: ReasonHTTP4xx},
			status: StatusRetrying, ended: AttemptFailed,
		},
		{
			name: "statuses of its own end it at once", job: `"retry":{"give_up_on":[400,301]}`, attempt: 1,
			result: wire.Result{Status: 301, Reason: wire.ReasonRedirect, Sent: true},
			want:   Outcome{Verdict: Bury, HTTPStatus: 301, Reason: ReasonGone},
			status: StatusDead, ended: AttemptFailed,
		},
		{
			name: "a retry that would start expired is not waited for", job: `"expires_after":"5s"`, attempt: 1, result: refused,
			want:   Outcome{Verdict: Bury, Reason: ReasonExpired, Error: "refused"},
			status: StatusDead, ended: AttemptFailed,
		},
		{
			name: "one that would start in time is", job: `"expires_after":"12s"`, attempt: 1, result: refused,
			want:   Outcome{Verdict: RetryRun, Reason: ReasonConnect, Error: "refused"},
			status: StatusRetrying, ended: AttemptFailed,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			due := instant(t, "03:00")
			a := Assignment{Job: compiled(t, "{"+c.job+"}"), DueAt: due, Attempt: c.attempt}
			c.want.Assignment, c.want.StartedAt, c.want.FinishedAt = a, due.Add(time.Second), due.Add(2*time.Second)
			got := Judge(a, c.result, due.Add(time.Second), due.Add(2*time.Second))
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Outcome{}, "RetryIn", "Assignment", "Release")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			longest := a.Job.Retry.Backoff(c.attempt, 0, 1)
			if got.Verdict == RetryRun && (got.RetryIn < longest/2 || got.RetryIn > longest) {
				t.Errorf("the next attempt is to come in %s", got.RetryIn)
			}
			end := End{Status: c.status, Attempt: c.ended, Counts: true, Number: c.attempt}
			if diff := cmp.Diff(end, got.End()); diff != "" {
				t.Errorf("End, -want +got:\n%s", diff)
			}
		})
	}
}

func TestJudgeHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	a := Assignment{Job: compiled(t, "{}"), Attempt: 1}
	o := Judge(a, wire.Result{
		Status: 503, Reason: wire.ReasonHTTP5xx, RetryAfter: 11 * time.Minute, Sent: true,
	}, time.Time{}, time.Time{})
	if o.RetryIn < 11*time.Minute || o.RetryIn > 11*time.Minute+66*time.Second {
		t.Errorf("the next attempt is to come in %s", o.RetryIn)
	}
}

func TestEndsThatDoNotCount(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict Verdict
		attempt int
		want    End
	}{
		{"a run that was never sent and expires is skipped", Expire, 1, End{Status: StatusSkipped}},
		{"one that was sent before is dead", Expire, 3, End{Status: StatusDead, Number: 2}},
		{"one given back is pending, and its attempt was none", GiveBack, 3, End{Status: StatusPending, Number: 2}},
		{
			"one interrupted is retrying, and its attempt is recorded",
			Interrupt, 3,
			End{Status: StatusRetrying, Attempt: AttemptInterrupted, Number: 3},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Outcome{Assignment: Assignment{Attempt: c.attempt}, Verdict: c.verdict}
			if diff := cmp.Diff(c.want, o.End()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
