package runs

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/pg"
)

// CancelRun cancels a run: at once while it waits, and within two seconds while a replica sends it. To cancel a run
// again changes nothing. A dated run that is pending is removed, so it is not found then. CancelRun returns ErrState
// when the run has ended in another way.
func (s *Runs) CancelRun(ctx context.Context, tenant int32, id uuid.UUID) (Run, error) {
	var run Run
	err := s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		before, err := Read(ctx, tx, tenant, id)
		if err == nil && before.dated {
			var ok bool
			if run, ok, err = cancelDated(ctx, tx, tenant, before); err != nil || ok {
				return err
			}
			before, err = Read(ctx, tx, tenant, id) // it was claimed or moved in between
		}
		if err != nil {
			return err
		}
		if err := claim.LockGate(ctx, tx, tenant, before.JobID); err != nil {
			return err
		}
		changed, err := claim.CancelRuns(ctx, tx, []uuid.UUID{id}, domain.ReasonCancelled)
		if err != nil {
			return err
		}
		if run, err = Read(ctx, tx, tenant, id); err != nil {
			return err
		}
		if run.Status.Final() && run.Status != domain.StatusCancelled {
			return fmt.Errorf("run %s has ended as %s: %w", id, run.Status, pg.ErrState)
		}
		if changed == 0 {
			return nil
		}
		return audit.Write(ctx, tx, tenant, audit.Change{
			Action: audit.RunCancel, ID: id, Job: run.JobID, Name: run.Job,
			Before: runShot{Status: before.Status}, After: runShot{Status: run.Status, Reason: run.Reason},
		})
	})
	if err == nil {
		s.db.Ask(claim.Freed...)
		s.claims.Over(id)
	}
	return run, err
}

// runShot is the part of a run that a cancel or a decision changes, as the audit log shows it.
type runShot struct {
	Status domain.Status  `json:"status"`
	Reason *domain.Reason `json:"reason,omitempty"` // of a cancel
	Step   string         `json:"step,omitempty"`   // that was decided about
	Note   string         `json:"note,omitempty"`
}
