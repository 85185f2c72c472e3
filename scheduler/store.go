package scheduler

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// Store is everything that the loops ask of the database: to claim, to finish, and to stay alive. Package store
// implements it on Postgres. Chore is for everything else.
type Store interface {
	// ClaimDue claims due slots within the quotas. It locks them, lets Decide settle them, and commits the runs and the
	// next slots in one transaction. Runs may be sent once it has returned. It claims nothing that is frozen at the
	// moment it has its locks.
	ClaimDue(ctx context.Context, c Claim) (domain.Batch, error)
	// ClaimReady claims runs that wait for any replica: retries, manual runs, runs given back, and ordered ones.
	ClaimReady(ctx context.Context, c Claim) (domain.Batch, error)
	// ReadGiven reads what a step is given. A claim leaves that out where it is large.
	ReadGiven(ctx context.Context, a *domain.Assignment) error
	// Contenders returns the tenants whose work of a kind a claim could take in the queues now.
	Contenders(ctx context.Context, of domain.Work, queues []int16) ([]admit.Contender, error)
	// NextDue returns when there will be something to claim in the queues. With ahead it ignores what is due already.
	NextDue(ctx context.Context, queues LookInto, ahead bool) (Upcoming, error)
	// Draw grants a replica its part of tenants' limits. The sum over all replicas never exceeds a limit, except by runs
	// that were in flight before it was lowered.
	Draw(ctx context.Context, replica uuid.UUID, wishes []admit.Wish) ([]admit.Allowance, error)
	// Finish writes the outcomes of attempts, in one transaction, and deletes the claims of the released leases, which
	// have no runs left. Earlier are those of their runs whose outcomes were written before. Should one of them still be
	// running, the database has lost its outcome: then the claim stays. An outcome whose attempt was superseded changes
	// nothing; superseded counts them. With a *LeftOutcomesError some outcomes were left out, and all others were
	// written. Finish must not keep the slice of outcomes: the caller uses it again.
	Finish(
		ctx context.Context, outcomes []domain.Outcome, released []uuid.UUID, earlier ...uuid.UUID,
	) (superseded int, err error)
	// Register makes this replica known, and returns the number of each of its queues.
	Register(ctx context.Context, r Replica) (map[string]int16, error)
	// Renew renews the replica's heartbeat, with how it is, and returns what it has to know and do.
	Renew(ctx context.Context, replica uuid.UUID, is Condition) (Pulse, error)
	// Deregister removes a replica that has stopped.
	Deregister(ctx context.Context, replica uuid.UUID) error
	// Recover removes replicas whose heartbeat has stood still, except one that has moved since. It ends some of the
	// claims of removed replicas: their attempts are lost. It returns how many runs it took back.
	Recover(ctx context.Context, lost []Heartbeat) (int, error)
	// GiveBack ends claims whose runs were never sent, and makes the runs ready again. It returns how many.
	GiveBack(ctx context.Context, claims []uuid.UUID) (int, error)
	// Lose ends as lost the attempts that are still running under claims of this replica, although it has ended them: the
	// database has lost their outcomes. With runs it ends only these, and without it ends the claims too. It returns how
	// many attempts it ended.
	Lose(ctx context.Context, claims, runs []uuid.UUID) (int, error)
	// ReportHolds writes what a replica holds runs back for, in place of its previous report, and makes runs ready again
	// that no replica holds back any more. It returns orders: which holds to reset, and which hosts to probe now. It may
	// return orders together with an error, and returns no order twice.
	ReportHolds(ctx context.Context, replica uuid.UUID, states []admit.HoldState) ([]admit.HoldOrder, error)
	// Wake receives a value after this process wrote something that may be due at once.
	Wake() <-chan struct{}
	// Asked receives a value after this process wrote work for a chore.
	Asked(chore string) <-chan struct{}
}

