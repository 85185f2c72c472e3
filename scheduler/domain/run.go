package domain

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Status is the state of a run.
//
//	pending ─► running ─► succeeded
//	            │   ▲  └─► dead
//	            ▼   │
//	          retrying          skipped, cancelled: final from anywhere before
type Status string

// The statuses of a run; the last four are final.
const (
	StatusPending   Status = "pending"
	StatusRunning   Status = "running"
	StatusRetrying  Status = "retrying"
	StatusSucceeded Status = "succeeded"
	StatusDead      Status = "dead"
	StatusSkipped   Status = "skipped"
	StatusCancelled Status = "cancelled"
)

// Final reports whether a run in this status never changes again.
func (s Status) Final() bool {
	return s == StatusSucceeded || s == StatusDead || s == StatusSkipped || s == StatusCancelled
}

// Trigger is what created a run.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule"
	TriggerCatchup  Trigger = "catchup"
	TriggerManual   Trigger = "manual"
	TriggerChain    Trigger = "chain"    // the end of a run of another job, whose then names the job
	TriggerEvent    Trigger = "event"    // an event that was emitted
	TriggerReplay   Trigger = "replay"   // of a dead letter
	TriggerBackfill Trigger = "backfill" // of slots that have passed
	TriggerStep     Trigger = "step"     // the workflow whose step it is
)

// TriggerNotify is the trigger that messages to recipients name in their headers. No run has it.
const TriggerNotify = Trigger("notify")

// Reason says why a run is not a plain success; empty on a plain success. The list is closed.
type Reason string

// The reasons and the status each leads to.
const (
	ReasonMissed         Reason = "missed"            // skipped: claimed later than its tolerance
	ReasonPaused         Reason = "paused"            // skipped: passed while the job was paused
	ReasonOverlap        Reason = "overlap"           // skipped: another run of the job was active
	ReasonLimit          Reason = "limit"             // skipped: max_pending_runs of the job were waiting
	ReasonReplaced       Reason = "replaced"          // cancelled: a newer run of the job took its place
	ReasonCancelled      Reason = "cancelled_by_user" // cancelled: somebody asked for it
	ReasonExpired        Reason = "expired"           // skipped when never sent, else dead
	ReasonAuth           Reason = "auth"              // dead: no secret or token was to be had; nothing was sent
	ReasonUnreachable    Reason = "unreachable"       // dead: its host was unreachable for as long as the run may wait
	ReasonTimeout        Reason = "timeout"           // dead: the exchange took longer than the timeout
	ReasonConnect        Reason = "connect"           // dead: no connection, or it broke
	ReasonTLS            Reason = "tls"               // dead: the server's certificate or handshake was refused
	ReasonBlockedAddress Reason = "blocked_address"   // dead: the target resolves to a forbidden address
	ReasonHTTP4xx        Reason = "http_4xx"          // dead: client error status
	ReasonHTTP5xx        Reason = "http_5xx"          // dead: server error status
	ReasonRedirect       Reason = "redirect"          // dead: redirects are not followed
	ReasonGone           Reason = "gone"              // dead: a status of give_up_on
	ReasonFailed         Reason = "failed"            // dead: the target called back that it failed
	ReasonLost           Reason = "lost"              // dead: the replica of its last attempt vanished
	ReasonPoison         Reason = "poison"            // dead: three attempts in a row lost their replica
	ReasonSilent         Reason = "silent"            // dead: the target accepted the last attempt and fell silent
	ReasonUpstreamFailed Reason = "upstream_failed"   // skipped: a step that it depends on has not succeeded
	ReasonRejected       Reason = "rejected"          // dead: a person has rejected the step
	ReasonJobDeleted     Reason = "job_deleted"       // skipped or cancelled: the job was deleted

	ReasonApprovalExpired Reason = "approval_expired" // dead: a person neither approved nor rejected the step in time
)

// AttemptOutcome is how an attempt ended.
type AttemptOutcome string

// The outcomes of attempts.
const (
	AttemptSucceeded   AttemptOutcome = "succeeded"
	AttemptFailed      AttemptOutcome = "failed"
	AttemptTimedOut    AttemptOutcome = "timed_out"
	AttemptLost        AttemptOutcome = "lost"        // its replica vanished, or its target fell silent
	AttemptCancelled   AttemptOutcome = "cancelled"   // its run was cancelled
	AttemptInterrupted AttemptOutcome = "interrupted" // its replica was asked to stop; the attempt does not count

	// AttemptInFlight is shown for an attempt that has not ended, and never stored.
	AttemptInFlight AttemptOutcome = "in_flight"
)

