package letters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/pg"
)

// OperationKind is what an operation does.
type OperationKind string

// The kinds of operations.
const (
	OperationReplay   OperationKind = "replay"   // of dead letters
	OperationResolve  OperationKind = "resolve"  // of dead letters
	OperationBackfill OperationKind = "backfill" // of a job's past slots
	OperationPause    OperationKind = "pause"    // of jobs
	OperationResume   OperationKind = "resume"   // of jobs
	OperationDelete   OperationKind = "delete"   // of jobs
)

// OperationState is where an operation is in its life.
type OperationState string

// The states of an operation; all but the first are final.
const (
	OperationRunning   OperationState = "running"
	OperationDone      OperationState = "done"
	OperationCancelled OperationState = "cancelled"
	OperationFailed    OperationState = "failed" // it can never be carried on
)

// Operation is work on many dead letters, past slots or jobs. Any replica does it in the background.
type Operation struct {
	ID           uuid.UUID      `json:"id" format:"uuid" doc:"Its id." example:"019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"`
	Kind         OperationKind  `json:"kind" enum:"replay,resolve,backfill,pause,resume,delete" doc:"Its kind: replay and resolve dead letters, backfill past slots, and pause, resume and delete jobs." example:"replay"`
	JobID        *uuid.UUID     `json:"job_id" format:"uuid" nullable:"true" doc:"For a backfill: the job."`
	State        OperationState `json:"state" enum:"running,done,cancelled,failed" doc:"failed: the operation could not continue; error says why." example:"running"`
	Matched      int            `json:"matched" doc:"How many dead letters or jobs it selected when it was created; for a backfill, how many slots." example:"1204"`
	Done         int            `json:"done" doc:"How many dead letters were replayed or resolved; for a backfill, how many slots got a run or had one already; for work on jobs, how many jobs are paused, active or deleted now, including those that were so already." example:"350"`
	Failed       int            `json:"failed" doc:"How many could not be processed: the job was deleted or no longer matches the filter, another caller was faster, or the slot is now further back than runs are kept." example:"2"`
	MaxPerSecond *int           `json:"max_per_second" doc:"The most dead letters, slots or jobs that it processes in a second. Null: no limit." example:"10"`
	Note         *string        `json:"note" doc:"The note given when it was requested."`
	Error        *string        `json:"error" doc:"The latest dead letter, slot or job that could not be processed, and why; or why the operation failed."`
	CreatedAt    time.Time      `json:"created_at" doc:"When it was requested."`
	FinishedAt   *time.Time     `json:"finished_at" doc:"When it ended."`

	Request     json.RawMessage `json:"request" doc:"The filter of the request, as an object."`
	RequestedBy string          `json:"requested_by" doc:"Who requested it." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`

	SkippedWhilePaused int `json:"skipped_while_paused" doc:"For a resume: how many slots of its jobs passed while they were paused. Each job's recorded skips with the reason paused say which; a backfill of the job makes up for them. Of a job with more than 1,000, it counts 1,001." example:"0"`

	WaitingForRun *uuid.UUID `json:"waiting_for_run" format:"uuid" nullable:"true" doc:"For a backfill that creates one run at a time: the run that has to end before it creates the next one. Null: it waits for none."`

	Outcomes *RunOutcomes `db:"-" json:"outcomes,omitempty" doc:"Of a replay or backfill: what became of the runs that it made. In a list only when it is asked for."`
}

// BulkRequest asks for an operation on the open dead letters that Filter selects. The filter's Resolved and Page are
// ignored.
type BulkRequest struct {
	Kind         OperationKind
	Filter       DeadLetterFilter
	LatestPerJob bool // only the dead letter of each job's newest slot
	MaxPerSecond int  // 0: no limit
	Note         string
}

// operationColumns stand in the order of the fields of Operation.
const operationColumns = `o.id, o.kind, o.job_id, o.state, o.matched, o.done, o.failed, o.max_per_second, o.note,
	o.error, o.created_at, o.finished_at, o.request, o.requested_by, o.skipped_while_paused,
	CASE WHEN o.state = 'running' AND o.last_run IS NOT NULL
	     THEN (SELECT r.id FROM punctual.runs_of(ARRAY[o.last_run]) r WHERE r.finished_at IS NULL) END`

var scanOperation = pgx.RowToStructByPos[Operation]

var listOfOperations = pg.Listed[Operation]{
	What: "operations", Letter: 'o', ID: `o.id`, Of: func(o Operation) uuid.UUID { return o.ID }, Scan: scanOperation,
}

// selected returns the statement that finds the dead letters a request is about: open ones that no other operation has
// marked.
func (r BulkRequest) selected(ctx context.Context, q pg.Querier, tenant int32) (string, []any, error) {
	var c pg.Conditions
	r.Filter.Resolved = new(false)
	if err := selectLetters(ctx, &c, q, tenant, r.Filter); err != nil {
		return "", nil, err
	}
	c.Add(`d.operation IS NULL`)
	if r.LatestPerJob {
		return `SELECT DISTINCT ON (d.job_id) d.run_id FROM ` + deadLetterTables + c.Where() + `
			ORDER BY d.job_id, d.scheduled_for DESC, d.run_id DESC`, c.Args, nil
	}
	return `SELECT d.run_id FROM ` + deadLetterTables + c.Where(), c.Args, nil
}

