package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler"
)

const (
	replayBatch  = 100
	resolveBatch = 500
	// batchesPerSecond is into how many batches an operation with a rate divides a second.
	batchesPerSecond = 4
	// lockedPause is when to look again for an operation whose batch another replica is doing.
	lockedPause = 250 * time.Millisecond
	// gatePause is when to look again for replays that wait for others of their jobs.
	gatePause = time.Second
)

// bulk is an operation, locked for one batch.
type bulk struct {
	id   uuid.UUID
	kind OperationKind
	note string
	rate int // dead letters a second; 0: no limit

	done, failed int
	trouble      string // the latest that failed, and why
}

// Operate implements scheduler.Store. The operation's row is locked during a batch, and the batch commits
// together with its progress: several replicas may work at once, and one that dies leaves nothing half done.
func (s *Store) Operate(ctx context.Context) (wait time.Duration, left bool, err error) {
	var o *bulk
	err = s.join(ctx, func(ctx context.Context, u *unit) error {
		var err error
		if o, err = lockOperation(ctx, u); err != nil {
			return err
		}
		if o == nil {
			wait, left, err = nextBatch(ctx, u)
			return err
		}
		letters, err := o.take(ctx, u)
		if err != nil {
			return err
		}
		if err := o.work(ctx, u, letters); err != nil {
			return err
		}
		left = true
		return o.save(ctx, u)
	})
	if err != nil && o != nil && cannotSucceed(err) {
		return 0, true, s.failOperation(ctx, o.id, err)
	}
	return wait, left, err
}

// lockOperation locks the operation whose turn it is; nil when it is nobody's or others are at it.
func lockOperation(ctx context.Context, u *unit) (*bulk, error) {
	var o bulk
	err := u.QueryRow(ctx, `
		SELECT id, kind, coalesce(note, ''), coalesce(max_per_second, 0) FROM punctual.operations
		WHERE state = 'running' AND next_at <= clock_timestamp() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED`).
		Scan(&o.id, &o.kind, &o.note, &o.rate)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("locking an operation: %w", err)
	}
	return &o, nil
}

// nextBatch tells whether there are operations at all, and when the next one's turn is.
func nextBatch(ctx context.Context, u *unit) (wait time.Duration, left bool, err error) {
	var next *time.Duration
	err = u.QueryRow(ctx, `SELECT min(next_at) - clock_timestamp() FROM punctual.operations WHERE state = 'running'`).Scan(&next)
	if err != nil {
		return 0, false, fmt.Errorf("looking for operations: %w", err)
	}
	if next == nil {
		return 0, false, nil
	}
	if *next <= 0 {
		return lockedPause, true, nil
	}
	return *next, true, nil
}

// size is how many dead letters the next batch may have.
func (o *bulk) size() int {
	most := replayBatch
	if o.kind == OperationResolve {
		most = resolveBatch
	}
	if o.rate > 0 {
		return min(max(o.rate/batchesPerSecond, 1), most)
	}
	return most
}

// marked is a dead letter of an operation.
type marked struct {
	DeadLetterRecord
	gated     bool // runs of its job must not overlap
	forgotten bool // its job is no more
}

// take locks the next dead letters of the operation, oldest slots first. What somebody else has locked is
// left for later: this transaction holds many rows, so it never waits for one. Of a job with a gate there is
// never more than one replay that waits, so they keep their order, and a thousand of them do not knock
// at the gate every second.
func (o *bulk) take(ctx context.Context, u *unit) ([]marked, error) {
	eligible := ``
	if o.kind == OperationReplay {
		eligible = ` AND (x.job_id IS NULL OR d.resolved_at IS NOT NULL OR d.notify_url IS NOT NULL
			OR NOT EXISTS (SELECT FROM punctual.ready y WHERE y.job_id = d.job_id AND (SELECT ` + isNotice + ` FROM punctual.runs r WHERE r.id = y.run_id) IS NOT TRUE)
			AND NOT EXISTS (SELECT FROM punctual.runs r WHERE r.id = x.active_run AND r.finished_at IS NULL))`
	}
	rows, err := u.Query(ctx, `SELECT `+deadLetterColumns+`, x.job_id IS NOT NULL AND d.notify_url IS NULL, j.id IS NULL
		FROM `+deadLetterTables+` LEFT JOIN punctual.exclusive x ON x.job_id = d.job_id
		WHERE d.operation = $1`+eligible+` ORDER BY d.run_id LIMIT $2 FOR UPDATE OF d SKIP LOCKED`, o.id, o.size())
	if err != nil {
		return nil, fmt.Errorf("reading dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (marked, error) {
		var m marked
		d := &m.DeadLetterRecord
		err := row.Scan(&d.RunID, &d.JobID, &d.Job, &d.Trigger, &d.JobVersion, &d.ScheduledFor, &d.DiedAt, &d.Reason,
			&d.Attempts, &d.HTTPStatus, &d.Error, &d.ResolvedAt, &d.Note, &d.ReplayedAs, &d.NotifyURL, &m.gated, &m.forgotten)
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading dead letters: %w", err)
	}
	return letters, nil
}

// work does what the operation is for to the letters it has locked, and gives them up.
func (o *bulk) work(ctx context.Context, u *unit, letters []marked) error {
	if len(letters) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(letters))
	for i, m := range letters {
		ids[i] = m.RunID
	}
	switch o.kind {
	case OperationResolve:
		if err := resolveLetters(ctx, u, ids, o.note); err != nil {
			return err
		}
		o.done = len(ids)
	case OperationReplay:
		var err error
		if ids, err = o.replay(ctx, u, letters); err != nil {
			return err
		}
	}
	if _, err := u.Exec(ctx, `UPDATE punctual.dead_letters SET operation = NULL WHERE run_id = ANY($1::uuid[])`, ids); err != nil {
		return fmt.Errorf("giving up dead letters: %w", err)
	}
	return nil
}

