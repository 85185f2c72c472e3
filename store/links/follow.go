package links

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
)

// Follower makes the runs that the ends of runs trigger.
var Follower = claim.Follows(func() claim.Following { return &following{} })

// following is what follows in one transaction. It implements claim.Following.
type following struct {
	claim.Nothing      // neither a start nor a skip triggers anything
	made          bool // a run may be claimed
}

// Concerns implements claim.Following.
func (f *following) Concerns(job *domain.Job) bool { return len(job.Then) > 0 }

// QueueEnds implements claim.Following. Whether a run has ended is up to the statement: a cancel may have come first.
func (f *following) QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, on days.Day) {
	var runs []uuid.UUID
	for _, o := range outcomes {
		if f.Concerns(o.Job) {
			if runs = append(runs, o.RunID); !on.Has(domain.IDTime(o.RunID), o.FinishedAt) {
				on = days.AnyDay
			}
		}
	}
	if len(runs) > 0 {
		claim.QueueChained(b, runs, on, &f.made)
	}
}

// Asks implements claim.Following.
func (f *following) Asks() []string {
	if f.made {
		return []string{pg.TickLoop}
	}
	return nil
}
