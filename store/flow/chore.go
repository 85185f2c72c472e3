package flow

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// batch is how many workflows one transaction of the chore looks at.
const batch = 100

// lockedPause is how long the chore waits for rows that others have locked.
const lockedPause = 100 * time.Millisecond

// Due is true if a workflow is to be looked at.
const Due = `EXISTS (SELECT FROM punctual.workflows WHERE due)
    OR EXISTS (SELECT FROM punctual.workflows WHERE looked_at < now() - ` + idleWorkflow + `)`

const (
	// findWorkflows finds those whose turn it is, but for those that rest ($2).
	findWorkflows = `
(SELECT run_id FROM punctual.workflows WHERE due AND run_id <> ALL($2::uuid[]) ORDER BY looked_at LIMIT $1)
UNION
(SELECT run_id FROM punctual.workflows
 WHERE looked_at < now() - ` + idleWorkflow + ` AND run_id <> ALL($2::uuid[]) LIMIT $1)`
	lockWorkflows = `
SELECT run_id FROM punctual.workflows WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE SKIP LOCKED`
)

// Workflows lets workflows go on to which something has happened that no finish has decided about. Safe for concurrent
// use.
type Workflows struct {
	db          *pg.DB
	claims      *claim.Claims
	definitions *definitions.Definitions
	aside       *aside.Aside
	log         *slog.Logger

	stoodStill atomic.Int64
}

// New returns the Workflows of a database.
func New(db *pg.DB, c *claim.Claims, d *definitions.Definitions, a *aside.Aside, log *slog.Logger) *Workflows {
	return &Workflows{db: db, claims: c, definitions: d, aside: a, log: log}
}

// StoodStill returns how many workflows this process has found that nobody had let go on.
func (s *Workflows) StoodStill() int64 { return s.stoodStill.Load() }

// dueWorkflows are the workflows to which something has happened.
var dueWorkflows = aside.Rows{Kind: aside.Workflow, Table: "workflows", ID: "run_id", Are: "true"}

// Advance lets workflows continue to which something has happened: it starts steps, cancels those of workflows that
// were cancelled, and has workflows end whose steps have ended.
func (s *Workflows) Advance(ctx context.Context) (wait time.Duration, left bool, err error) {
	a := advanced{cancel: map[toCancel][]uuid.UUID{}}
	found, err := s.aside.Select(ctx, s.db.Runs, dueWorkflows, findWorkflows, batch)
	if err == nil && len(found) > 0 {
		err = s.aside.Each(ctx, aside.Workflow, found, func(ctx context.Context, some []uuid.UUID) error {
			of, err := s.advanceSome(ctx, some)
			a.add(of)
			return err
		})
	}
	if err != nil {
		return 0, false, fmt.Errorf("letting workflows continue: %w", err)
	}
	failpoint.At(failpoint.WorkflowLooked)
	more := len(found) >= batch || a.again
	for why, runs := range a.cancel {
		err := s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			err := pg.Exec(ctx, tx, `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`, why.job)
			if err != nil {
				return err
			}
			_, err = claim.CancelRuns(ctx, tx, runs, why.reason)
			return err
		})
		if err != nil {
			return 0, false, fmt.Errorf("cancelling steps: %w", err)
		}
		s.db.Ask(claim.Freed...)
		s.claims.Over(runs...)
	}
	locked := len(a.locked) > 0
	a.locked, a.again = nil, false // this chore comes again by itself
	s.db.Ask(a.asks()...)
	if len(a.helped) > 0 {
		s.stoodStill.Add(int64(len(a.helped)))
		s.log.Error("workflows stood still, though steps could start or had all ended; they continue",
			"count", len(a.helped), "first", a.helped[0])
	}
	if !more && locked {
		return lockedPause, true, nil
	}
	return 0, more, nil
}

// advanceSome lets workflows continue in one transaction.
func (s *Workflows) advanceSome(ctx context.Context, some []uuid.UUID) (a advanced, err error) {
	err = s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		ids, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], lockWorkflows, some)
		if err != nil || len(ids) == 0 {
			return err
		}
		of := concerned{runs: ids, on: days.Common(ids...)}
		live, err := s.read(ctx, tx, of)
		if err != nil {
			return err
		}
		var b pgx.Batch
		if err := of.advance(ctx, tx, &b, live, &a); err != nil || b.Len() == 0 {
			return err
		}
		err = tx.SendBatch(ctx, &b).Close()
		failpoint.At(failpoint.WorkflowWritten)
		return err
	})
	if err != nil {
		return advanced{}, err // what was rolled back has not happened
	}
	return a, nil
}

// read reads live workflows of which nothing is known, with the runs of their steps. Their rows are locked.
func (s *Workflows) read(ctx context.Context, q pg.Querier, of concerned) (all []*workflow, err error) {
	var b pgx.Batch
	of.queueWorkflows(&b, &all)
	if err := q.SendBatch(ctx, &b).Close(); err != nil || len(all) == 0 {
		return nil, pg.Wrap("reading workflows", err)
	}
	found, err := s.definitions.Read(ctx, q, definitions.Of(all, func(w *workflow) (definitions.Version, int32) {
		return w.key, w.tenant
	}))
	if err != nil {
		return nil, err
	}
	var unread []uuid.UUID
	of.jobs = make(map[uuid.UUID]*domain.Job, len(all))
	all = slices.DeleteFunc(all, func(w *workflow) bool {
		w.due = w.marked
		if w.job = found.Job(w.key); w.job != nil {
			of.jobs[w.id] = w.job
			return false
		}
		unread = append(unread, w.id) // it goes to the end of the line, and stays due
		s.log.Error("a workflow cannot continue with this version of Punctual; it is left to a version that can",
			"run", w.id, "job", w.key.Job, "version", w.key.Version, "error", found.Why(w.key))
		return true
	})
	b = pgx.Batch{}
	if len(unread) > 0 {
		b.Queue(`UPDATE punctual.workflows SET looked_at = now() WHERE run_id = ANY($1::uuid[])`, unread)
	}
	of.queueSteps(&b, &all)
	return all, pg.Wrap("reading the runs of steps", q.SendBatch(ctx, &b).Close())
}

// Count counts workflows that have not ended, and steps that wait for approval, each up to 10,000.
func (s *Workflows) Count(ctx context.Context) (workflows, approvals int, err error) {
	err = s.db.Chores.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM punctual.workflows LIMIT 10000) w),
		       (SELECT count(*) FROM (SELECT FROM punctual.ready WHERE waits = 'person' LIMIT 10000) y)`).
		Scan(&workflows, &approvals)
	return workflows, approvals, pg.Wrap("counting workflows", err)
}
