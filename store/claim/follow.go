package claim

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Follower is a room above that is told what becomes of runs, in the transaction that writes it.
type Follower interface {
	// Follow returns what follows in one transaction. It is called before the transaction begins, because it may need a
	// connection of its own, of the same pool.
	Follow(ctx context.Context, q pg.Querier) (Following, error)
	// FollowWithin is Follow within a transaction about jobs of one tenant.
	FollowWithin(ctx context.Context, q pg.Querier, tenant int32) (Following, error)

	// Facts is SQL for a value that every heartbeat reads for the follower, and Learn takes it. So Follow seldom has to
	// read.
	Facts() string
	Learn(value []byte) error
}

// Following queues what follows in one transaction from what becomes of runs. Its statements come after those that
// write the runs. They read and write no table of the claim, except that they may read the runs, and queue what this
// package offers for it: QueueChained.
type Following interface {
	// Concerns reports whether anything may follow from what becomes of a job's runs. Then the transaction locks the
	// job's row FOR KEY SHARE.
	Concerns(job *domain.Job) bool
	// Starts reports whether to queue an event when a run of a job is claimed for the first time.
	Starts(job *domain.Job) bool
	QueueEvents(b *pgx.Batch, events []RunEvent)
	// QueueEnds is given the day of the runs that succeeded, or AnyDay.
	QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, on Day)
	// Asks names the chores that have work once the transaction has committed.
	Asks() []string
}

// RunEvent says that a run was first claimed late, that it records missed slots, that it was skipped because of others
// although somebody had asked for it, or that it was claimed for the first time.
type RunEvent struct {
	Job   *domain.Job
	Event domain.Event
	Run   uuid.UUID
}

// followers are several as one.
type followers []Follower

// Follow implements Follower.
func (f followers) Follow(ctx context.Context, q pg.Querier) (Following, error) {
	return f.each(func(one Follower) (Following, error) { return one.Follow(ctx, q) })
}

// FollowWithin implements Follower.
func (f followers) FollowWithin(ctx context.Context, q pg.Querier, tenant int32) (Following, error) {
	return f.each(func(one Follower) (Following, error) { return one.FollowWithin(ctx, q, tenant) })
}

func (f followers) each(follow func(Follower) (Following, error)) (Following, error) {
	all := make(followings, len(f))
	for i, one := range f {
		var err error
		if all[i], err = follow(one); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Facts is SQL for an array of the followers' facts, which Learn hands out.
func (f followers) Facts() string {
	return `ARRAY[` + strings.Join(pg.Column(f, func(one Follower) string {
		return `(` + one.Facts() + `)::text`
	}), `, `) + `]::text[]`
}

func (f followers) Learn(values []string) error {
	for i, one := range f {
		if err := one.Learn([]byte(values[i])); err != nil {
			return err
		}
	}
	return nil
}

// followings are what follows for each follower.
type followings []Following

// Concerns implements Following.
func (f followings) Concerns(job *domain.Job) bool {
	return slices.ContainsFunc(f, func(one Following) bool { return one.Concerns(job) })
}

// Starts implements Following.
func (f followings) Starts(job *domain.Job) bool {
	return slices.ContainsFunc(f, func(one Following) bool { return one.Starts(job) })
}

// QueueEvents implements Following.
func (f followings) QueueEvents(b *pgx.Batch, events []RunEvent) {
	for _, one := range f {
		one.QueueEvents(b, events)
	}
}

// QueueEnds implements Following.
func (f followings) QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, on Day) {
	for _, one := range f {
		one.QueueEnds(b, outcomes, on)
	}
}

// Asks implements Following.
func (f followings) Asks() (chores []string) {
	for _, one := range f {
		chores = append(chores, one.Asks()...)
	}
	return chores
}
