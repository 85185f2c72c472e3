package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// SupersededError means that a target called about an attempt that is over.
type SupersededError struct {
	Run    uuid.UUID
	Status domain.Status // of the run now
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("the attempt of this token has ended: the status of run %s is %s", e.Run, e.Status)
}

// Unwrap returns how a caller is refused.
func (e *SupersededError) Unwrap() error {
	return &jobspec.Refusal{Code: "superseded", Reason: e.Error()}
}

// Heartbeat is the answer to a target's heartbeat.
type Heartbeat struct {
	CancelRequested bool      `json:"cancel_requested" doc:"A cancel was requested: stop the work, and report complete or fail." example:"false"`
	Deadline        time.Time `json:"deadline" doc:"The attempt is lost unless the target reports again before this instant."`
}

// Progress is the last progress that targets reported of a run.
type Progress struct {
	Attempt    int             `json:"attempt" doc:"Number of the current attempt." example:"2"`
	Progress   json.RawMessage `json:"progress" doc:"The progress reported last. Null: no progress was reported."`
	RecordedAt *time.Time      `json:"recorded_at" doc:"When it was reported."`
}

// calledRun is a run whose target calls. Its rows are locked and read.
type calledRun struct {
	runRow
	status domain.Status
	reason domain.Reason
	http   int
	now    time.Time
	kept   KeptResponse
}

func (c calledRun) cancelRequested() bool {
	return c.reason == domain.ReasonCancelled || c.reason == domain.ReasonReplaced
}

// calledBy returns the fencing token of the attempt whose target calls, or scheduler.ErrRunToken when the token was not
// made for this run. Once the key is in memory, calledBy sends the database nothing.
func (s *Claims) calledBy(ctx context.Context, run uuid.UUID, token string) (fence int64, err error) {
	key, err := s.ReadTokenKey(ctx, s.db.Callers.Reader(pg.Everybody))
	if err != nil {
		return 0, err
	}
	return domain.ReadRunToken(key, run, token)
}

// call runs work for a target that has shown a token. It first locks the gate of the job, the run's row in ready and
// the run, in this order. It returns scheduler.ErrRunToken when the token was not made for this run.
func (s *Claims) call(
	ctx context.Context, run uuid.UUID, token string,
	work func(ctx context.Context, tx *pg.Tx, fence int64, c calledRun) error,
) error {
	fence, err := s.calledBy(ctx, run, token)
	if err != nil {
		return err
	}
	return s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		c, err := s.lockCalled(ctx, tx, run)
		if err != nil {
			return err
		}
		if c.Job.Completion != jobspec.CompleteAsync { // the token of a step that is not is for results only
			return domain.ErrRunToken
		}
		failpoint.At(failpoint.CallbackLocked)
		return work(ctx, tx, fence, c)
	})
}

var lockCalled = `
SELECT ` + runPlaces.Selected() + `,
       r.status, coalesce(r.reason, ''), coalesce(r.http_status, 0), clock_timestamp(), ` + ofTrace + `,
       ` + KeptColumns + `
FROM punctual.runs r
LEFT JOIN punctual.run_data d ON d.run_id = $1
WHERE r.id = $1
FOR NO KEY UPDATE OF r`

func (s *Claims) lockCalled(ctx context.Context, tx *pg.Tx, run uuid.UUID) (calledRun, error) {
	var c calledRun
	c.Gated = true // the job may have one
	var b pgx.Batch
	b.Queue(`
		SELECT FROM punctual.exclusive
		WHERE job_id = (SELECT job_id FROM punctual.runs WHERE id = $1)
		FOR NO KEY UPDATE`, run)
	b.Queue(`SELECT FROM punctual.ready WHERE run_id = $1 FOR UPDATE`, run)
	b.Queue(lockCalled, run).QueryRow(pg.IntoPlaces(append(c.places(
		&c.status, &c.reason, &c.http, &c.now, &c.TraceParent), c.kept.Into()...)...))
	err := tx.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return c, fmt.Errorf("run %s: %w", run, pg.ErrNotFound)
	}
	if err != nil {
		return c, fmt.Errorf("locking run %s: %w", run, err)
	}
	found, err := s.definitions.Read(ctx, tx, definitions.One(c.key, c.tenant))
	if err != nil {
		return c, fmt.Errorf("reading the job of run %s: %w", run, err)
	}
	c.Step = c.key.Step
	if c.Job = found.Job(c.key); c.Job == nil {
		return c, fmt.Errorf("run %s: this version of Punctual cannot read version %d of job %s",
			run, c.key.Version, c.key.Job)
	}
	return c, nil
}

