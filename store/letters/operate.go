package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/pg"
)

// Chore is the name of the chore that works on operations.
const Chore = "operations"

const (
	// batchesPerSecond is into how many batches an operation with a rate divides each second.
	batchesPerSecond = 4
	// lockedPause is how long to wait before looking again for an operation whose batch another replica is doing.
	lockedPause = 250 * time.Millisecond
	// gatePause is how long to wait before looking again for runs that wait for other runs of their jobs, and for rows
	// that another transaction has locked.
	gatePause = 500 * time.Millisecond
	// linePause is how long to wait before looking again whether waiting ordered runs have been started.
	linePause = 250 * time.Millisecond
	// shortPause is how long to wait at least before looking again whether the previous run of a backfill has ended.
	shortPause = 50 * time.Millisecond
	// mostAhead is how many ordered runs of a tenant may wait to be started in a queue. It is the same for all
	// operations, so that one with a low rate does not wait for others with higher rates.
	mostAhead = 100
)

// bulk is an operation that is locked for one batch, with the results of the batch.
type bulk struct {
	letters *Letters
	id      uuid.UUID
	kind    OperationKind
	note    string
	by      string // who requested it, in words
	rate    int    // per second; 0: no limit

	second int // how many ordered runs of the tenant may wait: as many as its limit allows per second, at most mostAhead

	done, failed int
	made         int           // how much of the rate the batch used
	passed       int           // slots that the pauses it ended had swallowed
	trouble      string        // the latest item that failed, and why
	left         bool          // there is more to do
	full         bool          // it waits until runs ordered before have been started
	pause        time.Duration // how long to wait if the batch did nothing; 0: gatePause
	days         []time.Time   // an instant in each day whose partition the batch needs

	held  int       // how many jobs the batch holds until it is committed
	since time.Time // when it began to hold them
}

// batches says what each kind of operation does in one batch: it locks the rows that it works on, does the work, and
// records the results in bulk.
var batches = map[OperationKind]func(o *bulk, ctx context.Context, tx *pg.Tx) error{
	OperationReplay:   (*bulk).workLetters,
	OperationResolve:  (*bulk).workLetters,
	OperationBackfill: (*bulk).workSlots,
	OperationPause:    (*bulk).workJobs,
	OperationResume:   (*bulk).workJobs,
	OperationDelete:   (*bulk).workJobs,
}

// knownKinds are the kinds of operations that this binary can work on.
var knownKinds = pg.Texts(slices.Collect(maps.Keys(batches)))

// running are the operations that go on.
var running = aside.Rows{Kind: aside.Operation, Table: "operations", ID: "id", Are: "r.state = 'running'"}

// Operate does a batch of work on one of the unfinished operations. The operation's row is locked during a batch, and
// the batch is committed together with its progress. So several replicas may work at once, and one that dies leaves
// nothing half done. Operate returns how long to wait before the next batch; left is false once no operation is left.
func (l *Letters) Operate(ctx context.Context) (wait time.Duration, left bool, err error) {
	var o *bulk
	err = l.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var err error
		if o, err = l.lockOperation(ctx, tx); err != nil {
			return err
		}
		if o == nil {
			wait, left, err = nextBatch(ctx, tx, l.aside.Resting(aside.Operation))
			return err
		}
		o.letters = l
		if err := batches[o.kind](o, ctx, tx); err != nil {
			return err
		}
		left = true
		return o.save(ctx, tx)
	})
	if o != nil && o.held > 0 {
		l.pace.note(o.held, time.Since(o.since))
	}
	switch {
	case err == nil || o == nil:
	case days.IsMissing(err):
		return 0, true, l.days.EnsureFor(ctx, l.db.Chores, o.days)
	case lockedOut(err):
		return 0, true, l.putOff(ctx, o.id, err)
	case cannotSucceed(err):
		return 0, true, l.failOperation(ctx, o.id, err)
	}
	if o == nil && l.aside.SetUnreadable(ctx, running, err) {
		return 0, true, nil
	}
	if o != nil {
		left, err = l.aside.One(ctx, aside.Operation, o.id, left, err)
	}
	return wait, left, err
}

// lockOperation locks the operation whose turn it is. It returns nil if no operation is due, or if other replicas work
// on those that are. Kinds that this binary does not know are left to binaries that do.
func (l *Letters) lockOperation(ctx context.Context, tx *pg.Tx) (*bulk, error) {
	var o bulk
	err := tx.QueryRow(ctx, `
		SELECT o.id, o.kind, coalesce(o.note, ''), coalesce(o.max_per_second, 0), least(t.max_runs_per_second, $2),
		       o.requested_by
		FROM punctual.operations o JOIN punctual.tenants t ON t.id = o.tenant
		WHERE o.state = 'running' AND o.kind = ANY($1::text[]) AND o.next_at <= clock_timestamp()
		  AND o.id <> ALL($3::uuid[])
		ORDER BY o.next_at LIMIT 1 FOR UPDATE OF o SKIP LOCKED`,
		knownKinds, mostAhead, l.aside.Resting(aside.Operation)).Scan(&o.id, &o.kind, &o.note, &o.rate, &o.second, &o.by)
	if some, err := pg.Some(err); !some {
		return nil, pg.Wrap("locking an operation", err)
	}
	return &o, nil
}

