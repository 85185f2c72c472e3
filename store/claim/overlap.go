package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// ActiveRunError says that the job's concurrency policy does not allow another run now.
type ActiveRunError struct {
	Run    uuid.UUID // the run that prevents it
	Policy domain.ConcurrencyPolicy
}

func (e *ActiveRunError) Error() string {
	return fmt.Sprintf("run %s of this job has not ended, and its concurrency_policy is %s", e.Run, e.Policy)
}

// Unwrap returns how a caller is refused.
func (e *ActiveRunError) Unwrap() error {
	return &domain.Refusal{Code: "active_run", Reason: e.Error(), Run: &e.Run}
}

// Admit does for a run by hand what domain.Decide does for a slot: according to the job's policy the run takes the
// gate, waits, replaces the active run, or is refused with *ActiveRunError. The caller has locked the gate with
// LockGate, and enters the run.
func (s *Claims) Admit(
	ctx context.Context, tx *pg.Tx, job uuid.UUID, tenant int32, policy domain.ConcurrencyPolicy, run uuid.UUID,
	now time.Time,
) error {
	if policy == domain.PolicyAllow {
		return nil
	}
	// The gate is locked already, unless the job got it since. Then this transaction must not wait for the gate, because
	// it holds the job's row, which comes after the gate in the lock order.
	g, held, err := s.readGate(ctx, tx, job, PassOver, now)
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("job %s is being changed by another transaction; try again: %w", job, pg.ErrState)
	}
	o := g.Facts().Overlap(policy)
	if policy == domain.PolicyForbid && o.Blocker == uuid.Nil { // a replay, for example, has no gate before it starts
		if o.Blocker, err = runInReady(ctx, tx, job); err != nil {
			return err
		}
	}
	if o.Blocker != uuid.Nil {
		return &ActiveRunError{Run: o.Blocker, Policy: policy}
	}
	return s.makeWay(ctx, tx, job, tenant, g, o, []uuid.UUID{run}, now)
}

// runInReady returns a run of the job's own that waits in ready, or uuid.Nil if there is none.
func runInReady(ctx context.Context, tx *pg.Tx, job uuid.UUID) (uuid.UUID, error) {
	var waiting uuid.UUID
	err := tx.QueryRow(ctx, `
		SELECT r.id
		FROM punctual.runs_of(ARRAY(SELECT run_id FROM punctual.ready WHERE job_id = $1)) r
		WHERE r.status IN ('pending', 'retrying')
		ORDER BY r.id
		LIMIT 1`, job).Scan(&waiting)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, fmt.Errorf("looking for waiting runs of job %s: %w", job, err)
	}
	return waiting, nil
}

// makeWay carries out what was decided about new runs of a job. It ends the runs that have expired and cancels the runs
// that are replaced. The first of the new runs takes the gate if the gate is free by then. The next one waits for the
// gate unless another run waits. The caller has locked the gate.
func (s *Claims) makeWay(
	ctx context.Context, tx *pg.Tx, job uuid.UUID, tenant int32, g Gate, o domain.Overlap, runs []uuid.UUID,
	now time.Time,
) error {
	if len(o.Expired) > 0 {
		if err := expireRuns(ctx, tx, o.Expired); err != nil {
			return err
		}
		g.Waiting = uuid.Nil
	}
	cancel, err := mayCancel(ctx, tx, tenant, g, o.Cancel)
	if err != nil {
		return err
	}
	if len(cancel) > 0 {
		if _, err := CancelRuns(ctx, tx, cancel, domain.ReasonReplaced); err != nil {
			return err
		}
		if g, _, err = s.readGate(ctx, tx, job, PassOver, now); err != nil {
			return err
		}
	}
	var b pgx.Batch
	if len(runs) > 0 && len(g.Holders()) == 0 {
		queueTakeGates(&b, []uuid.UUID{job}, runs[:1])
		runs = runs[1:]
	}
	if len(runs) > 0 && g.Waiting == uuid.Nil {
		queueWait(&b, []uuid.UUID{job}, runs[:1])
	}
	if b.Len() == 0 {
		return nil
	}
	return pg.Wrap("entering the gate of job "+job.String(), tx.SendBatch(ctx, &b).Close())
}

// mayCancel returns which of the runs that are to be replaced may be cancelled now. During a freeze a run in flight is
// not cancelled for a waiting one: it ends by itself, and its successor starts when the freeze is over.
func mayCancel(ctx context.Context, tx *pg.Tx, tenant int32, g Gate, runs []uuid.UUID) ([]uuid.UUID, error) {
	inFlight := func(run uuid.UUID) bool { return slices.Contains(g.Holders(), run) }
	if !slices.ContainsFunc(runs, inFlight) {
		return runs, nil
	}
	freezes, err := freeze.Read(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	if frozen, _ := freezes.Of(tenant); frozen == nil {
		return runs, nil
	}
	return slices.DeleteFunc(slices.Clone(runs), inFlight), nil
}

// LockGate locks the gate of a tenant's job, if it has one. In the order of locks, a gate comes after the job's
// schedule and before its runs, its rows in ready and its row in jobs.
func LockGate(ctx context.Context, tx *pg.Tx, tenant int32, job uuid.UUID) error {
	err := pg.Exec(ctx, tx, `
		SELECT
		FROM punctual.exclusive x
		WHERE x.job_id = $1 AND EXISTS (SELECT FROM punctual.jobs j WHERE j.id = $1 AND j.tenant = $2)
		FOR NO KEY UPDATE OF x`, job, tenant)
	return pg.Wrap("locking the gate of job "+job.String(), err)
}

// LockGates locks the gates of jobs that have one, and waits for none. It returns the jobs whose gate another
// transaction has locked.
func LockGates(ctx context.Context, tx *pg.Tx, jobs []uuid.UUID) (busy []uuid.UUID, err error) {
	rows, err := tx.Query(ctx, lockFree["exclusive"], jobs)
	if err != nil {
		return nil, fmt.Errorf("locking gates: %w", err)
	}
	busy, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return busy, pg.Wrap("locking gates", err)
}

// ReadGate locks and returns the gate of a job whose runs must not overlap, without runs that have ended. The gate of a
// job that allows overlap is free.
func (s *Claims) ReadGate(ctx context.Context, tx *pg.Tx, job *domain.Job, now time.Time) (Gate, error) {
	if job.ConcurrencyPolicy == domain.PolicyAllow {
		return Gate{}, nil
	}
	g, _, err := s.readGate(ctx, tx, job.ID, Wait, now)
	return g, err
}

// readGate locks and returns a job's gate, without runs that have ended. held is false if the job has none, or if
// another transaction has locked it and locked says to pass over it.
func (s *Claims) readGate(
	ctx context.Context, tx *pg.Tx, job uuid.UUID, locked string, now time.Time,
) (g Gate, held bool, err error) {
	gates := map[uuid.UUID]Gate{}
	var b pgx.Batch
	queueGates(&b, []uuid.UUID{job}, gates, locked)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return g, false, fmt.Errorf("locking the gate of job %s: %w", job, err)
	}
	if err := s.freeEndedGates(ctx, tx, gates, now); err != nil {
		return g, false, err
	}
	g, held = gates[job]
	return g, held, nil
}
