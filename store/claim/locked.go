package claim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// Claims and finishes wait for a lock only briefly, because other replicas and the API hold theirs for milliseconds. If
// a lock is not free by then, some transaction holds a row for longer, such as one in psql. Then the work is done again
// warily: it first finds out, without waiting, which rows are locked, and leaves those alone. So while no transaction
// holds a row for long, that search costs nothing.
const (
	briefly = pg.ByIndex + `, set_config('lock_timeout', '100ms', true)`
	shortly = pg.ByIndex + `, set_config('lock_timeout', '500ms', true)` // a draw waits for the draws of others
	longer  = pg.ByIndex + `, set_config('lock_timeout', '1s', true)`    // an outcome may wait longer than a slot
	warily  = pg.ByIndex + `, set_config('lock_timeout', '2s', true)`    // for locks not searched for, such as tables
)

// waryFor is how long work goes on being done warily after it last found something locked.
const waryFor = 10 * time.Second

// wariness is whether one kind of work is to be done warily. Safe for concurrent use.
type wariness struct{ since atomic.Int64 }

func (w *wariness) on() bool {
	since := w.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) < waryFor
}

func (w *wariness) found() { w.since.Store(time.Now().UnixNano()) }

// try does work, and does it again warily if it could not get a lock. Work that Postgres has ended because it idled for
// too long is done again with more time.
func (w *wariness) try(work func(wary bool) error) error {
	patiently := func(wary bool) (err error) {
		for range mostDoublings + 1 {
			if err = work(wary); !idledTooLong(err) {
				break
			}
		}
		return err
	}
	if !w.on() {
		err := patiently(false)
		if _, is := pg.LockedOut(err); !is {
			return err
		}
		w.found()
	}
	return patiently(true)
}

// wariest holds the wariness of each kind of work. They are apart because each kind meets other rows.
type wariest struct{ finish, due, ready, draw wariness }

// lockedRows are rows that other transactions have locked: their tables by id.
type lockedRows map[uuid.UUID]string

// queue queues a statement that locks the rows of a table with the given ids, except those that another transaction has
// locked. It adds these to l. At times it adds a row that has just been deleted.
func (l lockedRows) queue(b *pgx.Batch, table, column, how string, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	b.Queue(fmt.Sprintf(`
		WITH free AS MATERIALIZED (
			SELECT %[2]s AS id FROM punctual.%[1]s
			WHERE %[2]s = ANY($1::uuid[]) ORDER BY %[2]s FOR %[3]s SKIP LOCKED)
		SELECT %[2]s FROM punctual.%[1]s
		WHERE %[2]s = ANY($1::uuid[]) AND %[2]s NOT IN (SELECT id FROM free)`, table, column, how), ids).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id uuid.UUID
				if err := rows.Scan(&id); err != nil {
					return err
				}
				l[id] = table
			}
			return rows.Err()
		})
}

// waryFinish writes outcomes and ends leases, except those with a row that another transaction has locked.
type waryFinish struct {
	outcomes  []scheduler.Outcome
	released  []uuid.UUID
	following Following

	written map[uuid.UUID]bool
	locked  lockedRows  // outcomes that are not written, by run
	kept    []uuid.UUID // leases that are not ended
}

// run is one transaction of two round trips. It first locks the rows that it will write, in the same order as all
// others.
func (f *waryFinish) run(ctx context.Context, s *Claims) error {
	return s.onConn(ctx, func(conn *pgx.Conn) error {
		if err := f.look(ctx, s, conn); err != nil {
			return err
		}
		var b pgx.Batch
		f.written = QueueFinish(&b, f.outcomes, f.released, AnyDay, f.following)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, &b).Close()
	})
}

// look locks the rows, and sets aside the outcomes and leases of which a row is locked already.
func (f *waryFinish) look(ctx context.Context, s *Claims, conn pg.Batcher) error {
	var runs, told []uuid.UUID
	for _, o := range f.outcomes {
		runs = append(runs, o.RunID)
		if f.following.Concerns(o.Job) {
			told = append(told, o.Job.ID)
		}
	}
	gated, _ := gatedJobs(f.outcomes)
	ofJobs, ofRuns, ofLeases := lockedRows{}, lockedRows{}, lockedRows{}
	var b pgx.Batch
	s.queueBegin(&b, true)
	ofJobs.queue(&b, "exclusive", "job_id", "NO KEY UPDATE", gated)
	ofJobs.queueBehind(&b, gated)
	ofRuns.queue(&b, "runs", "id", "NO KEY UPDATE", runs)
	ofRuns.queue(&b, "run_data", "run_id", "NO KEY UPDATE", runs)
	ofLeases.queue(&b, "claims", "id", "UPDATE", f.released)
	ofJobs.queue(&b, "jobs", "id", "KEY SHARE", told) // for the row that is inserted in notified
	ofJobs.queue(&b, "notified", "job_id", "NO KEY UPDATE", told)
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	f.locked = lockedRows{}
	leases := map[uuid.UUID]bool{}
	free := make([]scheduler.Outcome, 0, len(f.outcomes)) // a new array: the caller's outcomes stay as they are
	for _, o := range f.outcomes {
		table, is := ofRuns[o.RunID]
		if !is {
			table, is = ofJobs[o.Job.ID]
		}
		if !is {
			free = append(free, o)
			continue
		}
		f.locked[o.RunID] = table
		if o.Lease != nil {
			leases[o.Lease.ID] = true
		}
	}
	f.outcomes = free
	var released []uuid.UUID
	for _, id := range f.released {
		if _, is := ofLeases[id]; is || leases[id] {
			f.kept = append(f.kept, id)
			continue
		}
		released = append(released, id)
	}
	f.released = released
	return nil
}

// queueBehind does the same for the rows in ready of the runs that wait at the gates, and records them by job. Each of
// these runs starts when its gate is freed.
func (l lockedRows) queueBehind(b *pgx.Batch, gated []uuid.UUID) {
	if len(gated) == 0 {
		return
	}
	b.Queue(`
		WITH waits AS (
			SELECT e.job_id, y.run_id
			FROM punctual.exclusive e
			JOIN punctual.ready y ON y.run_id = (
			    SELECT w.run_id FROM punctual.ready w
			    WHERE w.job_id = e.job_id AND w.at_gate ORDER BY w.run_id LIMIT 1)
			WHERE e.job_id = ANY($1::uuid[])),
		free AS MATERIALIZED (
			SELECT run_id FROM punctual.ready
			WHERE run_id IN (SELECT run_id FROM waits) ORDER BY run_id FOR UPDATE SKIP LOCKED)
		SELECT job_id FROM waits WHERE run_id NOT IN (SELECT run_id FROM free)`, gated).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var job uuid.UUID
			if err := rows.Scan(&job); err != nil {
				return err
			}
			l[job] = "ready"
		}
		return rows.Err()
	})
}