// nextBatch returns whether there are operations at all, and how long to wait until the next one is due.
func nextBatch(ctx context.Context, tx *pg.Tx, resting []uuid.UUID) (wait time.Duration, left bool, err error) {
	var next *time.Duration
	err = tx.QueryRow(ctx, `
		SELECT min(next_at) - clock_timestamp() FROM punctual.operations
		WHERE state = 'running' AND kind = ANY($1::text[]) AND id <> ALL($2::uuid[])`, knownKinds, resting).Scan(&next)
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

// ahead is what keeps an operation from making more runs for now.
type ahead struct {
	queues []int16     // in these, as many ordered runs of the tenant wait to be started as are allowed
	jobs   []uuid.UUID // ordered runs of these wait for their host
}

// selectAhead reads ahead. Retries that wait for their time do not count.
const selectAhead = `
SELECT ARRAY(SELECT q.id FROM punctual.queues q WHERE $2 <= (SELECT count(*) FROM (
           SELECT FROM punctual.ready y
           WHERE y.lane = (q.id * 4 + 3)::smallint AND y.tenant = o.tenant AND y.waits = 'turn' AND y.due_at <= now()
           LIMIT $2) n)),
       ARRAY(SELECT DISTINCT y.job_id FROM punctual.queues q CROSS JOIN LATERAL (
           SELECT r.job_id FROM punctual.ready r
           WHERE r.lane = (q.id * 4 + 3)::smallint AND r.tenant = o.tenant AND r.waits = 'host') y)
FROM punctual.operations o WHERE o.id = $1`

// looksAhead reads what keeps the operation from making more runs. The rest of an order waits in its operation, where
// it can be cancelled and delays no other run.
func (o *bulk) looksAhead(ctx context.Context, tx *pg.Tx) (a ahead, err error) {
	if err := tx.QueryRow(ctx, selectAhead, o.id, o.second).Scan(&a.queues, &a.jobs); err != nil {
		return a, fmt.Errorf("looking for what waits of operation %s: %w", o.id, err)
	}
	o.full = len(a.queues) > 0
	return a, nil
}

// size is how much of the rate the next batch may use, at most most.
func (o *bulk) size(most int) int {
	if o.rate > 0 {
		return min(max(o.rate/batchesPerSecond, 1), most)
	}
	return most
}

// save records the progress and when the next batch may be done. If nothing is left, it ends the operation.
func (o *bulk) save(ctx context.Context, tx *pg.Tx) error {
	var pause time.Duration
	switch {
	case o.done+o.failed == 0 && o.full:
		pause = linePause
	case o.done+o.failed == 0:
		pause = cmp.Or(o.pause, gatePause) // the rest waits for a gate, or for the transaction that has locked it
	case o.rate > 0:
		pause = time.Duration(o.made) * time.Second / time.Duration(o.rate)
	}
	return pg.Wrap("noting the progress of operation "+o.id.String(), pg.Exec(ctx, tx, `
		UPDATE punctual.operations SET done = done + $2, failed = failed + $3, error = coalesce($4, error),
		       skipped_while_paused = skipped_while_paused + $7,
		       next_at = clock_timestamp() + $5::interval,
		       state = CASE WHEN $6 THEN 'running' ELSE 'done' END,
		       finished_at = CASE WHEN NOT $6 THEN clock_timestamp() END
		WHERE id = $1`, o.id, o.done, o.failed, pg.OrNull(o.trouble), pause, o.left, o.passed))
}

// hopeless is the reason why an operation can never be carried on.
type hopeless string

func (h hopeless) Error() string { return string(h) }

// cannotSucceed reports whether the same attempt would fail again in the same way, because the data or the statement is
// at fault and not the database's condition.
func cannotSucceed(err error) bool {
	if _, is := errors.AsType[hopeless](err); is {
		return true
	}
	code := pg.Code(err)
	return code != "" && slices.Contains([]string{"22", "23", "42"}, code[:2])
}

// lockedOut reports whether a batch was given up because another transaction has locked what it needs.
func lockedOut(err error) bool {
	_, is := pg.LockedOut(err)
	return is || pg.Code(err) == "40P01" // deadlock_detected
}

// putOff lets other operations go first.
func (l *Letters) putOff(ctx context.Context, id uuid.UUID, cause error) error {
	l.options.Log.Warn("an operation waits for what another transaction has locked", "operation", id, "error", cause)
	return l.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		return pg.Wrap("putting off operation "+id.String(), pg.Exec(ctx, tx, `
			UPDATE punctual.operations SET next_at = clock_timestamp() + $2::interval
			WHERE id = $1 AND state = 'running'`, id, gatePause))
	})
}

// failOperation ends an operation that can never be carried on.
func (l *Letters) failOperation(ctx context.Context, id uuid.UUID, cause error) error {
	l.options.Log.Error("an operation cannot be carried on", "operation", id, "error", cause)
	return l.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := pg.Exec(ctx, tx, `SELECT FROM punctual.operations WHERE id = $1 FOR UPDATE`, id); err != nil {
			return fmt.Errorf("locking operation %s: %w", id, err)
		}
		return endOperation(ctx, tx, id, OperationFailed, pg.Storable(cause.Error()))
	})
}

// EndOperation gives up an operation that fails each time.
func (l *Letters) EndOperation(ctx context.Context, id uuid.UUID) error {
	return l.failOperation(ctx, id, hopeless("it failed each time, and was dropped"))
}