// CountDeadLetters returns how many dead letters an operation would work on.
func (l *Letters) CountDeadLetters(ctx context.Context, tenant int32, r BulkRequest) (int, error) {
	q := l.db.Callers.Reader(tenant)
	selected, args, err := r.selected(ctx, q, tenant)
	if err != nil {
		return 0, err
	}
	n, err := pg.One(ctx, q, pgx.RowTo[int], `SELECT count(*) FROM (`+selected+`) chosen`, args...)
	return n, pg.Wrap("counting dead letters", err)
}

// StartOperation marks the dead letters that a request selects now. The replicas then work on them.
func (w Operator) StartOperation(ctx context.Context, r BulkRequest) (Operation, error) {
	n := newOperation{
		Operation: Operation{Kind: r.Kind, MaxPerSecond: pg.OrNull(r.MaxPerSecond), Note: pg.OrNull(r.Note)},
	}
	return w.start(ctx, n, r.request(), func(tx *pg.Tx, id uuid.UUID) (matched int, err error) {
		return markLetters(ctx, tx, w.Tenant, r, id)
	})
}

// start writes an operation. Before that, remember selects and keeps what the operation is to work on.
func (w Operator) start(
	ctx context.Context, n newOperation, request any, remember func(tx *pg.Tx, id uuid.UUID) (matched int, err error),
) (o Operation, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return Operation{}, fmt.Errorf("encoding the request of an operation: %w", err)
	}
	n.request = string(text)
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) (Operation, error) {
		now, err := pg.Clock(ctx, tx)
		if err != nil {
			return o, err
		}
		n.ID, n.CreatedAt = domain.NewRunID(now), now
		if n.Matched, err = remember(tx, n.ID); err != nil {
			return o, err
		}
		return n.write(ctx, tx, w.Tenant)
	})
}

// newOperation is an operation to be written.
type newOperation struct {
	Operation
	request string // as people read it in the row
	// Only for a backfill:
	job                 string // name
	rerun               bool
	firstSlot, lastSlot *time.Time // firstSlot is nil if there are no slots
}

