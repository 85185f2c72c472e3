package prove

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// Facts holds what a database and a witness recorded about the same jobs. It is read when nothing is going on any more.
type Facts struct {
	Now         time.Time // by the database's clock
	Jobs        []Job
	Runs        []Run
	Attempts    []Attempt
	DeadLetters []uuid.UUID // runs
	Ready       []uuid.UUID // waiting runs
	Claimed     []uuid.UUID // runs named in leases
	Gates       []Gate      // gates that are held
	LimitsOfOne []string    // limits that one run may hold at once
	Fed         []int32     // tenants that had a feed of changes before their first run
	Recorded    []uuid.UUID // runs in these feeds
	Requests    []Request   // seen by the witness
}

// Job is a job with every definition that it ever had.
type Job struct {
	ID       uuid.UUID
	Name     string
	State    string
	Enabled  bool       // whether it has a next slot
	NextRun  *time.Time // when the next slot is due
	Versions []Version  // oldest first
	Tenant   int32
}

// atMostOnce reports whether every version of the job had delivery at_most_once.
func (j Job) atMostOnce() bool {
	return !slices.ContainsFunc(j.Versions, func(v Version) bool {
		return v.Definition.Delivery != jobspec.DeliverAtMostOnce
	})
}

// exclusive reports whether any version of the job forbade overlap.
func (j Job) exclusive() bool {
	return slices.ContainsFunc(j.Versions, func(v Version) bool {
		return v.Definition.WithDefaults().ConcurrencyPolicy != jobspec.PolicyAllow
	})
}

// names reports whether every version of the job named a limit.
func (j Job) names(limit string) bool {
	return !slices.ContainsFunc(j.Versions, func(v Version) bool { return !slices.Contains(v.Definition.Limits, limit) })
}

// callsBack reports whether any version of the job had completion async.
func (j Job) callsBack() bool {
	return slices.ContainsFunc(j.Versions, func(v Version) bool {
		return v.Definition.Completion == jobspec.CompleteAsync
	})
}

// pausedAt reports whether the job was paused at an instant, and the pause had not yet ended by itself.
func (j Job) pausedAt(at time.Time) bool {
	paused := false
	for _, v := range j.Versions {
		if v.From.After(at) {
			break
		}
		paused = v.State == "paused" && (v.Until == nil || at.Before(*v.Until))
	}
	return paused
}

// Version is a definition and the time from which it held.
type Version struct {
	From       time.Time
	State      string
	Definition jobspec.Definition
	Until      *time.Time // when a pause was to end by itself
}

// Run is a row of punctual.runs.
type Run struct {
	ID, Job                   uuid.UUID
	ScheduledFor, DueAt       time.Time
	Status, Trigger           string
	Reason                    string // empty: none
	SkippedFirst, SkippedLast *time.Time
	SkippedCount              *int
	Attempt                   int
	Fence                     *int64
	Late                      bool
	Tenant                    int32
	ReplayOf                  *uuid.UUID
	ClaimedAt                 *time.Time // of the latest attempt, by the database's clock; nil: never claimed
	FinishedAt                *time.Time // nil: not final
	CreatedAt                 time.Time  // by the database's clock
	Step                      string     // empty: of no step
	Workflow                  *uuid.UUID // of a step
}

// Attempt is a row of punctual.attempts: an attempt that did not succeed.
type Attempt struct {
	Run                 uuid.UUID
	Fence               int64
	Number              int
	Outcome             string
	StartedAt, Finished time.Time
}

// Gate is a job that must not overlap, and the run that holds its gate.
type Gate struct{ Job, Run uuid.UUID }

// taken reports whether r is of a step that a rerun took as succeeded, so nothing was sent for it.
func (r Run) taken() bool { return r.Step != "" && r.Status == "succeeded" && r.Attempt == 0 }

// final reports whether r can no longer change.
func (r Run) final() bool { return domain.Status(r.Status).Final() }

// isRange reports whether r is a record of skipped slots rather than a run.
func (r Run) isRange() bool { return r.SkippedFirst != nil }

// ofSlot reports whether the schedule made r, rather than a user.
func (r Run) ofSlot() bool { return r.Trigger == "schedule" || r.Trigger == "catchup" }

// backfilled reports whether r was made for a past slot because a user asked for a backfill.
func (r Run) backfilled() bool { return r.Trigger == "backfill" }

