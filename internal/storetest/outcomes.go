package storetest

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// Ending is how an attempt ends.
type Ending = func(domain.Assignment) domain.Outcome

// Ended is the outcome of an attempt.
func Ended(a domain.Assignment, v domain.Verdict) domain.Outcome {
	return domain.Outcome{
		Assignment: a, Verdict: v, StartedAt: a.Lease.ClaimedAt, FinishedAt: a.Lease.ClaimedAt.Add(time.Millisecond),
	}
}

// Succeeded is an outcome: a 200.
func Succeeded(a domain.Assignment) domain.Outcome {
	o := Ended(a, domain.Succeed)
	o.HTTPStatus = 200
	return o
}

// Failed is an outcome: a 503 that is retried.
func Failed(a domain.Assignment) domain.Outcome {
	o := Ended(a, domain.RetryRun)
	o.HTTPStatus, o.Reason, o.Error, o.Response, o.RetryIn = 503, domain.ReasonHTTP5xx,
		"503 Service Unavailable", "busy", time.Minute
	return o
}

// Buried is an outcome: the last attempt failed.
func Buried(a domain.Assignment) domain.Outcome {
	o := Failed(a)
	o.Verdict, o.RetryIn = domain.Bury, 0
	return o
}

// Interrupted is an outcome: the replica stopped before the answer.
func Interrupted(a domain.Assignment) domain.Outcome { return Ended(a, domain.Interrupt) }

// Cancelled is an outcome: a cancel reached the attempt.
func Cancelled(a domain.Assignment) domain.Outcome {
	o := Ended(a, domain.Cancel)
	o.Reason = domain.ReasonCancelled
	return o
}

// GivenBack is an outcome: the run was not sent, and another replica may send it.
func GivenBack(a domain.Assignment) domain.Outcome { return Unsent(a, domain.GiveBack) }

// Expired is an outcome: the run was not sent in time.
func Expired(a domain.Assignment) domain.Outcome {
	o := Unsent(a, domain.Expire)
	o.Reason = domain.ReasonExpired
	return o
}

// Unsent is the outcome of an attempt without a request.
func Unsent(a domain.Assignment, v domain.Verdict) domain.Outcome {
	return domain.Outcome{Assignment: a, Verdict: v, FinishedAt: a.Lease.ClaimedAt}
}

// Finish writes outcomes, and says how many were of superseded attempts.
func (c Replica) Finish(outcomes ...domain.Outcome) (superseded int) {
	c.T.Helper()
	superseded, err := c.Claims.Finish(c.T.Context(), outcomes, nil)
	Must(c.T, err)
	return superseded
}

// FinishAndRelease writes an outcome and ends its lease.
func (c Replica) FinishAndRelease(o domain.Outcome) {
	c.T.Helper()
	if _, err := c.Claims.Finish(c.T.Context(), []domain.Outcome{o}, []uuid.UUID{o.Lease.ID}); err != nil {
		c.T.Fatal(err)
	}
}

// Manual triggers a run of a new job and claims it.
func (c Replica) Manual(name string, options ...Option) domain.Assignment {
	c.T.Helper()
	c.Create(name, append([]Option{Never}, options...)...)
	if _, err := c.For(c.Tenant).TriggerJob(c.T.Context(), name,
		jobs.TriggerRequest{Body: []byte(`"x"`), Headers: map[string]string{"X-A": "b"}}); err != nil {
		c.T.Fatal(err)
	}
	return c.One(c.ClaimReady(10))
}

// left is an SQL expression for the seconds until an instant. It gives the value that was set, although up to ten
// seconds have passed since.
func left(at string) string {
	return `(SELECT coalesce(CASE WHEN s < 0.5 THEN 0 END, min(g) FILTER (WHERE s <= g AND s > g - 10), round(s))
		FROM unnest(ARRAY[6, 12, 20, 40, 60, 300]) g, (SELECT extract(epoch FROM ` + at + ` - now()) AS s) w GROUP BY s)`
}

// State describes a run with its row in ready, its dead letter and its attempts.
func (c Replica) State(run uuid.UUID) string {
	c.T.Helper()
	return Value[string](c.Fixture, `
		SELECT concat_ws(' ', r.status, r.reason, r.http_status, 'attempt ' || r.attempt,
			CASE WHEN r.finished_at IS NOT NULL THEN 'finished' END,
			CASE WHEN r.next_attempt_at IS NOT NULL THEN 'next in ' || `+left("r.next_attempt_at")+` END,
			(SELECT 'ready in ' || `+left("y.due_at")+` FROM punctual.ready y WHERE y.run_id = r.id),
			(SELECT 'dead letter of ' || d.attempts || ' ' || d.reason FROM punctual.dead_letters d WHERE d.run_id = r.id),
			(SELECT 'attempts: '
					|| string_agg(a.number || ' ' || a.outcome || coalesce(' ' || a.reason, ''), ', ' ORDER BY a.fence)
				FROM punctual.attempts a
				WHERE a.run_id = r.id))
		FROM punctual.runs r
		WHERE r.id = $1`, run)
}

// WantState compares a run with what State says of it.
func (c Replica) WantState(run uuid.UUID, want string) {
	c.T.Helper()
	if got := c.State(run); got != want {
		c.T.Errorf("the run is\n %s\nwant\n %s", got, want)
	}
}
