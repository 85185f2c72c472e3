package claim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Decide ends the run of a step that waits for approval as a person has decided. The first decision counts: later ones
// get pg.ErrState, with who decided and when. Tenant 0 is any: the caller has shown the token of a link. then writes
// what else belongs to the transaction.
func (s *Claims) Decide(
	ctx context.Context, tenant int32, run uuid.UUID, d domain.Decision, then func(tx *pg.Tx, of int32) error,
) error {
	following, err := s.followers.Follow(ctx, s.db.Callers, pg.Everybody)
	if err != nil {
		return err
	}
	var outcomes []domain.Outcome
	var written map[uuid.UUID]bool
	err = s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		c, err := s.lockCalled(ctx, tx, run)
		switch {
		case err != nil:
			return err
		case tenant != 0 && c.tenant != tenant:
			return fmt.Errorf("run %s: %w", run, pg.ErrNotFound)
		case c.Job.Approval == nil:
			return fmt.Errorf("run %s is of no step that waits for approval: %w", run, pg.ErrState)
		case c.status != domain.StatusRunning || c.AcceptedAt.IsZero() || c.cancelRequested():
			return undecided(ctx, tx, run, c)
		}
		failpoint.At(failpoint.CallbackLocked)
		outcomes = []domain.Outcome{domain.JudgeDecision(c.Assignment, d, c.started, c.now)}
		var b pgx.Batch
		b.Queue(`DELETE FROM punctual.ready WHERE run_id = $1`, run) // the deadline
		b.Queue(pg.ByIndex)
		written = QueueFinish(&b, outcomes, nil, Earlier{}, days.AnyDay, following)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("ending run %s: %w", run, err)
		}
		tx.Ask(following.Asks()...)
		return then(tx, c.tenant)
	})
	if err == nil {
		failpoint.At(failpoint.CallbackCommitted)
		s.Ended(outcomes, written)
	}
	return err
}

// undecided says why a person cannot decide about the run of a step with approval.
func undecided(ctx context.Context, q pg.Querier, run uuid.UUID, c calledRun) error {
	var result seal.JSON
	var why string
	err := q.QueryRow(ctx, `
		SELECT d.result, coalesce(r.error, '')
		FROM punctual.runs r LEFT JOIN punctual.run_data d ON d.run_id = $1 WHERE r.id = $1`, run).
		Scan(&result, (*seal.Shown)(&why))
	if err != nil {
		return fmt.Errorf("reading how run %s ended: %w", run, err)
	}
	said := domain.DecisionOf(json.RawMessage(result), c.reason, why)
	switch {
	case said != "":
		return fmt.Errorf("run %s was %s: %w", run, said, pg.ErrState)
	case c.status.Final():
		return fmt.Errorf("run %s has ended as %s, %s: %w", run, c.status, c.reason, pg.ErrState)
	case c.cancelRequested():
		return fmt.Errorf("run %s is being cancelled: %w", run, pg.ErrState)
	}
	return fmt.Errorf("run %s does not wait for approval yet, its status is %s: %w", run, c.status, pg.ErrState)
}
