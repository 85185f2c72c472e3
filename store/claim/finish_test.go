package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
)

// What the model of a run's life does not draw: outcomes that put a run off, and cancels of what was not sent.
func TestFinish(t *testing.T) {
	t.Parallel()
	timedOut := func(a domain.Assignment) domain.Outcome {
		o := Failed(a)
		o.HTTPStatus, o.Reason = 0, domain.ReasonTimeout
		return o
	}
	putOff := func(a domain.Assignment) domain.Outcome {
		o := Unsent(a, domain.GiveBack)
		o.RetryIn, o.Error = 12*time.Second, "waiting: the circuit breaker is open"
		return o
	}
	cancel := func(a domain.Assignment) domain.Outcome {
		o := Unsent(a, domain.Cancel)
		o.Reason = domain.ReasonCancelled
		return o
	}
	for _, c := range []struct {
		name string
		ends []Ending // the outcomes of successive attempts
		want string
	}{
		{
			"a success at last leaves no reason",
			[]Ending{Failed, timedOut, Succeeded},
			"succeeded 200 attempt 3 finished attempts: 1 failed http_5xx, 2 timed_out timeout",
		},
		{
			"an exhausted run is dead",
			[]Ending{Failed, Buried},
			"dead http_5xx 503 attempt 2 finished dead letter of 2 http_5xx attempts: 1 failed http_5xx, 2 failed http_5xx",
		},
		{
			"put off it is pending for as long, and has not been tried",
			[]Ending{putOff},
			"pending attempt 0 next in 12 ready in 12",
		},
		{
			"put off after a failure it keeps its number",
			[]Ending{Failed, putOff},
			"pending attempt 1 next in 12 ready in 12 attempts: 1 failed http_5xx",
		},
		{
			"put off again and again and then sent it is the same attempt",
			[]Ending{putOff, putOff, Succeeded},
			"succeeded 200 attempt 1 finished",
		},
		{
			"cancelled before it was sent it has no attempt",
			[]Ending{cancel},
			"cancelled cancelled_by_user attempt 0 finished",
		},
		{
			"cancelled before it was sent again it keeps the attempt before",
			[]Ending{Failed, cancel},
			"cancelled cancelled_by_user attempt 1 finished attempts: 1 failed http_5xx",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(t)
			a := r.Manual("job")
			for i, end := range c.ends {
				if i > 0 {
					fence := a.Fence
					if a = r.Again(); a.Fence <= fence {
						t.Errorf("fence %d after %d", a.Fence, fence)
					}
				}
				if n := r.Finish(end(a)); n != 0 {
					t.Errorf("%d superseded", n)
				}
			}
			r.WantState(a.RunID, c.want)
		})
	}
}

func TestWhyARunIsPutOffShowsForAsLongAsItIs(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job", Forbid)
	o := Unsent(a, domain.GiveBack)
	o.RetryIn, o.Error = 12*time.Second, "waiting: the circuit breaker is open"
	c.Finish(o)
	shown := func() string {
		t.Helper()
		run := c.Run(a.RunID)
		return fmt.Sprint(run.Status, " ", OrEmpty(run.Error), run.NextAttemptAt != nil)
	}
	if got, want := shown(), "pending "+o.Error+"true"; got != want {
		t.Errorf("put off it is %s, want %s", got, want)
	}
	if !c.HasGate(a.Job.ID, a.RunID) {
		t.Error("it lost the gate of its job")
	}
	if batch := c.ClaimReady(10); len(batch.Runs) != 0 {
		t.Error("it is claimed before its time")
	}
	a = c.Again()
	if got := shown(); got != "running false" {
		t.Errorf("tried again it is %s", got)
	}
	c.Finish(Succeeded(a))
	if got := shown(); got != "succeeded false" {
		t.Errorf("in the end it is %s", got)
	}
}

