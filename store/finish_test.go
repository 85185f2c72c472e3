package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// ending is how an attempt ends.
type ending = func(domain.Assignment) domain.Outcome

func ended(a domain.Assignment, v domain.Verdict) domain.Outcome {
	return domain.Outcome{
		Assignment: a, Verdict: v, StartedAt: a.Lease.ClaimedAt, FinishedAt: a.Lease.ClaimedAt.Add(time.Millisecond),
	}
}

func succeeded(a domain.Assignment) domain.Outcome {
	o := ended(a, domain.Succeed)
	o.HTTPStatus = 200
	return o
}

func failed(a domain.Assignment) domain.Outcome {
	o := ended(a, domain.RetryRun)
	o.HTTPStatus, o.Reason, o.Error, o.Response, o.RetryIn = 503, domain.ReasonHTTP5xx,
		"503 Service Unavailable", "busy", time.Minute
	return o
}

func buried(a domain.Assignment) domain.Outcome {
	o := failed(a)
	o.Verdict, o.RetryIn = domain.Bury, 0
	return o
}

func interrupted(a domain.Assignment) domain.Outcome { return ended(a, domain.Interrupt) }

func cancelled(a domain.Assignment) domain.Outcome {
	o := ended(a, domain.Cancel)
	o.Reason = domain.ReasonCancelled
	return o
}

func givenBack(a domain.Assignment) domain.Outcome { return unsent(a, domain.GiveBack) }

func expired(a domain.Assignment) domain.Outcome {
	o := unsent(a, domain.Expire)
	o.Reason = domain.ReasonExpired
	return o
}

func unsent(a domain.Assignment, v domain.Verdict) domain.Outcome {
	return domain.Outcome{Assignment: a, Verdict: v, FinishedAt: a.Lease.ClaimedAt}
}

func (c claimer) finish(outcomes ...domain.Outcome) (superseded int) {
	c.t.Helper()
	superseded, err := c.Claims.Finish(c.t.Context(), outcomes, nil)
	must(c.t, err)
	return superseded
}

// finishAndRelease writes an outcome and ends its lease.
func (c claimer) finishAndRelease(o domain.Outcome) {
	c.t.Helper()
	if _, err := c.Claims.Finish(c.t.Context(), []domain.Outcome{o}, []uuid.UUID{o.Lease.ID}); err != nil {
		c.t.Fatal(err)
	}
}

// manual triggers a run of a new job and claims it.
func (c claimer) manual(name string, options ...option) domain.Assignment {
	c.t.Helper()
	c.create(name, append([]option{never}, options...)...)
	if _, err := c.For(c.tenant).TriggerJob(c.t.Context(), name,
		jobs.TriggerRequest{Body: []byte(`"x"`), Headers: map[string]string{"X-A": "b"}}); err != nil {
		c.t.Fatal(err)
	}
	return c.one(c.claimReady(10))
}

// left is an SQL expression for the seconds until an instant. It gives the value that was set, although up to ten
// seconds have passed since.
func left(at string) string {
	return `(SELECT coalesce(CASE WHEN s < 0.5 THEN 0 END, min(g) FILTER (WHERE s <= g AND s > g - 10), round(s))
		FROM unnest(ARRAY[6, 12, 20, 40, 60, 300]) g, (SELECT extract(epoch FROM ` + at + ` - now()) AS s) w GROUP BY s)`
}