// LeftOutcomesError says what Finish left out. Runs are the runs whose outcomes were left out because somebody else has
// locked rows, each with the table of these rows. Failing are those whose outcomes cannot be written, whoever else is
// there: they were set aside. Leases are the leases that were not ended, because of such outcomes or because their own
// rows are locked.
type LeftOutcomesError struct {
	Runs    map[uuid.UUID]string
	Failing map[uuid.UUID]error
	Leases  []uuid.UUID
}

func (e *LeftOutcomesError) Error() string {
	return fmt.Sprintf("another transaction has locked rows of %d runs, %d outcomes cannot be written, %d claims stay",
		len(e.Runs), len(e.Failing), len(e.Leases))
}

// Replica is one process as the other replicas see it.
type Replica struct {
	ID      uuid.UUID
	Host    string // for people
	Version string
	Queues  map[string]int // worker slots by queue
}

// Condition is what a replica tells of itself with each heartbeat.
type Condition struct {
	Draining bool   // it was told to stop, and claims no more
	Lacks    string // what requests need and it does not have: see [Shortages]; empty: nothing
}

// Pulse is what the renewal of a heartbeat returns.
type Pulse struct {
	Known   bool        // false: the others took this replica for lost and removed it
	Others  []Heartbeat // the heartbeats of every other replica
	Claims  []uuid.UUID // claims that this replica holds
	Cancels []uuid.UUID // runs that this replica is sending and must cancel
	Orphans bool        // there are claims of removed replicas
	Chores  []string    // chores for which there is work now, or in the next two seconds

	// Replaced says that since the last pulse another Postgres has taken over, or this one was restarted. What it had
	// acknowledged may be lost.
	Replaced bool

	AllowedTargets map[int32][]netip.Prefix // networks that single tenants may call although they are not public
	Limits         []admit.TenantLimits     // of tenants that have limits or are frozen
	Frozen         *Freeze                  // the freeze of the deployment; nil: not frozen
}

// Claim says who claims and how much.
type Claim struct {
	Replica uuid.UUID
	Lease   uuid.UUID     // id of the lease; uuid.Nil: the store chooses one
	Quotas  []admit.Quota // their slots sum to at most BatchSize
	// Work is the kind of work to claim. Late slots and slots due now are claimed apart, so that late ones never delay
	// the others.
	Work domain.Work
	// Behind leaves slots alone that became due less than this long ago: a slow replica leaves them to others first.
	Behind time.Duration
	// Recent narrows a claim of late slots down to those that have been due for less than RecentlyDue.
	Recent bool
	// Grant is what the claim may start of tenants with limits; their rows beyond it stay as they are.
	Grant *admit.Grant
	// Except lists held-back tenants: unnamed quotas skip them and take only slots due within the last Since,
	// because skipping a long backlog costs time.
	Except []int32
	Since  time.Duration
	// Held asks for runs that wait for their host, in place of due ones.
	Held *HeldClaim
	// Replacing asks, in place of what the quotas name, for due slots or ready runs of these jobs that replace a run in
	// flight. They wait until that one has ended, so they take no worker slot. What would start at once stays due.
	Replacing []uuid.UUID
}

// OlderThan is how long after its due time a slot counts as late.
const OlderThan = 5 * time.Second

// RecentlyDue is for how long a late slot counts as recent. While there is a backlog, every second claim of late slots
// is of recent ones: a slot that came a moment too late does not wait until hours of backlog have drained.
const RecentlyDue = time.Minute

// LookInto names the queues to look into for each kind of work. A kind without queues is not looked for.
type LookInto [domain.WorkKinds][]int16

// Upcoming says when there is something to claim, by the database's clock. A zero time: nothing.
type Upcoming struct {
	Now      time.Time
	Schedule time.Time // the next slot due; late slots are not counted
	Ready    time.Time // the next run in ready; ordered runs are not counted
	Ordered  time.Time // the next ordered run
	Older    bool      // there are late slots: due for longer than OlderThan
	Halted   bool      // the deployment is frozen
	Frozen   []int32   // the frozen tenants, sorted
}
