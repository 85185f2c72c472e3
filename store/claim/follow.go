package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Follower is a room above that is told what becomes of runs, in the transaction that writes it.
type Follower interface {
	// Follow returns what follows in one transaction. It is called before the transaction begins, because it may need a
	// connection of its own.
	Follow(ctx context.Context) (Following, error)
	// FollowWithin is Follow within a transaction about jobs of one tenant.
	FollowWithin(ctx context.Context, q pg.Querier, tenant int32) (Following, error)

	// Facts is SQL for a value that every heartbeat reads for the follower, and Learn takes it. So Follow seldom has to
	// read.
	Facts() string
	Learn(value []byte) error
}

// Following queues what follows in one transaction from what becomes of runs. Its statements come after those that
// write the runs. They read and write no table of the claim, except that they may read the runs.
type Following interface {
	// Concerns reports whether anything may follow from what becomes of a job's runs. Then the transaction locks the
	// job's row FOR KEY SHARE.
	Concerns(job *domain.Job) bool
	QueueEvents(b *pgx.Batch, events []RunEvent)
	QueueEnds(b *pgx.Batch, outcomes []domain.Outcome)
}

// RunEvent says that a run was written late, or that it records missed slots.
type RunEvent struct {
	Job   *domain.Job
	Event domain.Event
	Run   uuid.UUID
}