func TestADeadLetterHasWhatAReplayNeeds(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job")
	c.Finish(Buried(a))
	var name, trigger, reason, text, headers, body string
	var version, attempts, status int
	var slot time.Time
	err := c.DB.Callers.QueryRow(t.Context(), `SELECT job_name, job_version, scheduled_for, trigger, reason, attempts,
			http_status, error, headers, convert_from(body, 'UTF8')
		FROM punctual.dead_letters
		WHERE run_id = $1 AND job_id = $2 AND tenant = $3 AND resolved_at IS NULL`, a.RunID, a.Job.ID, c.Tenant).
		Scan(&name, &version, &slot, &trigger, &reason, &attempts, &status, &text, &headers, &body)
	Must(t, err)
	got := fmt.Sprint(name, version, slot.Equal(a.ScheduledFor), trigger, reason, attempts, status, text, headers, body)
	if want := fmt.Sprint("job", 1, true, "manual", "http_5xx", 1, 503, "503 Service Unavailable",
		`{"X-A": "b"}`, `"x"`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// When the answer to a commit is lost, the finisher writes the same outcomes again.
func TestFinishIsIdempotent(t *testing.T) {
	c := NewReplica(t)
	ok, retried, dead := c.Manual("a"), c.Manual("b"), c.Manual("c")
	outcomes := []domain.Outcome{Succeeded(ok), Failed(retried), Buried(dead)}
	c.Finish(outcomes...)
	var before []string
	for _, o := range outcomes {
		before = append(before, c.State(o.RunID))
	}
	if n := c.Finish(outcomes...); n != 3 {
		t.Errorf("%d superseded, want 3", n)
	}
	for i, o := range outcomes {
		c.WantState(o.RunID, before[i])
	}
}

func TestFinishSpansDays(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Every(24*time.Hour), AllMissed, Window(30*24*time.Hour))
	slot := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -9)
	c.SetNext(job.ID, slot)
	batch := c.Claim(100, true)
	if len(batch.Runs) < 9 {
		t.Fatalf("%d runs", len(batch.Runs))
	}
	outcomes := make([]domain.Outcome, 0, len(batch.Runs))
	for i, a := range batch.Runs {
		outcomes = append(outcomes, []domain.Outcome{Succeeded(a), Failed(a), Buried(a)}[i%3])
	}
	outcomes[0], outcomes[5] = outcomes[5], outcomes[0]
	if n := c.Finish(outcomes...); n != 0 {
		t.Errorf("%d superseded", n)
	}
	for _, o := range outcomes {
		if want := string(o.End().Status); !strings.HasPrefix(c.State(o.RunID), want) {
			t.Errorf("slot %s: %s, want %s", o.ScheduledFor, c.State(o.RunID), want)
		}
	}
}

func TestFinishStoresWhateverTheTargetSaid(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job")
	o := Buried(a)
	o.Response, o.Error = "a\x00b\xff\xfe\u00e9\xc3", "bad \x00 \xed\xa0\x80"
	c.Finish(o)
	run := c.Run(a.RunID)
	if got, want := OrEmpty(run.Attempts[0].Response), "a\uFFFDb\uFFFD\u00e9\uFFFD"; got != want {
		t.Errorf("response %q, want %q", got, want)
	}
	if strings.ContainsAny(OrEmpty(run.Error), "\x00") || !strings.HasPrefix(OrEmpty(run.Error), "bad ") {
		t.Errorf("error %q", OrEmpty(run.Error))
	}
}

// A late outcome leaves a gate alone that another run holds by now.
func TestFinishFreesOnlyItsOwnGate(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job", Forbid)
	other := uuid.New()
	c.Exec(`UPDATE punctual.exclusive SET active_run = $1`, other)
	c.Finish(Succeeded(a))
	if !c.HasGate(a.Job.ID, other) {
		t.Error("it freed another run's gate")
	}
}

func TestALeaseGoesWithItsLastOutcome(t *testing.T) {
	c := NewReplica(t)
	c.Many(3, "job", 0, Rarely, Tolerant)
	batch := c.Claim(10, false)
	if len(batch.Runs) != 3 {
		t.Fatalf("%d runs", len(batch.Runs))
	}
	lease := batch.Runs[0].Lease
	c.Finish(Succeeded(batch.Runs[0]), Failed(batch.Runs[1]))
	if c.Count(`SELECT count(*) FROM punctual.claims WHERE id = $1`, lease.ID) != 1 {
		t.Error("it is gone before the last one")
	}
	c.FinishAndRelease(Succeeded(batch.Runs[2]))
	if c.Count(`SELECT count(*) FROM punctual.claims`) != 0 {
		t.Error("it is still there")
	}
}

