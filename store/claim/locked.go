package claim

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Claims and finishes wait for a lock only briefly, because other replicas and the API hold theirs for milliseconds. If
// a lock is not free by then, some transaction holds a row for longer, such as one in psql. Then the work is done again
// warily: it first finds out, without waiting, which rows are locked, and leaves those alone. So while no transaction
// holds a row for long, that search costs nothing.
//
// A statement may take longer than it may wait for a lock. Else one that waits would look like one that hangs.
var (
	briefly = mayTake("2") + `, set_config('lock_timeout', '100ms', true)` + mayIdle
	shortly = mayTake("2") + `, set_config('lock_timeout', '500ms', true)` + mayIdle // waits for the draws of others
	warily  = mayTake("6") + `, set_config('lock_timeout', '2s', true)` + mayIdle    // for locks that it does not look for
	longer  = mayTake("3") + `, set_config('lock_timeout', '1s', true)`              // an outcome may wait longer
	calmly  = longer + mayIdle                                                       // in several round trips
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

// try does work, and does it again warily if it could not get a lock.
func (w *wariness) try(work func(wary bool) error) error {
	if !w.on() {
		err := patiently(func() error { return work(false) })
		if _, is := pg.LockedOut(err); !is {
			return err
		}
		w.found()
	}
	return patiently(func() error { return work(true) })
}

// wariest holds the wariness of each kind of work. They are apart because each kind meets other rows.
type wariest struct{ finish, due, ready, draw wariness }

// lockFree holds, by table, the statement that locks the rows with the given ids, except those that another transaction
// has locked. It returns these.
var lockFree = map[string]string{
	"exclusive": lockingFree("exclusive", "job_id", "NO KEY UPDATE"),
	"ready":     lockingFree("ready", "run_id", "UPDATE"),
	"runs":      lockingFree("runs", "id", "NO KEY UPDATE"),
	"run_data":  lockingFree("run_data", "run_id", "NO KEY UPDATE"),
	"claims":    lockingFree("claims", "id", "UPDATE"),
	"jobs":      lockingFree("jobs", "id", "KEY SHARE"),
	"notified":  lockingFree("notified", "job_id", "NO KEY UPDATE"),
}

func lockingFree(table, key, lock string) string {
	return fmt.Sprintf(`
WITH free AS MATERIALIZED (
    SELECT %[2]s FROM punctual.%[1]s WHERE %[2]s = ANY($1::uuid[]) ORDER BY %[2]s FOR %[3]s SKIP LOCKED)
SELECT %[2]s FROM punctual.%[1]s WHERE %[2]s = ANY($1::uuid[]) AND %[2]s NOT IN (SELECT %[2]s FROM free)`,
		table, key, lock)
}

// lockedRows are rows that other transactions have locked: their tables by id.
type lockedRows map[uuid.UUID]string

// queue queues a statement of lockFree, for the rows of its table with the given ids. It adds to l the rows that it
// could not lock. At times it adds a row that has just been deleted.
func (l lockedRows) queue(b *pgx.Batch, table string, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	b.Queue(lockFree[table], ids).Query(pg.IntoKeys(l, table))
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
			    WHERE w.job_id = e.job_id AND w.waits = 'gate' ORDER BY w.run_id LIMIT 1)
			WHERE e.job_id = ANY($1::uuid[])),
		free AS MATERIALIZED (
			SELECT run_id FROM punctual.ready
			WHERE run_id IN (SELECT run_id FROM waits) ORDER BY run_id FOR UPDATE SKIP LOCKED)
		SELECT job_id FROM waits WHERE run_id NOT IN (SELECT run_id FROM free)`, gated).Query(pg.IntoKeys(l, "ready"))
}