// ofItsSlot reports whether r has the id of its slot, and so carries the slot's idempotency key.
func (r Run) ofItsSlot() bool { return r.ID == domain.SlotRunID(r.Job, r.ScheduledFor) }

// ReadFacts reads a database in one snapshot and adds the witness's log. The caller must take the log after everything
// has come to rest.
func ReadFacts(ctx context.Context, conn *pgx.Conn, requests []Request) (f Facts, err error) {
	f.Requests = requests
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, f.read(ctx))
	if err != nil {
		return f, fmt.Errorf("reading the facts: %w", err)
	}
	return f, nil
}

func (f *Facts) read(ctx context.Context) func(pgx.Tx) error {
	return func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&f.Now); err != nil {
			return err
		}
		if err := f.readJobs(ctx, tx); err != nil {
			return err
		}
		f.Runs, err = collect(ctx, tx, err, pgx.RowToStructByPos[Run], `
			SELECT id, job_id, scheduled_for, due_at, status, trigger, coalesce(reason, ''), skipped_first, skipped_last,
			    skipped_count, attempt, fence, late, tenant, replay_of, claimed_at, finished_at, created_at,
			    coalesce(step, ''), parent_run
			FROM punctual.runs
			ORDER BY id`)
		f.Attempts, err = collect(ctx, tx, err, pgx.RowToStructByPos[Attempt], `
			SELECT run_id, fence, number, outcome, started_at, finished_at
			FROM punctual.attempts
			ORDER BY run_id, fence`)
		ids := pgx.RowTo[uuid.UUID]
		f.DeadLetters, err = collect(ctx, tx, err, ids, `SELECT run_id FROM punctual.dead_letters`)
		f.Ready, err = collect(ctx, tx, err, ids, `SELECT run_id FROM punctual.ready`)
		f.Claimed, err = collect(ctx, tx, err, ids, `SELECT unnest(run_ids) FROM punctual.claims`)
		f.Gates, err = collect(ctx, tx, err, pgx.RowToStructByPos[Gate], `
			SELECT job_id, coalesce(active_run, waiting_run)
			FROM punctual.exclusive
			WHERE coalesce(active_run, waiting_run) IS NOT NULL`)
		f.LimitsOfOne, err = collect(ctx, tx, err, pgx.RowTo[string],
			`SELECT name FROM punctual.limits WHERE max_running = 1`)
		f.Fed, err = collect(ctx, tx, err, pgx.RowTo[int32], `
			SELECT tenant FROM punctual.change_feeds f
			WHERE NOT EXISTS (SELECT FROM punctual.runs r WHERE r.tenant = f.tenant AND r.created_at < f.since)`)
		f.Recorded, err = collect(ctx, tx, err, ids, `SELECT unnest(runs) FROM punctual.changes`)
		return err
	}
}

func (f *Facts) readJobs(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
		SELECT j.id, j.name, punctual.job_state(j, s), coalesce(s.enabled, false), s.next_run_at, v.valid_from,
		       v.state, v.definition, j.tenant,
		       (SELECT max((a.after ->> 'paused_until')::timestamptz)
		        FROM punctual.audit_log a
		        WHERE a.job_id = j.id AND a.at = v.valid_from AND a.after ->> 'state' = 'paused')
		FROM punctual.jobs j JOIN punctual.job_versions v ON v.job_id = j.id LEFT JOIN punctual.schedules s ON s.job_id = j.id
		ORDER BY j.id, v.version`)
	if err != nil {
		return err
	}
	var job Job
	var v Version
	var raw []byte
	_, err = pgx.ForEachRow(rows, []any{
		&job.ID, &job.Name, &job.State, &job.Enabled, &job.NextRun, &v.From, &v.State, &raw, &job.Tenant, &v.Until,
	}, func() error {
		v.Definition = jobspec.Definition{}
		if err := json.Unmarshal(raw, &v.Definition); err != nil {
			return fmt.Errorf("the definition of job %s: %w", job.ID, err)
		}
		if n := len(f.Jobs); n == 0 || f.Jobs[n-1].ID != job.ID {
			f.Jobs = append(f.Jobs, job)
		}
		last := &f.Jobs[len(f.Jobs)-1]
		last.Versions = append(last.Versions, v)
		return nil
	})
	return err
}

// collect reads all rows, unless an earlier query failed.
func collect[T any](ctx context.Context, tx pgx.Tx, before error, to pgx.RowToFunc[T], sql string) ([]T, error) {
	if before != nil {
		return nil, before
	}
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}
