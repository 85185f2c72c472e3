package claim_test

import (
	"encoding/json"
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// answered is the outcome of an attempt with a response, headers and a result to keep.
func answered(a domain.Assignment, verdict domain.Verdict, response string) domain.Outcome {
	o := Ended(a, verdict)
	o.HTTPStatus, o.Response, o.Headers, o.Truncated = 200, response, map[string]string{"server": "s\x00"}, true
	o.Result = json.RawMessage(`{"of":"` + response + `"}`)
	return o
}

func TestAPlainSuccessWritesNothingBesideItsRun(t *testing.T) {
	c := NewReplica(t)
	plain, kept := c.Manual("plain"), c.Manual("kept")
	outcomes := []domain.Outcome{Ended(plain, domain.Succeed), answered(kept, domain.Succeed, "all\x00 is well")}
	outcomes[1].Result = nil
	c.Exec(`DELETE FROM punctual.run_data`) // the headers and bodies of the triggers
	for range 2 {                           // the second time as after a commit whose answer was lost
		c.Finish(outcomes...)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.run_data`) -
		c.Count(`SELECT count(*) FROM punctual.run_data WHERE run_id = $1`, kept.RunID); n != 0 {
		t.Errorf("%d rows beside the plain one", n)
	}
	run := c.Run(kept.RunID)
	if len(run.Attempts) != 1 {
		t.Fatalf("%+v", run)
	}
	if a := run.Attempts[0]; OrEmpty(a.Response) != "all\uFFFD is well" || a.Headers["server"] != "s\uFFFD" ||
		!a.Truncated || run.Result != nil {
		t.Errorf("kept %+v", a)
	}
}

func TestWhatASupersededAttemptAnsweredIsNotKept(t *testing.T) {
	c := NewReplica(t)
	first := c.Manual("a")
	c.Lose(c.ReplicaID)
	c.Recover()
	late := func() {
		t.Helper()
		c.Finish(answered(first, domain.Succeed, "late"))
		c.WantCount(0, "the lost attempt's answer is kept",
			`SELECT count(*) FROM punctual.run_data WHERE result IS NOT NULL OR response IS NOT NULL`)
	}
	late() // the attempt is recorded as lost, and no other attempt has begun
	next := AsReplica(c.Fixture)
	second := next.One(next.ClaimReady(10))
	late()
	next.FinishAndRelease(answered(second, domain.Succeed, "in time"))
	run := c.Run(first.RunID)
	if string(run.Result) != `{"of":"in time"}` || len(run.Attempts) != 2 ||
		run.Attempts[0].Response != nil || OrEmpty(run.Attempts[1].Response) != "in time" {
		t.Errorf("%+v", run)
	}
}

func TestTheFirstResultStays(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("a", ByCallback)
	if _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, json.RawMessage(`"reported"`)); err != nil {
		t.Fatal(err)
	}
	// The target has also answered the request, with a response to keep.
	c.FinishAndRelease(answered(a, domain.Succeed, "answered"))
	run := c.Run(a.RunID)
	if string(run.Result) != `"reported"` || len(run.Attempts) != 1 ||
		OrEmpty(run.Attempts[0].Response) != "answered" {
		t.Errorf("%+v", run)
	}
}

func TestASilentTargetsAnswerStaysWithItsAttempt(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("a", ByCallback)
	accept := func(a domain.Assignment, response string) {
		t.Helper()
		o := answered(a, domain.Await, response)
		o.Result, o.HTTPStatus, o.RetryIn = nil, 202, 0
		c.FinishAndRelease(o)
	}
	accept(a, "first")
	c.Exec(`UPDATE punctual.runs SET started_at = now() - interval '2 minutes'`)
	c.Overdue(a.RunID)
	b := c.One(c.ClaimReady(10))
	accept(b, "second")
	run := c.Run(a.RunID)
	if len(run.Attempts) != 2 {
		t.Fatalf("%+v", run)
	}
	silent, present := run.Attempts[0], run.Attempts[1]
	if OrEmpty(silent.Response) != "first" || *silent.Reason != domain.ReasonSilent ||
		OrEmpty(present.Response) != "second" || present.Outcome != domain.AttemptInFlight ||
		*present.HTTPStatus != 202 || present.FinishedAt != nil {
		t.Errorf("attempts %+v", run.Attempts)
	}
}
