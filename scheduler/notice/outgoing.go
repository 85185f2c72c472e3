package notice

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// Outgoing is a message that this replica is to send now. No other replica sends to the recipient until the lease ends.
type Outgoing struct {
	ID     uuid.UUID // of the message, and of its lease
	Line   uuid.UUID
	Tenant int32
	To     domain.Recipient
	Jobs   []uuid.UUID // that it tells of
	Beside []uuid.UUID // more of them, which the recipient holds no state of
	Opens  []uuid.UUID // those that the recipient holds for troubled if the message arrives, or did so before
	Under  []string    // the keys of their subjects
	Opened []uuid.UUID // those of them of which it knew nothing before
	Own    []uuid.UUID // those that fail although their host can be reached
	Begun  []string    // the keys of causes of which it knew nothing before
	Over   []string    // the keys of causes and hosts that are over, while runs or jobs may still wait
	Body   []byte
	// Headline and Events say in short what it tells.
	Headline string
	Events   []string
	Newest   time.Time // of the events: when it happened
	Keys     []string
	// Run is, of a notice that a step waits for approval, the run of the step, and Nth the place of the recipient.
	Run uuid.UUID
	Nth int16
	// Lifecycle says that it is a batch of events of the lifecycle of runs.
	Lifecycle bool
}

// Lease is how long a replica has for a message, and Timeout is how long the recipient may take to answer. A replica
// that has stood still may send after its lease has ended. Then the store has the state told again.
const (
	Lease   = time.Minute
	Timeout = 10 * time.Second
)

// Arrival says whether a message arrived.
type Arrival string

// The arrivals.
const (
	Delivered Arrival = "delivered"
	// PutOff means that the recipient took nothing, and asked for a pause. That costs no attempt.
	PutOff Arrival = "put_off"
	// Unsent means that the recipient has not seen the message.
	Unsent Arrival = "unsent"
	// Refused means that the recipient refused the message as it is.
	Refused Arrival = "refused"
	// Unknown means that the message may have arrived.
	Unknown Arrival = "unknown"
)

// Answer is how a recipient answered a message.
type Answer struct {
	Arrival    Arrival
	RetryAfter time.Duration
	Status     int
	Error      string
}
