package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
)

// deletions cancel runs of deleted jobs. It is a subject.
type deletions struct {
	decides
	*lockedRuns
	cancel []uuid.UUID
}

func (d *deletions) decide(r *waitingRun) verdict {
	if !r.deleted {
		return goesOn
	}
	d.cancel = append(d.cancel, r.RunID)
	return verdict{fate: leaves}
}

func (d *deletions) write(ctx context.Context, _ *pgx.Batch) error {
	if len(d.cancel) == 0 {
		return nil
	}
	_, err := CancelRuns(ctx, d.conn, d.cancel, domain.ReasonJobDeleted)
	return err
}

// slots keep runs from starting in a claim that has no worker slots: one of runs that are to replace others. It is a
// subject.
type slots struct {
	decides
	*lockedRuns
}

func (s *slots) decide(*waitingRun) verdict {
	if len(s.claim.Replacing) > 0 {
		return verdict{fate: stays}
	}
	return goesOn
}

// starts are the starts that tenants may make. A run whose tenant is at a limit stays as it is. It is a subject.
type starts struct {
	decides
	*lockedRuns
}

func (s *starts) decide(r *waitingRun) verdict {
	if !s.claim.Grant.Take(r.Job.Tenant, 1) {
		return verdict{fate: stays}
	}
	return goesOn
}
