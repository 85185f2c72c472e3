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
	// batchesPerSecond is into how many batches an operation with a rate divides a second.
	batchesPerSecond = 4
	// lockedPause is when to look again for an operation whose batch another replica is doing.
	lockedPause = 250 * time.Millisecond
	// gatePause is when to look again for runs that wait for others of their jobs.
	gatePause = time.Second
)

// bulk is an operation, locked for one batch, and what the batch came to.
type bulk struct {
	id   uuid.UUID
	kind OperationKind
	note string
	rate int // a second; 0: no limit

	done, failed int
	made         int         // what counts against the rate
	trouble      string      // the latest that failed, and why
	left         bool        // there is more to do
	days         []time.Time // an instant of each day whose partition the batch needs
}

// batches says what each kind of operation does in one batch: it locks what it works on, works, and sets
// what that came to.
var batches = map[OperationKind]func(o *bulk, ctx context.Context, u *unit) error{
	OperationReplay:   (*bulk).workLetters,
	OperationResolve:  (*bulk).workLetters,
	OperationBackfill: (*bulk).workSlots,
}

// Operate implements scheduler.Store. The operation's row is locked during a batch, and the batch commits
// together with its progress: several replicas may work at once, and one that dies leaves nothing half done.
func (s *Store) Operate(ctx context.Context) (wait time.Duration, left bool, err error) {
	ctx = forChores.in(ctx)
	var o *bulk
	err = s.join(ctx, everybody, func(ctx context.Context, u *unit) error {
		var err error
		if o, err = lockOperation(ctx, u); err != nil {
			return err
		}
		if o == nil {
			wait, left, err = nextBatch(ctx, u)
			return err
		}
		if err := batches[o.kind](o, ctx, u); err != nil {
			return err
		}
		left = true
		return o.save(ctx, u)
	})
	switch {
	case err == nil || o == nil:
	case lacksPartition(err):
		return 0, true, s.partitionsFor(ctx, o.days)
	case cannotSucceed(err):
		return 0, true, s.failOperation(ctx, o.id, err)
	}
	return wait, left, err
}

// lockOperation locks the operation whose turn it is; nil when it is nobody's or others are at it. Kinds that
// this binary does not know are left to those that do.
func lockOperation(ctx context.Context, u *unit) (*bulk, error) {
	var o bulk
	err := u.QueryRow(ctx, `
		SELECT id, kind, coalesce(note, ''), coalesce(max_per_second, 0) FROM punctual.operations
		WHERE state = 'running' AND kind = ANY($1::text[]) AND next_at <= clock_timestamp() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED`, knownKinds()).
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
	err = u.QueryRow(ctx, `SELECT min(next_at) - clock_timestamp() FROM punctual.operations WHERE state = 'running' AND kind = ANY($1::text[])`, knownKinds()).Scan(&next)
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

func knownKinds() []string {
	kinds := make([]string, 0, len(batches))
	for kind := range batches {
		kinds = append(kinds, string(kind))
	}
	return kinds
}

// size is how much of what counts against the rate the next batch may have, and at most most.
func (o *bulk) size(most int) int {
	if o.rate > 0 {
		return min(max(o.rate/batchesPerSecond, 1), most)
	}
	return most
}

// save notes the progress, when the next batch may be done, and the end when there is nothing left.
func (o *bulk) save(ctx context.Context, u *unit) error {
	var pause time.Duration
	switch {
	case o.done+o.failed == 0:
		pause = gatePause // what is left waits for a gate, or for whoever has locked it
	case o.rate > 0:
		pause = time.Duration(o.made) * time.Second / time.Duration(o.rate)
	}
	_, err := u.Exec(ctx, `
		UPDATE punctual.operations SET done = done + $2, failed = failed + $3, error = coalesce($4, error),
		       next_at = clock_timestamp() + $5::interval,
		       state = CASE WHEN $6 THEN 'running' ELSE 'done' END, finished_at = CASE WHEN NOT $6 THEN clock_timestamp() END
		WHERE id = $1`, o.id, o.done, o.failed, orNull(o.trouble), pause, o.left)
	if err != nil {
		return fmt.Errorf("noting the progress of operation %s: %w", o.id, err)
	}
	return nil
}

// hopeless is why an operation cannot be carried on.
type hopeless string

func (h hopeless) Error() string { return string(h) }

// cannotSucceed reports whether doing the same again would fail in the same way: the data or the statement
// is at fault, and not the database's condition.
func cannotSucceed(err error) bool {
	var why hopeless
	if errors.As(err, &why) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return slices.Contains([]string{"22", "23", "42"}, pg.Code[:2])
}

// failOperation ends an operation that cannot be carried on.
func (s *Store) failOperation(ctx context.Context, id uuid.UUID, cause error) error {
	s.options.Log.Error("an operation cannot be carried on", "operation", id, "error", cause)
	return s.join(ctx, everybody, func(ctx context.Context, u *unit) error {
		if err := query(ctx, u, `SELECT FROM punctual.operations WHERE id = $1 FOR UPDATE`, id); err != nil {
			return fmt.Errorf("locking operation %s: %w", id, err)
		}
		return endOperation(ctx, u, id, OperationFailed, storable(cause.Error()))
	})
}

var _ scheduler.Store = (*Store)(nil)
