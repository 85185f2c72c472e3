package claim

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// Follower is a room above that is told what becomes of runs, in the transaction that writes it.
type Follower interface {
	// Follow returns what follows in one transaction of a tenant's, or of pg.Everybody's. Then it is called before the
	// transaction begins, because it may need a connection of its own, of the same pool.
	Follow(ctx context.Context, q pg.Querier, tenant int32) (Following, error)
}

// Following is what follows in one transaction from what becomes of runs. Its statements come after those that write
// the runs. They write no table of the claim but by what this package offers for it: QueueChained, QueueLate, Entering
// and ComeDue.
//
// A finish asks its followers in their order, and each of them, in this order, QueueRead, Decide, QueueEnds and
// Continue or Leave; and Asks once the transaction has committed.
type Following interface {
	// Concerns reports whether anything may follow from what becomes of a job's runs. Then the transaction locks the
	// job's row FOR KEY SHARE.
	Concerns(job *domain.Job) bool
	// Starts reports whether to queue an event when a run of a job is claimed for the first time.
	Starts(job *domain.Job) bool
	QueueEvents(b *pgx.Batch, events []RunEvent)

	// QueueRead queues what Decide has to know of outcomes. It comes first in the transaction. If there is nothing to
	// know, it queues nothing: then the transaction takes no round trip for it.
	QueueRead(b *pgx.Batch, outcomes []domain.Outcome)
	// Decide returns how an attempt has ended, and whether that is to be written.
	Decide(o domain.Outcome) (domain.Outcome, Decision)
	// QueueEnds queues what follows from outcomes that are written, on the day of the runs that succeeded, or AnyDay.
	QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, on days.Day)

	// Continues reports whether what follows from outcomes takes round trips of its own: see Continue.
	Continues(outcomes []domain.Outcome) bool
	// Continue comes after the statements of all, and makes what follows in further round trips. It sends b first, in
	// which they stand, or leaves it to the caller.
	Continue(ctx context.Context, q pg.Querier, b *pgx.Batch) error
	// Leave takes the place of Continue in a transaction that makes no further round trip. It queues what a chore needs
	// to do the same.
	Leave(b *pgx.Batch)

	// Asks names the chores that have work once the transaction has committed.
	Asks() []string
}

// Decision is what a follower decides about an outcome.
type Decision int

// The decisions.
const (
	ToWrite   Decision = iota
	MustWait           // another transaction has to end first
	IsWritten          // it is written already
)

// Nothing is a Following from which nothing follows. Those that have part of one embed it.
type Nothing struct{}

// Concerns implements Following.
func (Nothing) Concerns(*domain.Job) bool { return false }

// Starts implements Following.
func (Nothing) Starts(*domain.Job) bool { return false }

// QueueEvents implements Following.
func (Nothing) QueueEvents(*pgx.Batch, []RunEvent) {}

// QueueRead implements Following.
func (Nothing) QueueRead(*pgx.Batch, []domain.Outcome) {}

// Decide implements Following.
func (Nothing) Decide(o domain.Outcome) (domain.Outcome, Decision) { return o, ToWrite }

// QueueEnds implements Following.
func (Nothing) QueueEnds(*pgx.Batch, []domain.Outcome, days.Day) {}

// Continues implements Following.
func (Nothing) Continues([]domain.Outcome) bool { return false }

// Continue implements Following.
func (Nothing) Continue(context.Context, pg.Querier, *pgx.Batch) error { return nil }

// Leave implements Following.
func (Nothing) Leave(*pgx.Batch) {}

// Asks implements Following.
func (Nothing) Asks() []string { return nil }

// RunEvent says that a run was first claimed late, that it records missed slots, that it was skipped because of others
// although somebody had asked for it, or that it was claimed for the first time.
type RunEvent struct {
	Job   *domain.Job
	Event jobspec.Event
	Run   uuid.UUID
}

// Follows is a Follower that has nothing to read. It returns what follows in one transaction.
type Follows func() Following

// Follow implements Follower.
func (f Follows) Follow(context.Context, pg.Querier, int32) (Following, error) { return f(), nil }

// followers are several as one.
type followers []Follower

// Follow implements Follower.
func (f followers) Follow(ctx context.Context, q pg.Querier, tenant int32) (Following, error) {
	all := make(followings, len(f))
	for i, one := range f {
		var err error
		if all[i], err = one.Follow(ctx, q, tenant); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// followings are what follows for each follower. They implement Following.
type followings []Following

func (f followings) Concerns(job *domain.Job) bool {
	return slices.ContainsFunc(f, func(one Following) bool { return one.Concerns(job) })
}

func (f followings) Starts(job *domain.Job) bool {
	return slices.ContainsFunc(f, func(one Following) bool { return one.Starts(job) })
}

func (f followings) QueueEvents(b *pgx.Batch, events []RunEvent) {
	for _, one := range f {
		one.QueueEvents(b, events)
	}
}

func (f followings) QueueRead(b *pgx.Batch, outcomes []domain.Outcome) {
	for _, one := range f {
		one.QueueRead(b, outcomes)
	}
}

// Decide implements Following: the first that does not let an outcome be written decides.
func (f followings) Decide(o domain.Outcome) (_ domain.Outcome, d Decision) {
	for i := 0; i < len(f) && d == ToWrite; i++ {
		o, d = f[i].Decide(o)
	}
	return o, d
}

func (f followings) QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, on days.Day) {
	for _, one := range f {
		one.QueueEnds(b, outcomes, on)
	}
}

func (f followings) Continues(outcomes []domain.Outcome) bool {
	return slices.ContainsFunc(f, func(one Following) bool { return one.Continues(outcomes) })
}

func (f followings) Continue(ctx context.Context, q pg.Querier, b *pgx.Batch) error {
	for _, one := range f {
		if err := one.Continue(ctx, q, b); err != nil {
			return err
		}
	}
	return nil
}

func (f followings) Leave(b *pgx.Batch) {
	for _, one := range f {
		one.Leave(b)
	}
}

func (f followings) Asks() (chores []string) {
	for _, one := range f {
		chores = append(chores, one.Asks()...)
	}
	return chores
}
