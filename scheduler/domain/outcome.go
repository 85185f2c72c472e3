package domain

import (
	"encoding/json"
	"time"

	"punctual/scheduler/delivery/wire"
)

// Verdict is what an attempt's end means for its run.
type Verdict int

// The verdicts.
const (
	Succeed   Verdict = iota // final: succeeded
	RetryRun                 // another attempt after RetryIn
	Bury                     // final: dead, with a dead letter
	Expire                   // no attempt was made: final; skipped when nothing was ever sent, else dead
	GiveBack                 // never sent: pending again after RetryIn, for any replica
	Interrupt                // cut off by a stopping replica: retried at once, not counted
	Cancel                   // final: cancelled, as was asked for; without StartedAt, before anything was sent
	Await                    // the target answered 202 and will call back, at the latest after RetryIn
	Hold                     // never sent: waits for what Held names, at the latest until RetryIn has passed
	Abandon                  // never sent, and has waited for as long as it may: final, dead
)

// Outcome is the end of one attempt, as the finisher writes it.
type Outcome struct {
	Assignment
	Verdict    Verdict
	StartedAt  time.Time // by the database's clock, to within a round trip; zero when nothing was sent
	FinishedAt time.Time
	HTTPStatus int // 0 when there was no response
	Reason     Reason
	Error      string
	Response   string            // start of the response body, as much as is kept
	Headers    map[string]string // of the response, as wire.Result.Header says; nil: none are kept
	Truncated  bool              // the body was longer than Response
	Result     json.RawMessage   // what a success answered or its target reported; nil: nothing
	ResultNote string            // why a result is not kept
	Reported   bool              // the target ended it so in a transaction of its own, whatever the attempt's answer was
	// RetryIn is the delay before the next attempt, or before the same attempt is tried again. After a 202 it is how long
	// the target may be silent.
	RetryIn time.Duration
	Phases  *wire.Phases // of the exchange, if they are observed
	// Release gives the worker slot back once the outcome is written; nil: it was given back before.
	Release func()
}

// Kept is how many bytes of responses and results the outcome has.
func (o *Outcome) Kept() int { return len(o.Response) + len(o.Result) }

// End is what an outcome means for its run and its attempt.
type End struct {
	Status  Status
	Attempt AttemptOutcome // empty: nothing was sent, so there is no attempt to record
	Counts  bool           // as one of max_attempts
	Number  int            // of the attempt that ended, or of the last one that was sent
}

// End returns what o means for its run and its attempt.
func (o Outcome) End() End {
	failed := AttemptFailed
	switch o.Reason {
	case ReasonTimeout, ReasonApprovalExpired:
		failed = AttemptTimedOut
	case ReasonLost, ReasonPoison, ReasonSilent:
		failed = AttemptLost
	}
	switch o.Verdict {
	case Succeed:
		return End{Status: StatusSucceeded, Attempt: AttemptSucceeded, Counts: true, Number: o.Attempt}
	case Bury:
		return End{Status: StatusDead, Attempt: failed, Counts: true, Number: o.Attempt}
	case Expire:
		if o.Attempt == 1 {
			return End{Status: StatusSkipped}
		}
		return End{Status: StatusDead, Number: o.Attempt - 1}
	case GiveBack, Hold:
		return End{Status: StatusPending, Number: o.Attempt - 1}
	case Abandon:
		return End{Status: StatusDead, Number: o.Attempt - 1}
	case Interrupt:
		return End{Status: StatusRetrying, Attempt: AttemptInterrupted, Number: o.Attempt}
	case Cancel:
		if o.StartedAt.IsZero() {
			return End{Status: StatusCancelled, Number: o.Attempt - 1}
		}
		return End{Status: StatusCancelled, Attempt: AttemptCancelled, Counts: true, Number: o.Attempt}
	case Await:
		return End{Status: StatusRunning, Counts: true, Number: o.Attempt}
	case RetryRun:
	}
	return End{Status: StatusRetrying, Attempt: failed, Counts: true, Number: o.Attempt}
}