// An outcome is written whole or not at all. One that cannot be written keeps no other from being written.
func TestAnOutcomeThatIsRefusedIsNotWrittenInPart(t *testing.T) {
	c := NewReplica(t)
	ok, bad := c.Manual("a"), c.Manual("b")
	outcome := Buried(bad)
	outcome.Reason = "no such reason"
	_, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(ok), outcome},
		[]uuid.UUID{ok.Lease.ID, bad.Lease.ID})
	left, is := errors.AsType[*scheduler.LeftOutcomesError](err)
	if !is || left.Failing[bad.RunID] == nil || !slices.Equal(left.Leases, []uuid.UUID{bad.Lease.ID}) {
		t.Fatalf("left out: %v", err)
	}
	c.WantState(ok.RunID, "succeeded 200 attempt 1 finished")
	c.WantState(bad.RunID, "running attempt 1")
	c.WantCount(1, "claims are left", `SELECT count(*) FROM punctual.claims`)
	c.WantCount(0, "dead letters are there", `SELECT count(*) FROM punctual.dead_letters`)
}

// Finishing must not write an index: Postgres updates a run's row within its page (HOT).
func TestFinishingIsHOT(t *testing.T) {
	c := ReplicaOnClone(t)
	const jobs = 1500
	c.Many(jobs, "job", 0, Rarely, Tolerant)
	conn := c.Connect()
	var waiting []domain.Outcome
	for done := 0; done < jobs; {
		for _, older := range []bool{false, true} {
			batch := c.Claim(100, older)
			for _, a := range batch.Runs {
				waiting = append(waiting, Succeeded(a))
			}
			done += len(batch.Runs)
		}
		for len(waiting) >= 300 || done == jobs && len(waiting) > 0 { // the other runs stay in flight meanwhile
			n := min(100, len(waiting))
			if superseded := c.Finish(waiting[:n]...); superseded != 0 {
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
		Must(t, err)
	}
	if hot*100 < all*99 {
		t.Errorf("%d of %d finishes were HOT, less than 99 %%", hot, all)
	}
}

// The database's clock was set back while a replica had the run. A run that is given back keeps its due time.
func TestNothingIsReadyBeforeItIsDue(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("a")
	c.Exec(`UPDATE punctual.runs SET due_at = now() + interval '5 minutes' WHERE id = $1`, a.RunID)
	c.Finish(GivenBack(a))
	c.WantState(a.RunID, "pending attempt 0 ready in 300")
}

func TestARunThatExpiresAfterAnInterruptionIsTold(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("a", Notify(Hook, domain.EventDead))
	c.Finish(Interrupted(a))
	c.Finish(Expired(c.One(c.ClaimReady(10))))
	c.WantCount(1, "notices", `SELECT count(*) FROM punctual.notices WHERE event = 'dead' AND run_id = $1`, a.RunID)
}

func TestARunThatWaitedForAGateIsNotReadyBeforeItIsDue(t *testing.T) {
	c := NewReplica(t)
	for name, end := range map[string]func(domain.Assignment){
		"finished": func(a domain.Assignment) { c.Finish(Succeeded(a)) },
		"cancelled": func(a domain.Assignment) {
			c.Finish(GivenBack(a))
			c.Cancel(a.RunID)
		},
	} {
		active := c.Manual(name, Overlapping(domain.PolicyWait))
		next := c.Trigger(name)
		c.ClaimReady(10)
		c.Exec(`UPDATE punctual.runs SET due_at = now() + interval '5 minutes' WHERE id = $1`, next.ID)
		c.Exec(`UPDATE punctual.ready SET due_at = now() + interval '5 minutes' WHERE run_id = $1`, next.ID)
		end(active)
		c.WantState(next.ID, "pending attempt 0 ready in 300")
	}
}