// write writes an operation. An operation with nothing to do is done at once.
func (n newOperation) write(ctx context.Context, tx *pg.Tx, tenant int32) (Operation, error) {
	n.State = OperationRunning
	if n.Matched == 0 {
		n.State, n.FinishedAt = OperationDone, &n.CreatedAt
	} else {
		tx.Ask(Chore)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO punctual.operations (id, tenant, kind, state, request, note, max_per_second, matched, next_at,
			created_at, finished_at, job_id, rerun, next_slot, last_slot, requested_by, actor_kind, actor, address,
			request_id)
		VALUES ($1, $2, $3, $4, $5::json, $6, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18::text::inet, $19)`,
		append([]any{
			n.ID, tenant, string(n.Kind), string(n.State), n.request, n.Note, n.MaxPerSecond, n.Matched, n.CreatedAt,
			n.FinishedAt, n.JobID, n.rerun, n.firstSlot, n.lastSlot, audit.ActorOf(ctx).Words(),
		}, audit.ActorOf(ctx).Columns()...)...)
	if err != nil {
		return Operation{}, fmt.Errorf("writing an operation: %w", err)
	}
	if err := audit.Write(ctx, tx, tenant, n.change()); err != nil {
		return Operation{}, err
	}
	return readOperation(ctx, tx, tenant, n.ID)
}

// operationShot is an operation as the audit log shows it.
type operationShot struct {
	Operation    *uuid.UUID      `json:"operation,omitempty"` // where the entry is about its job
	Kind         OperationKind   `json:"kind"`
	State        OperationState  `json:"state"`
	Matched      int             `json:"matched"`
	Done         *int            `json:"done,omitempty"`
	MaxPerSecond *int            `json:"max_per_second,omitempty"`
	Note         *string         `json:"note,omitempty"`
	Request      json.RawMessage `json:"request,omitempty"`
}

// change is an audit entry about the operation, or about the job of a backfill.
func (n newOperation) change() audit.Change {
	after := operationShot{
		Kind: n.Kind, State: n.State, Matched: n.Matched, MaxPerSecond: n.MaxPerSecond, Note: n.Note,
		Request: json.RawMessage(n.request),
	}
	if n.JobID == nil {
		return audit.Change{Action: audit.OperationCreate, ID: n.ID, After: after}
	}
	after.Operation = &n.ID
	return audit.Change{Action: audit.JobBackfill, ID: *n.JobID, Job: *n.JobID, Name: n.job, After: after}
}

// markLetters marks the selected dead letters as the operation's. It locks them in the order of their ids, as every
// transaction that locks several does, and checks them again under the lock.
func markLetters(ctx context.Context, tx *pg.Tx, tenant int32, r BulkRequest, operation uuid.UUID) (int, error) {
	selected, args, err := r.selected(ctx, tx, tenant)
	if err != nil {
		return 0, err
	}
	done, err := tx.Exec(ctx, fmt.Sprintf(`
		WITH chosen AS MATERIALIZED (%s),
		held AS MATERIALIZED (
		    SELECT d.run_id FROM punctual.dead_letters d
		    WHERE d.run_id IN (SELECT run_id FROM chosen) AND d.resolved_at IS NULL AND d.operation IS NULL
		    ORDER BY d.run_id FOR UPDATE)
		UPDATE punctual.dead_letters d SET operation = $%d
		FROM held h WHERE d.run_id = h.run_id`, selected, len(args)+1), append(args, operation)...)
	return int(done.RowsAffected()), pg.Wrap("marking dead letters", err)
}

// request is the request as people read it in the row.
func (r BulkRequest) request() any {
	return struct {
		DeadLetterFilter
		LatestPerJob bool `json:"latest_per_job"`
	}{r.Filter, r.LatestPerJob}
}

// GetOperation returns an operation, with what became of its runs. The error is ErrNotFound if the tenant has none with
// this id.
func (l *Letters) GetOperation(ctx context.Context, tenant int32, id uuid.UUID) (Operation, error) {
	q := l.db.Callers.Reader(tenant)
	o, err := readOperation(ctx, q, tenant, id)
	if err != nil {
		return o, err
	}
	o.Outcomes, err = o.outcomes(ctx, q, tenant, mostOutcomes)
	return o, err
}

func readOperation(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Operation, error) {
	o, err := pg.One(ctx, q, scanOperation, `
		SELECT `+operationColumns+` FROM punctual.operations o WHERE o.id = $1 AND o.tenant = $2`, id, tenant)
	return o, pg.Found(err, "operation %s", id)
}

// OperationFilter selects operations; empty fields select all.
type OperationFilter struct {
	State    OperationState
	Outcomes bool // with what became of the runs of each
	pg.Page
}

// ListOperations returns the operations that the filter selects, newest first, and the cursor of the next page, which
// is empty on the last page.
func (l *Letters) ListOperations(
	ctx context.Context, tenant int32, f OperationFilter,
) (operations []Operation, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`o.tenant = ?`, tenant)
	c.AddIf(f.State != "", `o.state = ?`, f.State)
	q := l.db.Callers.Reader(tenant)
	operations, nextCursor, err = listOfOperations.Page(
		ctx, q, f.Page, `SELECT `+operationColumns+` FROM punctual.operations o`, c)
	if err != nil || !f.Outcomes {
		return operations, nextCursor, err
	}
	for i := range operations {
		if operations[i].Outcomes, err = operations[i].outcomes(ctx, q, tenant, mostListedOutcomes); err != nil {
			return nil, "", err
		}
	}
	return operations, nextCursor, nil
}

// CancelOperation ends an operation early, after the batch under way is committed. What the operation did stays done,
// and what it did not reach stays as it is. Cancelling it again changes nothing. The error is ErrState if it has ended
// in another way.
func (l *Letters) CancelOperation(ctx context.Context, tenant int32, id uuid.UUID) (Operation, error) {
	return pg.Do(ctx, l.db.Callers.For(tenant), func(tx *pg.Tx) (Operation, error) {
		if err := pg.Exec(ctx, tx, `
			SELECT FROM punctual.operations WHERE id = $1 AND tenant = $2 FOR UPDATE`, id, tenant); err != nil {
			return Operation{}, fmt.Errorf("locking operation %s: %w", id, err)
		}
		before, err := readOperation(ctx, tx, tenant, id)
		switch {
		case err != nil || before.State == OperationCancelled:
			return before, err
		case before.State != OperationRunning:
			return before, fmt.Errorf("operation %s has ended as %s: %w", id, before.State, pg.ErrState)
		}
		if err := endOperation(ctx, tx, id, OperationCancelled, ""); err != nil {
			return before, err
		}
		o, err := readOperation(ctx, tx, tenant, id)
		if err != nil {
			return o, err
		}
		return o, audit.Write(ctx, tx, tenant, audit.Change{
			Action: audit.OperationCancel, ID: id, Job: pg.OrZero(o.JobID), Before: before.shot(), After: o.shot(),
		})
	})
}

// shot is an operation under way as the audit log shows it.
func (o Operation) shot() operationShot {
	return operationShot{Kind: o.Kind, State: o.State, Matched: o.Matched, Done: &o.Done}
}

// endOperation ends an operation early, unmarks the dead letters that it did not reach, and forgets the jobs. The
// caller has locked the operation.
func endOperation(ctx context.Context, tx *pg.Tx, id uuid.UUID, state OperationState, reason string) error {
	var b pgx.Batch
	b.Queue(`
		UPDATE punctual.operations SET state = $2, finished_at = clock_timestamp(), error = coalesce($3, error)
		WHERE id = $1 AND state = 'running'`,
		id, string(state), pg.OrNull(reason))
	b.Queue(`UPDATE punctual.dead_letters SET operation = NULL WHERE operation = $1`, id)
	b.Queue(`DELETE FROM punctual.operation_jobs WHERE operation = $1`, id)
	return pg.Wrap("ending operation "+id.String(), tx.SendBatch(ctx, &b).Close())
}