// replay replays those letters that can be now, and returns them and those that never can.
func (o *bulk) replay(ctx context.Context, u *unit, letters []marked) (over []uuid.UUID, err error) {
	states, now, err := shareJobs(ctx, u, letters)
	if err != nil {
		return nil, err
	}
	var replays []replay
	entered := map[uuid.UUID]bool{}
	for _, m := range letters {
		state, held := states[m.JobID]
		switch {
		case m.ResolvedAt != nil:
			o.fail(m, "was resolved or replayed by somebody else meanwhile")
		case m.forgotten:
			o.fail(m, gone(m.Job))
		case !held || m.gated && entered[m.JobID]:
			continue // somebody is changing the job, or another of its replays goes first
		case state == JobDeleted:
			o.fail(m, gone(m.Job))
		default:
			entered[m.JobID] = true
			replays = append(replays, newReplay(m.DeadLetterRecord, now))
		}
		over = append(over, m.RunID)
	}
	if len(replays) > 0 {
		o.done = len(replays)
		err = writeReplays(ctx, u, replays, now, o.note)
	}
	return over, err
}

func (o *bulk) fail(m marked, why string) {
	o.failed++
	o.trouble = fmt.Sprintf("dead letter %s: %s", m.RunID, why)
}

// shareJobs keeps the letters' jobs from being deleted, and returns the state of each; without those that
// somebody is changing.
func shareJobs(ctx context.Context, u *unit, letters []marked) (map[uuid.UUID]JobState, time.Time, error) {
	jobs := make([]uuid.UUID, len(letters))
	for i, m := range letters {
		jobs[i] = m.JobID
	}
	slices.SortFunc(jobs, compareIDs)
	rows, err := u.Query(ctx, `SELECT id, state FROM punctual.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR SHARE SKIP LOCKED`, slices.Compact(jobs))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("locking jobs: %w", err)
	}
	states := map[uuid.UUID]JobState{}
	var id uuid.UUID
	var state JobState
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		states[id] = state
		return nil
	}); err != nil {
		return nil, time.Time{}, fmt.Errorf("locking jobs: %w", err)
	}
	now, err := u.store.clock(ctx, u)
	return states, now, err
}

// save notes the progress, when the next batch may be done, and the end when there is nothing left.
func (o *bulk) save(ctx context.Context, u *unit) error {
	worked := o.done + o.failed
	var pause time.Duration
	switch {
	case worked == 0:
		pause = gatePause // what is left waits for a gate, or for whoever has locked it
	case o.rate > 0:
		pause = time.Duration(worked) * time.Second / time.Duration(o.rate)
	}
	_, err := u.Exec(ctx, `
		WITH rest AS (SELECT EXISTS (SELECT FROM punctual.dead_letters WHERE operation = $1) AS any)
		UPDATE punctual.operations o SET done = o.done + $2, failed = o.failed + $3, error = coalesce($4, o.error),
		       next_at = clock_timestamp() + $5::interval,
		       state = CASE WHEN rest.any THEN 'running' ELSE 'done' END, finished_at = CASE WHEN NOT rest.any THEN clock_timestamp() END
		FROM rest WHERE o.id = $1`, o.id, o.done, o.failed, orNull(o.trouble), pause)
	if err != nil {
		return fmt.Errorf("noting the progress of operation %s: %w", o.id, err)
	}
	return nil
}

// cannotSucceed reports whether doing the same again would fail in the same way: the data or the statement
// is at fault, and not the database's condition.
func cannotSucceed(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return slices.Contains([]string{"22", "23", "42"}, pg.Code[:2])
}

// failOperation ends an operation that cannot be carried on.
func (s *Store) failOperation(ctx context.Context, id uuid.UUID, cause error) error {
	s.options.Log.Error("an operation cannot be carried on", "operation", id, "error", cause)
	return s.join(ctx, func(ctx context.Context, u *unit) error {
		if err := query(ctx, u, `SELECT FROM punctual.operations WHERE id = $1 FOR UPDATE`, id); err != nil {
			return fmt.Errorf("locking operation %s: %w", id, err)
		}
		return endOperation(ctx, u, id, OperationFailed, storable(cause.Error()))
	})
}

var _ scheduler.Store = (*Store)(nil)
