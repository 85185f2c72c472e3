package scheduler

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"
)

// Store is what the loops need of the database. Package store implements it on Postgres.
type Store interface {
	Credentials
	// ClaimDue claims due slots within the quotas: it locks them, lets Decide settle them, and commits the
	// runs and the next slots in one transaction. Runs may be sent once it has returned. Of what is frozen when it
	// has its locks it claims nothing.
	ClaimDue(ctx context.Context, c Claim) (Batch, error)
	// ClaimReady claims runs that wait for any replica: retries, manual runs, runs given back, and ordered ones.
	ClaimReady(ctx context.Context, c Claim) (Batch, error)
	// EndSilent ends attempts whose targets work on and have passed their deadlines, as lost. It needs no worker slot and
	// no start of a limit. It returns how long to wait before the next such deadline; left is false once none is near.
	EndSilent(ctx context.Context) (wait time.Duration, left bool, err error)
	// Contenders tells whose work of a kind a claim could take in the queues now.
	Contenders(ctx context.Context, of Work, queues []int16) ([]Contender, error)
	// NextDue tells when there will be something to claim in the queues.
	NextDue(ctx context.Context, queues LookInto) (Upcoming, error)
	// NextFresh is NextDue while tenants are held back: of what is due by now it tells nothing.
	NextFresh(ctx context.Context, queues []int16) (Upcoming, error)
	// Limits tells the tenants with limits, and Draw what a replica may have of them: the sum over all replicas never
	// exceeds a limit, but for runs that were in flight before it was lowered.
	Limits(ctx context.Context) ([]TenantLimits, error)
	Draw(ctx context.Context, replica uuid.UUID, wishes []Wish) ([]Allowance, error)
	// Finish writes the ends of attempts, in one transaction, and deletes the claims of the leases that
	// have nothing left. An outcome whose attempt was superseded changes nothing; their number is returned.
	// With a *LockedOutcomesError some were left, and all others were written. The outcomes are not to be kept.
	Finish(ctx context.Context, outcomes []Outcome, released []uuid.UUID) (superseded int, err error)
	// Register makes this replica known, and returns the number of each of its queues.
	Register(ctx context.Context, r Replica) (map[string]int16, error)
	// Renew raises the replica's heartbeat, and tells what there is to know about all of them.
	Renew(ctx context.Context, replica uuid.UUID, draining bool) (Pulse, error)
	// Remove removes replicas whose heartbeat has stood still, unless it has moved since.
	Remove(ctx context.Context, lost []Heartbeat) error
	// Deregister removes a replica that has stopped.
	Deregister(ctx context.Context, replica uuid.UUID) error
	// Recover ends some of the claims of replicas that are no more: their attempts are lost. It returns how
	// many runs it took back.
	Recover(ctx context.Context) (int, error)
	// GiveBack ends claims whose runs were never sent, and makes these ready again. It returns how many.
	GiveBack(ctx context.Context, claims []uuid.UUID) (int, error)
	// ResumeDue resumes the jobs whose pause has run out, as of the instant at which it did, and returns how many. next
	// is how long until the next pause runs out; 0: none will.
	ResumeDue(ctx context.Context) (resumed int, next time.Duration, err error)
	// Operate does a batch of work on one of the operations that have not ended, in one transaction with
	// the progress it notes. It returns how long to wait before the next one; left is false once none is left.
	Operate(ctx context.Context) (wait time.Duration, left bool, err error)
	// Notify makes the runs that tell the notify URLs of some jobs what happened to these, where it may be told
	// by now. left is true when there may be more.
	Notify(ctx context.Context) (left bool, err error)
	// Maintain does the slow chores, such as the partitions ahead.
	Maintain(ctx context.Context) error
	// Tidy removes what was kept for its time, which one replica does at a time. left is true when there is more.
	Tidy(ctx context.Context) (left bool, err error)
	// ReportHolds writes what a replica holds runs back for, in place of what it wrote before, and returns what it is
	// told to do about it.
	ReportHolds(ctx context.Context, replica uuid.UUID, states []HoldState) ([]HoldOrder, error)
	// ReleaseHeld makes runs ready that wait for something that no replica holds them back for any more. left is
	// true when there may be more.
	ReleaseHeld(ctx context.Context) (left bool, err error)
	// FreeGates frees gates of jobs whose runs, in flight when the job got its gate, have ended.
	FreeGates(ctx context.Context) error
	// Wake receives a value after this process wrote something that may be due at once.
	Wake() <-chan struct{}
}

