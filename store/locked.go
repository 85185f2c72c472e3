package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// Claims and finishes wait a moment for locks, as those of other replicas and of the API are held for milliseconds. When
// that was in vain, somebody holds a row for longer, as in psql, and the work is done again warily: it first finds out,
// without waiting, what is locked, and leaves that alone. So while nobody holds anything nothing is looked for.
const (
	briefly = byIndex + `, set_config('lock_timeout', '500ms', true)`
	longer  = byIndex + `, set_config('lock_timeout', '1s', true)` // an outcome may wait longer than a slot
	warily  = byIndex + `, set_config('lock_timeout', '2s', true)` // for what is not looked for, such as tables
)

// waryFor is how long work goes on being done warily after it has last found something locked.
const waryFor = 10 * time.Second

// wariness is whether one kind of work is to be done warily. Safe for concurrent use.
type wariness struct{ since atomic.Int64 }

func (w *wariness) on() bool {
	since := w.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) < waryFor
}

func (w *wariness) found() { w.since.Store(time.Now().UnixNano()) }

// try does work, and does it again warily when a lock was not to be had. Work that Postgres has ended, because it idled for
// too long, is done again with more time.
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
		if _, is := lockedOut(err); !is {
			return err
		}
		w.found()
	}
	return patiently(true)
}

// wariest are the kinds of work that may be done warily, apart as they come across other rows.
type wariest struct{ finish, due, ready, draw wariness }

// lockedRows are rows that others have locked, by id, and their tables.
type lockedRows map[uuid.UUID]string

// queue queues what locks the rows of a table that have one of the ids, but for those that somebody else has locked. It
// takes these down, and so at times one that has just gone.
func (l lockedRows) queue(b *pgx.Batch, table, column, how string, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	b.Queue(fmt.Sprintf(`WITH free AS MATERIALIZED (SELECT %[2]s AS id FROM punctual.%[1]s WHERE %[2]s = ANY($1::uuid[]) ORDER BY %[2]s FOR %[3]s SKIP LOCKED)
		SELECT %[2]s FROM punctual.%[1]s WHERE %[2]s = ANY($1::uuid[]) AND %[2]s NOT IN (SELECT id FROM free)`, table, column, how), ids).
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

// waryFinish writes outcomes, and ends leases, whose rows nobody else has locked.
type waryFinish struct {
	outcomes []scheduler.Outcome
	released []uuid.UUID
	defaults notifyDefaults

	written map[uuid.UUID]bool
	locked  lockedRows  // outcomes that are left, by run
	kept    []uuid.UUID // leases that are not ended
}

// run is one transaction, of two round trips. The rows that it will write it locks first, in the order of all others.
func (f *waryFinish) run(ctx context.Context, s *Store) error {
	return s.onConn(ctx, func(conn *pgx.Conn) error {
		if err := f.look(ctx, s, conn); err != nil {
			return err
		}
		var b pgx.Batch
		f.written = queueFinish(&b, f.outcomes, f.released, anyDay, f.defaults)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, &b).Close()
	})
}

// look locks the rows, and puts aside the outcomes and leases that lack one.
func (f *waryFinish) look(ctx context.Context, s *Store, conn batcher) error {
	var runs, told []uuid.UUID
	for _, o := range f.outcomes {
		runs = append(runs, o.RunID)
		if len(f.defaults.of(o.Job)) > 0 {
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
	ofJobs.queue(&b, "jobs", "id", "KEY SHARE", told) // for the row of notified that is made of it
	ofJobs.queue(&b, "notified", "job_id", "NO KEY UPDATE", told)
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	f.locked = lockedRows{}
	leases := map[uuid.UUID]bool{}
	free := make([]scheduler.Outcome, 0, len(f.outcomes)) // another array: the caller's outcomes stay where they are
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

// queueBehind does so with the rows of ready of the runs that wait at gates, which go as soon as these are free; by job.
func (l lockedRows) queueBehind(b *pgx.Batch, gated []uuid.UUID) {
	if len(gated) == 0 {
		return
	}
	b.Queue(`WITH waits AS (SELECT e.job_id, y.run_id FROM punctual.exclusive e JOIN punctual.ready y ON y.run_id = `+nextAtGate+` WHERE e.job_id = ANY($1::uuid[])),
		free AS MATERIALIZED (SELECT run_id FROM punctual.ready WHERE run_id IN (SELECT run_id FROM waits) ORDER BY run_id FOR UPDATE SKIP LOCKED)
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
