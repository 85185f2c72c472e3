package store

import (
	"encoding/json"
	"testing"

	"punctual/scheduler/domain"
)

// answered is the outcome of an attempt with a response, headers and a result to keep.
func answered(a domain.Assignment, verdict domain.Verdict, response string) domain.Outcome {
	o := ended(a, verdict)
	o.HTTPStatus, o.Response, o.Headers, o.Truncated = 200, response, map[string]string{"server": "s\x00"}, true
	o.Result = json.RawMessage(`{"of":"` + response + `"}`)
	return o
}

func TestAPlainSuccessWritesNothingBesideItsRun(t *testing.T) {
	c := newClaimer(t)
	plain, kept := c.manual("plain"), c.manual("kept")
	outcomes := []domain.Outcome{ended(plain, domain.Succeed), answered(kept, domain.Succeed, "all\x00 is well")}
	outcomes[1].Result = nil
	c.exec(`DELETE FROM punctual.run_data`) // the headers and bodies of the triggers
	for range 2 {                           // the second time as after a commit whose answer was lost
		c.finish(outcomes...)
	}
	if n := c.count(`SELECT count(*) FROM punctual.run_data`) -
		c.count(`SELECT count(*) FROM punctual.run_data WHERE run_id = $1`, kept.RunID); n != 0 {
		t.Errorf("%d rows beside the plain one", n)
	}
	run := c.run(kept.RunID)
	if len(run.Attempts) != 1 {
		t.Fatalf("%+v", run)
	}
	if a := run.Attempts[0]; orEmpty(a.Response) != "all\uFFFD is well" || a.Headers["server"] != "s\uFFFD" ||
		!a.Truncated || run.Result != nil {
		t.Errorf("kept %+v", a)
	}
}

func TestWhatASupersededAttemptAnsweredIsNotKept(t *testing.T) {
	c := newClaimer(t)
	first := c.manual("a")
	c.lose(c.replica)
	c.recover()
	late := func() {
		t.Helper()
		c.finish(answered(first, domain.Succeed, "late"))
		c.wantCount(0, "the lost attempt's answer is kept",
			`SELECT count(*) FROM punctual.run_data WHERE result IS NOT NULL OR response IS NOT NULL`)
	}
	late() // the attempt is recorded as lost, and no other attempt has begun
	next := asClaimer(c.crud)
	second := next.one(next.claimReady(10))
	late()
	next.finishAndRelease(answered(second, domain.Succeed, "in time"))
	run := c.run(first.RunID)
	if string(run.Result) != `{"of":"in time"}` || len(run.Attempts) != 2 ||
		run.Attempts[0].Response != nil || orEmpty(run.Attempts[1].Response) != "in time" {
		t.Errorf("%+v", run)
	}
}

func TestTheFirstResultStays(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", byCallback)
	if _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, json.RawMessage(`"reported"`)); err != nil {
		t.Fatal(err)
	}
	// The target has also answered the request, with a response to keep.
	c.finishAndRelease(answered(a, domain.Succeed, "answered"))
	run := c.run(a.RunID)
	if string(run.Result) != `"reported"` || len(run.Attempts) != 1 ||
		orEmpty(run.Attempts[0].Response) != "answered" {
		t.Errorf("%+v", run)
	}
}

func TestASilentTargetsAnswerStaysWithItsAttempt(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", byCallback)
	accept := func(a domain.Assignment, response string) {
		t.Helper()
		o := answered(a, domain.Await, response)
		o.Result, o.HTTPStatus, o.RetryIn = nil, 202, 0
		c.finishAndRelease(o)
	}
	accept(a, "first")
	c.exec(`UPDATE punctual.runs SET started_at = now() - interval '2 minutes'`)
	c.overdue(a.RunID)
	b := c.one(c.claimReady(10))
	accept(b, "second")
	run := c.run(a.RunID)
	if len(run.Attempts) != 2 {
		t.Fatalf("%+v", run)
	}
	silent, present := run.Attempts[0], run.Attempts[1]
	if orEmpty(silent.Response) != "first" || *silent.Reason != domain.ReasonSilent ||
		orEmpty(present.Response) != "second" || present.Outcome != domain.AttemptInFlight ||
		*present.HTTPStatus != 202 || present.FinishedAt != nil {
		t.Errorf("attempts %+v", run.Attempts)
	}
}