// HeartbeatRun records that the target of an attempt is at work, and its progress unless that is nil. After a request
// to cancel the deadline no longer moves. HeartbeatRun returns *SupersededError when the attempt is over.
func (s *Claims) HeartbeatRun(
	ctx context.Context, run uuid.UUID, token string, progress json.RawMessage,
) (Heartbeat, error) {
	var beat Heartbeat
	err := s.call(ctx, run, token, func(ctx context.Context, tx *pg.Tx, fence int64, c calledRun) error {
		if fence != c.Fence || c.status != domain.StatusRunning {
			return &SupersededError{run, c.status}
		}
		beat = Heartbeat{CancelRequested: c.cancelRequested(), Deadline: c.Job.CallbackDeadline(c.started, c.now).UTC()}
		var b pgx.Batch
		if progress != nil {
			b.Queue(`
				INSERT INTO punctual.run_data (run_id, progress, progress_at)
				VALUES ($1, $2::json, $3)
				ON CONFLICT (run_id) DO UPDATE
				SET progress = excluded.progress, progress_at = excluded.progress_at`, run, seal.JSON(progress), c.now)
		}
		if !c.AcceptedAt.IsZero() { // the run's row in ready is the deadline
			b.Queue(`
				UPDATE punctual.ready
				SET due_at = CASE WHEN $3 THEN due_at ELSE $2 END
				WHERE run_id = $1
				RETURNING due_at`,
				run, beat.Deadline, beat.CancelRequested).QueryRow(pg.IntoPlaces(&beat.Deadline))
		}
		if b.Len() == 0 {
			return nil
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("noting a heartbeat of run %s: %w", run, err)
		}
		pg.UTC(&beat.Deadline)
		return nil
	})
	return beat, err
}

// CompleteCalled ends a run as succeeded, or as cancelled after a request to cancel, with a result unless that is nil.
// To repeat the call changes nothing. The error is *SupersededError if the attempt ended in another way. then reads the
// tenant's run before the transaction ends.
func (s *Claims) CompleteCalled(
	ctx context.Context, run uuid.UUID, token string, result json.RawMessage, then func(tx *pg.Tx, tenant int32) error,
) error {
	return s.endCalled(ctx, run, token, then, func(c calledRun) domain.Outcome {
		return domain.Outcome{
			Assignment: c.Assignment, Verdict: domain.Succeed, StartedAt: c.started, FinishedAt: c.now,
			HTTPStatus: c.http, Result: result,
		}
	}, func(ctx context.Context, q pg.Querier, fence int64, c calledRun) (bool, error) {
		return fence == c.Fence &&
			(c.status == domain.StatusSucceeded || c.status == domain.StatusCancelled && c.cancelRequested()), nil
	})
}

// FailCalled ends an attempt as failed. The run is retried as its job says, but not at all unless retry is set. To
// repeat the call changes nothing. The error is *SupersededError if the attempt ended in another way. then reads the
// tenant's run before the transaction ends.
func (s *Claims) FailCalled(
	ctx context.Context, run uuid.UUID, token, message string, retry bool, then func(tx *pg.Tx, tenant int32) error,
) error {
	return s.endCalled(ctx, run, token, then, func(c calledRun) domain.Outcome {
		return c.kept.Of(domain.JudgeReported(c.Assignment, message, retry, c.started, c.now))
	}, func(ctx context.Context, q pg.Querier, fence int64, _ calledRun) (already bool, err error) {
		// A reported failure is on record as expired if the next attempt would have come too late.
		var reason domain.Reason
		var said seal.Shown
		already, err = pg.Some(q.QueryRow(ctx, `
			SELECT coalesce(reason, ''), coalesce(error, '') FROM punctual.attempts WHERE run_id = $1 AND fence = $2`,
			run, fence).Scan(&reason, &said))
		return already && (reason == domain.ReasonFailed ||
			reason == domain.ReasonExpired && string(said) == pg.Storable(message)), err
	})
}