// LockedOutcomesError says which outcomes were left, by run, as somebody else has locked rows that they change, and of
// which table; and which leases were not ended, because of those or as their own rows are locked.
type LockedOutcomesError struct {
	Runs   map[uuid.UUID]string
	Leases []uuid.UUID
}

func (e *LockedOutcomesError) Error() string {
	return fmt.Sprintf("somebody else has locked rows of %d runs and %d claims", len(e.Runs), len(e.Leases))
}

// Replica is one process as others see it.
type Replica struct {
	ID      uuid.UUID
	Host    string // for people
	Version string
	Queues  map[string]int // worker slots by queue
}

// Pulse is what a renewal tells.
type Pulse struct {
	Known   bool        // false: the others took this replica for lost and removed it
	Others  []Heartbeat // of every other replica
	Claims  []uuid.UUID // those this replica holds
	Cancels []uuid.UUID // runs it is sending that are to be cancelled
	Orphans bool        // there are claims of replicas that are no more

	Operations bool // there are operations that have not ended
	Silent     bool // a target that works on has passed its deadline, or is about to
	Notices    bool // there are notices that may be told
	Unheld     bool // runs wait for something that no replica holds them back for any more
	Gates      bool // runs that began before their job had a gate hold it

	AllowedTargets map[int32][]netip.Prefix // networks that single tenants may call although they are not public
	Limits         []TenantLimits           // of the tenants that have any, or are frozen
	Frozen         *Freeze                  // of the deployment; nil: it is not
}

// Claim says who claims and how much.
type Claim struct {
	Replica uuid.UUID
	Quotas  []Quota // their slots sum to at most BatchSize
	// Work is what is claimed. Slots are claimed either late or due now, so that those that are late never stand before
	// the others.
	Work Work
	// Behind is for how long slots that are due now have been due at least: a slow replica leaves them to others first.
	Behind time.Duration
	// Grant is what the claim may start of tenants with limits; their rows beyond it stay as they are.
	Grant *Grant
	// Except lists held-back tenants: unnamed quotas skip them and take only slots due within the last Since,
	// because skipping a long backlog costs time.
	Except []int32
	Since  time.Duration
	// Held asks for runs that wait for their host, in place of those that are due.
	Held *HeldClaim
	// Replacing asks, in place of what the quotas name, for due slots of these jobs whose runs replace one in flight. They
	// wait until it has ended, so they take no worker slot; a slot whose run would start at once stays due.
	Replacing []uuid.UUID
}

// Quota is how many runs a claim may take from one queue. Either all quotas of a claim name a tenant or none
// does; see share.
type Quota struct {
	Queue  int16
	Tenant int32 // whose runs; 0: anybody's
	Slots  int
}

// BatchSize is the most slots one claim takes: enough to amortise its round trips, little enough to hold
// its locks for milliseconds.
const BatchSize = 100

// OlderThan is how long after its due time a slot counts as late.
const OlderThan = 5 * time.Second

// LookInto names the queues to look into for each kind of work; none: it is not looked for.
type LookInto [works][]int16

// Upcoming tells when there is something to claim, by the database's clock; zero times: nothing at all.
type Upcoming struct {
	Now      time.Time
	Schedule time.Time // the next slot due, apart from late ones
	Ready    time.Time // the next run in ready, apart from ordered ones
	Ordered  time.Time // the next of these
	Older    bool      // there are late slots: due for more than OlderThan
}