// state describes a run with its row in ready, its dead letter and its attempts.
func (c claimer) state(run uuid.UUID) string {
	c.t.Helper()
	return value[string](c.crud, `
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

func (c claimer) wantState(run uuid.UUID, want string) {
	c.t.Helper()
	if got := c.state(run); got != want {
		c.t.Errorf("the run is\n %s\nwant\n %s", got, want)
	}
}

func TestFinish(t *testing.T) {
	timedOut := func(a domain.Assignment) domain.Outcome {
		o := failed(a)
		o.HTTPStatus, o.Reason = 0, domain.ReasonTimeout
		return o
	}
	putOff := func(a domain.Assignment) domain.Outcome {
		o := unsent(a, domain.GiveBack)
		o.RetryIn, o.Error = 12*time.Second, "waiting: the circuit breaker is open"
		return o
	}
	cancel := func(a domain.Assignment) domain.Outcome {
		o := unsent(a, domain.Cancel)
		o.Reason = domain.ReasonCancelled
		return o
	}
	interrupt := func(a domain.Assignment) domain.Outcome {
		o := ended(a, domain.Interrupt)
		o.Error = "the replica is stopping"
		return o
	}
	for _, c := range []struct {
		name string
		ends []ending // the outcomes of successive attempts
		want string
	}{
		{"a success", []ending{succeeded}, "succeeded 200 attempt 1 finished"},
		{
			"a failure waits for its next attempt",
			[]ending{failed},
			"retrying http_5xx 503 attempt 1 next in 60 ready in 60 attempts: 1 failed http_5xx",
		},
		{
			"a success at last leaves no reason",
			[]ending{failed, timedOut, succeeded},
			"succeeded 200 attempt 3 finished attempts: 1 failed http_5xx, 2 timed_out timeout",
		},
		{
			"an exhausted run is dead",
			[]ending{failed, buried},
			"dead http_5xx 503 attempt 2 finished dead letter of 2 http_5xx attempts: 1 failed http_5xx, 2 failed http_5xx",
		},
		{"one given back is pending and has not been tried", []ending{givenBack}, "pending attempt 0 ready in 0"},
		{
			"given back after a failure it keeps its number",
			[]ending{failed, givenBack},
			"pending attempt 1 ready in 0 attempts: 1 failed http_5xx",
		},
		{
			"given back and sent again it is the same attempt",
			[]ending{givenBack, succeeded},
			"succeeded 200 attempt 1 finished",
		},
		{
			"put off it is pending for as long, and has not been tried",
			[]ending{putOff},
			"pending attempt 0 next in 12 ready in 12",
		},
		{
			"put off after a failure it keeps its number",
			[]ending{failed, putOff},
			"pending attempt 1 next in 12 ready in 12 attempts: 1 failed http_5xx",
		},
		{
			"put off again and again and then sent it is the same attempt",
			[]ending{putOff, putOff, succeeded},
			"succeeded 200 attempt 1 finished",
		},
		{
			"an interrupted attempt is recorded and does not count",
			[]ending{interrupt},
			"retrying attempt 0 next in 0 ready in 0 attempts: 1 interrupted",
		},
		{
			"after an interruption the number comes again",
			[]ending{interrupt, failed, buried},
			"dead http_5xx 503 attempt 2 finished dead letter of 2 http_5xx attempts: 1 interrupted, 1 failed http_5xx, " +
				"2 failed http_5xx",
		},
		{
			"expired after an interruption it was sent, and is dead",
			[]ending{interrupt, expired},
			"dead expired attempt 0 finished dead letter of 0 expired attempts: 1 interrupted",
		},
		{"expired and never sent it is skipped", []ending{expired}, "skipped expired attempt 0 finished"},
		{
			"cancelled before it was sent it has no attempt",
			[]ending{cancel},
			"cancelled cancelled_by_user attempt 0 finished",
		},
		{
			"cancelled before it was sent again it keeps the attempt before",
			[]ending{failed, cancel},
			"cancelled cancelled_by_user attempt 1 finished attempts: 1 failed http_5xx",
		},
		{
			"expired and sent before it is dead",
			[]ending{failed, expired},
			"dead expired attempt 1 finished dead letter of 1 expired attempts: 1 failed http_5xx",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			a := r.manual("job")
			for i, end := range c.ends {
				if i > 0 {
					fence := a.Fence
					if a = r.again(); a.Fence <= fence {
						t.Errorf("fence %d after %d", a.Fence, fence)
					}
				}
				if n := r.finish(end(a)); n != 0 {
					t.Errorf("%d superseded", n)
				}
			}
			r.wantState(a.RunID, c.want)
		})
	}
}

func TestWhyARunIsPutOffShowsForAsLongAsItIs(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job", forbid)
	o := unsent(a, domain.GiveBack)
	o.RetryIn, o.Error = 12*time.Second, "waiting: the circuit breaker is open"
	c.finish(o)
	shown := func() string {
		t.Helper()
		run := c.run(a.RunID)
		return fmt.Sprint(run.Status, " ", orEmpty(run.Error), run.NextAttemptAt != nil)
	}
	if got, want := shown(), "pending "+o.Error+"true"; got != want {
		t.Errorf("put off it is %s, want %s", got, want)
	}
	if !c.hasGate(a.Job.ID, a.RunID) {
		t.Error("it lost the gate of its job")
	}
	if batch := c.claimReady(10); len(batch.Runs) != 0 {
		t.Error("it is claimed before its time")
	}
	a = c.again()
	if got := shown(); got != "running false" {
		t.Errorf("tried again it is %s", got)
	}
	c.finish(succeeded(a))
	if got := shown(); got != "succeeded false" {
		t.Errorf("in the end it is %s", got)
	}
}

func TestADeadLetterHasWhatAReplayNeeds(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job")
	c.finish(buried(a))
	var name, trigger, reason, text, headers, body string
	var version, attempts, status int
	var slot time.Time
	err := c.DB.Callers.QueryRow(t.Context(), `SELECT job_name, job_version, scheduled_for, trigger, reason, attempts,
			http_status, error, headers, convert_from(body, 'UTF8')
		FROM punctual.dead_letters
		WHERE run_id = $1 AND job_id = $2 AND tenant = $3 AND resolved_at IS NULL`, a.RunID, a.Job.ID, c.tenant).
		Scan(&name, &version, &slot, &trigger, &reason, &attempts, &status, &text, &headers, &body)
	must(t, err)
	got := fmt.Sprint(name, version, slot.Equal(a.ScheduledFor), trigger, reason, attempts, status, text, headers, body)
	if want := fmt.Sprint("job", 1, true, "manual", "http_5xx", 1, 503, "503 Service Unavailable",
		`{"X-A": "b"}`, `"x"`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestASupersededOutcomeChangesNothing(t *testing.T) {
	for name, end := range map[string]ending{
		"a success": succeeded, "a failure": failed, "a burial": buried,
		"one given back": givenBack, "an expiry": expired,
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			old := c.manual("job", forbid)
			c.finish(givenBack(old))
			current := c.one(c.claimReady(10))
			before := c.state(old.RunID)
			if n := c.finish(end(old)); n != 1 {
				t.Errorf("%d superseded, want 1", n)
			}
			c.wantState(old.RunID, before)
			if !c.hasGate(old.Job.ID, old.RunID) {
				t.Error("the gate was freed")
			}
			if n := c.finish(succeeded(current)); n != 0 {
				t.Error("the attempt that holds the run cannot end it")
			}
		})
	}
}

// When the answer to a commit is lost, the finisher writes the same outcomes again.
func TestFinishIsIdempotent(t *testing.T) {
	c := newClaimer(t)
	ok, retried, dead := c.manual("a"), c.manual("b"), c.manual("c")
	outcomes := []domain.Outcome{succeeded(ok), failed(retried), buried(dead)}
	c.finish(outcomes...)
	var before []string
	for _, o := range outcomes {
		before = append(before, c.state(o.RunID))
	}
	if n := c.finish(outcomes...); n != 3 {
		t.Errorf("%d superseded, want 3", n)
	}
	for i, o := range outcomes {
		c.wantState(o.RunID, before[i])
	}
}

func TestFinishSpansDays(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", every(24*time.Hour), missed(domain.MissedFireAll), window(30*24*time.Hour))
	slot := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -9)
	c.setNext(job.ID, slot)
	batch := c.claim(100, true)
	if len(batch.Runs) < 9 {
		t.Fatalf("%d runs", len(batch.Runs))
	}
	outcomes := make([]domain.Outcome, 0, len(batch.Runs))
	for i, a := range batch.Runs {
		outcomes = append(outcomes, []domain.Outcome{succeeded(a), failed(a), buried(a)}[i%3])
	}
	outcomes[0], outcomes[5] = outcomes[5], outcomes[0]
	if n := c.finish(outcomes...); n != 0 {
		t.Errorf("%d superseded", n)
	}
	for _, o := range outcomes {
		if want := string(o.End().Status); !strings.HasPrefix(c.state(o.RunID), want) {
			t.Errorf("slot %s: %s, want %s", o.ScheduledFor, c.state(o.RunID), want)
		}
	}
}

func TestFinishStoresWhateverTheTargetSaid(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job")
	o := buried(a)
	o.Response, o.Error = "a\x00b\xff\xfe\u00e9\xc3", "bad \x00 \xed\xa0\x80"
	c.finish(o)
	run := c.run(a.RunID)
	if got, want := orEmpty(run.Attempts[0].Response), "a\uFFFDb\uFFFD\u00e9\uFFFD"; got != want {
		t.Errorf("response %q, want %q", got, want)
	}
	if strings.ContainsAny(orEmpty(run.Error), "\x00") || !strings.HasPrefix(orEmpty(run.Error), "bad ") {
		t.Errorf("error %q", orEmpty(run.Error))
	}
}

func TestAGateIsFreedExactlyWhenItsRunIsOver(t *testing.T) {
	for _, c := range []struct {
		name string
		end  ending
		free bool
	}{
		{"by a success", succeeded, true},
		{"by a burial", buried, true},
		{"by an expiry", expired, true},
		{"not by a failure that is tried again", failed, false},
		{"not by one given back", givenBack, false},
		{"not by an interruption", interrupted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			a := r.manual("job", forbid)
			if !r.hasGate(a.Job.ID, a.RunID) {
				t.Fatal("it does not hold the gate")
			}
			r.finish(c.end(a))
			if free := r.count(`SELECT count(*) FROM punctual.exclusive WHERE active_run IS NULL`) == 1; free != c.free {
				t.Errorf("free: %t", free)
			}
		})
	}
}

// A late outcome leaves a gate alone that another run holds by now.
func TestFinishFreesOnlyItsOwnGate(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job", forbid)
	other := uuid.New()
	c.exec(`UPDATE punctual.exclusive SET active_run = $1`, other)
	c.finish(succeeded(a))
	if !c.hasGate(a.Job.ID, other) {
		t.Error("it freed another run's gate")
	}
}

func TestALeaseGoesWithItsLastOutcome(t *testing.T) {
	c := newClaimer(t)
	c.many(3, "job", 0, rarely, tolerant)
	batch := c.claim(10, false)
	if len(batch.Runs) != 3 {
		t.Fatalf("%d runs", len(batch.Runs))
	}
	lease := batch.Runs[0].Lease
	c.finish(succeeded(batch.Runs[0]), failed(batch.Runs[1]))
	if c.count(`SELECT count(*) FROM punctual.claims WHERE id = $1`, lease.ID) != 1 {
		t.Error("it is gone before the last one")
	}
	c.finishAndRelease(succeeded(batch.Runs[2]))
	if c.count(`SELECT count(*) FROM punctual.claims`) != 0 {
		t.Error("it is still there")
	}
}

// Finish writes all outcomes of a batch or none.
func TestFinishIsOneTransaction(t *testing.T) {
	c := newClaimer(t)
	ok, bad := c.manual("a"), c.manual("b")
	outcome := buried(bad)
	outcome.Reason = "no such reason"
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{succeeded(ok), outcome},
		[]uuid.UUID{ok.Lease.ID, bad.Lease.ID}); err == nil {
		t.Fatal("it was written")
	}
	c.wantState(ok.RunID, "running attempt 1")
	if c.count(`SELECT count(*) FROM punctual.claims`) != 2 {
		t.Error("the claims are gone")
	}
}

// Finishing must not write an index: Postgres updates a run's row within its page (HOT).
func TestFinishingIsHOT(t *testing.T) {
	c := claimerOnClone(t)
	const jobs = 5000
	c.many(jobs, "job", 0, rarely, tolerant)
	conn := c.connect()
	var waiting []domain.Outcome
	for done := 0; done < jobs; {
		for _, older := range []bool{false, true} {
			batch := c.claim(100, older)
			for _, a := range batch.Runs {
				waiting = append(waiting, succeeded(a))
			}
			done += len(batch.Runs)
		}
		for len(waiting) >= 300 || done == jobs && len(waiting) > 0 { // the other runs stay in flight meanwhile
			n := min(100, len(waiting))
			if superseded := c.finish(waiting[:n]...); superseded != 0 {
				t.Fatalf("%d superseded", superseded)
			}
			waiting = waiting[n:]
		}
	}
	// A backend reports its statistics when it has been idle for a while, or when it ends.
	c.DB.Callers.Reset()
	var all, hot int
	for all < jobs {
		err := conn.QueryRow(t.Context(), `SELECT coalesce(sum(n_tup_upd), 0), coalesce(sum(n_tup_hot_upd), 0)
			FROM pg_stat_user_tables
			WHERE schemaname = 'punctual' AND relname ~ '^runs_\d'`).Scan(&all, &hot)
		must(t, err)
	}
	if hot*100 < all*99 {
		t.Errorf("%d of %d finishes were HOT, less than 99 %%", hot, all)
	}
}

// The database's clock was set back while a replica had the run. A run that is given back keeps its due time.
func TestNothingIsReadyBeforeItIsDue(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a")
	c.exec(`UPDATE punctual.runs SET due_at = now() + interval '5 minutes' WHERE id = $1`, a.RunID)
	c.finish(givenBack(a))
	c.wantState(a.RunID, "pending attempt 0 ready in 300")
}

func TestARunThatExpiresAfterAnInterruptionIsTold(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", notify(hook, domain.EventDead))
	c.finish(interrupted(a))
	c.finish(expired(c.one(c.claimReady(10))))
	c.wantCount(1, "notices", `SELECT count(*) FROM punctual.notices WHERE event = 'dead' AND run_id = $1`, a.RunID)
}

func TestARunThatWaitedForAGateIsNotReadyBeforeItIsDue(t *testing.T) {
	c := newClaimer(t)
	for name, end := range map[string]func(domain.Assignment){
		"finished": func(a domain.Assignment) { c.finish(succeeded(a)) },
		"cancelled": func(a domain.Assignment) {
			c.finish(givenBack(a))
			c.cancel(a.RunID)
		},
	} {
		active := c.manual(name, overlapping(domain.PolicyWait))
		next := c.trigger(name)
		c.claimReady(10)
		c.exec(`UPDATE punctual.runs SET due_at = now() + interval '5 minutes' WHERE id = $1`, next.ID)
		end(active)
		c.wantState(next.ID, "pending attempt 0 ready in 300")
	}
}