// endCalled ends the attempt of a target that calls, unless the attempt is over. already tells whether the same call
// ended it.
func (s *Claims) endCalled(
	ctx context.Context, run uuid.UUID, token string, then func(*pg.Tx, int32) error,
	judge func(calledRun) domain.Outcome,
	already func(context.Context, pg.Querier, int64, calledRun) (bool, error),
) error {
	var outcomes []domain.Outcome
	var written map[uuid.UUID]bool
	other := false // the target has reported otherwise in a transaction of its own
	following, err := s.followers.Follow(ctx, s.db.Callers, pg.Everybody)
	if err != nil {
		return err
	}
	err = s.call(ctx, run, token, func(ctx context.Context, tx *pg.Tx, fence int64, c calledRun) error {
		if fence != c.Fence || c.status != domain.StatusRunning {
			same, err := already(ctx, tx, fence, c)
			if err != nil {
				return fmt.Errorf("reading how run %s ended: %w", run, err)
			}
			if !same {
				return &SupersededError{run, c.status}
			}
		} else {
			judged := judge(c)
			if outcomes, err = decideCalled(ctx, tx, following, judged, c.status); err != nil {
				return err
			}
			other = (outcomes[0].Verdict == domain.Succeed) != (judged.Verdict == domain.Succeed)
			var b pgx.Batch
			b.Queue(`DELETE FROM punctual.ready WHERE run_id = $1`, run) // the deadline
			b.Queue(pg.ByIndex)
			written = QueueFinish(&b, outcomes, nil, Earlier{}, days.AnyDay, following)
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return fmt.Errorf("ending run %s: %w", run, err)
			}
			tx.Wake() // a retry, or the run that waits at the gate
			tx.Ask(following.Asks()...)
		}
		return then(tx, c.tenant)
	})
	if err == nil {
		failpoint.At(failpoint.CallbackCommitted)
		s.Ended(outcomes, written)
	}
	if err == nil && other {
		return &SupersededError{run, outcomes[0].End().Status}
	}
	return err
}

// decideCalled returns how followers decide that the attempt of a target that calls has ended. It returns
// *pg.LockedError while another transaction of the target is open.
func decideCalled(
	ctx context.Context, tx *pg.Tx, following Following, o domain.Outcome, is domain.Status,
) ([]domain.Outcome, error) {
	decided, err := decide(ctx, tx, following, []domain.Outcome{o})
	switch {
	case err != nil:
		return nil, err
	case len(decided.wait) > 0:
		return nil, &pg.LockedError{Doing: fmt.Sprintf("ending run %s", o.RunID), Table: "reports"}
	case len(decided.write) == 0:
		return nil, &SupersededError{o.RunID, is}
	}
	return decided.write, nil
}

// RunProgress returns the last progress that targets reported of a run. Only the target of the run's present attempt
// may ask.
func (s *Claims) RunProgress(ctx context.Context, run uuid.UUID, token string) (Progress, error) {
	fence, err := s.calledBy(ctx, run, token)
	if err != nil {
		return Progress{}, err
	}
	var p Progress
	var present int64
	var status domain.Status
	err = s.db.Callers.Reader(pg.Everybody).QueryRow(ctx, `
		SELECT coalesce(r.fence, 0), r.status, r.attempt, d.progress, d.progress_at
		FROM punctual.runs r
		LEFT JOIN punctual.run_data d ON d.run_id = $1
		WHERE r.id = $1`, run).Scan(&present, &status, &p.Attempt, (*seal.JSON)(&p.Progress), &p.RecordedAt)
	switch {
	case err != nil:
		return Progress{}, pg.Found(err, "run %s", run)
	case present != fence:
		return Progress{}, &SupersededError{run, status}
	}
	p.Progress = jobspec.ShownJSON(p.Progress)
	return p, nil
}

// StepResult returns the result of a step for the target of another step of the same workflow's run; nil: it has none.
// Only the target of that run's present attempt may ask, while the attempt goes on. The error is pg.ErrNotFound if the
// step has not succeeded.
func (s *Claims) StepResult(ctx context.Context, run uuid.UUID, token, step string) (json.RawMessage, error) {
	fence, err := s.calledBy(ctx, run, token)
	if err != nil {
		return nil, err
	}
	q := s.db.Callers.Reader(pg.Everybody)
	var present int64
	var status domain.Status
	var workflow *uuid.UUID
	err = q.QueryRow(ctx, `
		SELECT coalesce(r.fence, 0), r.status, r.parent_run FROM punctual.runs r WHERE r.id = $1`, run).
		Scan(&present, &status, &workflow)
	switch {
	case err != nil:
		return nil, pg.Found(err, "run %s", run)
	case present != fence || status != domain.StatusRunning:
		return nil, &SupersededError{run, status}
	case workflow == nil:
		return nil, fmt.Errorf("run %s is of no step: %w", run, pg.ErrNotFound)
	}
	var result seal.JSON
	err = q.QueryRow(ctx, `
		SELECT d.result
		FROM punctual.runs r
		LEFT JOIN punctual.run_data d ON d.run_id = $1
		WHERE r.id = $1 AND r.status = 'succeeded'`, domain.StepRunID(*workflow, step)).Scan(&result)
	return jobspec.ShownJSON(json.RawMessage(result)), pg.Found(err, "a result of step %q", step)
}