// Assignment is one attempt that a replica has claimed and will send.
type Assignment struct {
	RunID        uuid.UUID
	Job          *Job
	Lane         int16
	Trigger      Trigger
	ScheduledFor time.Time
	DueAt        time.Time
	Late         bool
	ExpiresAfter time.Duration     // replaces the job's expires_after when not 0
	Attempt      int               // number of this attempt, from 1
	Fence        int64             // fencing token of this attempt
	Body         []byte            // replaces the job's body when not nil
	Template     bool              // that body is made of the job's own, and placeholders in it are filled in
	Headers      map[string]string // replaces the job's headers when not nil
	CausedBy     uuid.UUID         // the run that ended, or the event; zero: neither caused the run
	Event        string            // name of the event that caused the run, or the one that it repeats; empty: none did
	EventBody    []byte            // body of that event: sent if neither the run nor the job has one. Nil: none
	Step         string            // of a step: its name
	Workflow     uuid.UUID         // of a step: the run of its workflow
	Given        *Given            // of a step: what it is sent besides its own body; nil: it is not read
	Lease        *Lease
	Gated        bool      // its job's runs must not overlap: the run has the job's gate, or may have it
	Bounded      bool      // it holds a limit with max_running
	Held         *Held     // what held the run back since its last attempt; nil: nothing did
	AcceptedAt   time.Time // when the target answered this attempt with 202 and went on; zero: it did not
	RunToken     string    // of steps, and with completion async: lets the target speak for this attempt

	// For a replay: what the run that died first carried, so that the receiver recognises it. Zero: derived from this run.
	WebhookID      uuid.UUID
	IdempotencyKey string

	// TraceParent is the trace context of the request that triggered the run, which the run continues; empty: its trace
	// is its own.
	TraceParent string
}

// Expired reports whether no attempt of a may start at the given time. expires_after is for slots that are useless when
// late. It does not apply to a replay: somebody asked for it knowing its age, and its run has left the dead-letter
// list, so nothing would be left of a replay that expires. It does not apply to a backfill either, for the same reason.
func (a Assignment) Expired(at time.Time) bool {
	expiry, expires := a.Expiry()
	return expires && at.After(expiry)
}

// Expiry returns the last instant at which an attempt of the run may start, and whether there is one.
func (a Assignment) Expiry() (at time.Time, expires bool) {
	after, expires := a.ExpiresAfter, true
	if after == 0 {
		after, expires = a.Job.ExpiresAfter.Value(), !a.Job.ExpiresAfter.IsZero()
	}
	return a.DueAt.Add(after), expires && !a.Trigger.Ordered()
}

// TurnsLate reports whether a run that was never sent is late if it is claimed to be sent now, whatever it waited for.
// Replays and backfills never are: they were asked for long after the slot was due. Neither are messages to recipients,
// nor runs that have expired, which are not sent.
func (a Assignment) TurnsLate(now time.Time) bool {
	return !a.Trigger.Ordered() && a.Trigger != TriggerNotify &&
		!a.Late && now.Sub(a.DueAt) > a.Job.Missed.Tolerance.Value() && !a.Expired(now)
}

// Held says what holds an unsent run back, and how long it may wait.
type Held struct {
	By    string    // such as "breaker billing.internal:443" or "hanging billing.internal:443/invoices"
	Since time.Time // since when it has waited without an attempt, for one reason or another
	Until time.Time // when it is given up as dead, or is a probe if there was none shortly before
	// Fetched says that the run was claimed because it may be sent now, and not because it became due.
	Fetched bool
}

// Lease ties the runs of one claimed batch together. Its row in claims is deleted when the last run has left.
type Lease struct {
	ID        uuid.UUID
	Work      Work
	ClaimedAt time.Time // by the database's clock
	Remaining int       // runs that have not left the replica; owned by the finisher
	// Started is when the Postgres was started from which it was claimed; nil: not known. It belongs to the store, which
	// compares addresses.
	Started *time.Time
}

// Batch is the result of one claim.
type Batch struct {
	Runs    []Assignment // all under one lease
	Settled int          // slots and runs that were due and no longer are, skips included
	Dropped int          // of the settled: runs that somebody asked for, and that others of their job kept from running
	Full    []int16      // queues whose quota was used up, so that more may be due there

	Halted bool    // the deployment is frozen: nothing was claimed
	Frozen []int32 // tenants whose due work was left alone because they are frozen
}

// Work is a kind of due work. Each kind is claimed separately, and has a share of a queue's worker slots.
type Work int8

// The kinds of work, in the order in which they are claimed.
const (
	WorkDue     Work = iota // slots that are due now
	WorkReady               // runs that wait in ready: retries, runs by hand, runs given back
	WorkLate                // slots that have been due for longer than OlderThan
	WorkOrdered             // runs ordered in bulk: backfills and replays
	WorkKinds               // how many kinds there are
)

// Lanes returns the lanes in which a queue's runs of this kind wait in ready.
func (w Work) Lanes(queue int16) []int16 {
	if w == WorkOrdered {
		return []int16{OrderLane(queue)}
	}
	return []int16{jobspec.PriorityHigh.Lane(queue), jobspec.PriorityNormal.Lane(queue), jobspec.PriorityLow.Lane(queue)}
}

// OrderLane returns the number under which a queue's ordered runs wait, whatever their priority.
func OrderLane(queue int16) int16 { return queue*4 + 3 }

// CatchesUp reports whether a run with the trigger waits for the run of the missed slot before it.
func (j *Job) CatchesUp(trigger Trigger) bool { return trigger == TriggerCatchup && j.Missed.InOrder() }

// Ordered reports whether runs of the trigger are ordered in bulk.
func (t Trigger) Ordered() bool { return t == TriggerBackfill || t == TriggerReplay }

// Triggers reports whether a run that ends in this status triggers a job, by the word of its link.
func (s Status) Triggers(when jobspec.LinkWhen) bool {
	switch when {
	case jobspec.WhenFailed:
		return s == StatusDead
	case jobspec.WhenEnded:
		return s == StatusSucceeded || s == StatusDead || s == StatusCancelled
	}
	return s == StatusSucceeded
}
