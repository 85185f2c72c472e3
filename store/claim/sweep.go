package claim

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

// SweepBatch is how many runs a sweep looks at in a minute. To look at each costs about a microsecond.
const SweepBatch = 100_000

// selectUnheld looks at the newest runs ($2) of a window before an id ($1). It selects those that have not ended and
// that nobody has, and the last one that it looked at. No index finds such runs: it would have to be written when a run
// starts and again when it ends. One snapshot sees a run together with its claim or its row in ready.
func selectUnheld(w days.Window) string {
	return `
SELECT id, nobodys, running, last
FROM (
    SELECT r.id, lead(r.id) OVER (ORDER BY r.id DESC) IS NULL AS last,
           r.status = 'running' AND r.accepted_at IS NULL AS running,
           CASE WHEN r.finished_at IS NOT NULL THEN false
                WHEN r.status = 'running' AND r.accepted_at IS NULL
                THEN NOT punctual.is_claimed(r.id, r.replica, r.claimed_at)
                ELSE NOT EXISTS (SELECT FROM punctual.ready y WHERE y.run_id = r.id) END AS nobodys
    FROM (
        SELECT *
        FROM punctual.runs
        WHERE ($1::uuid IS NULL OR id < $1) AND ` + w.On("id") + `
        ORDER BY id DESC LIMIT $2) r) s
WHERE nobodys OR last`
}

// lockUnheld locks runs before enlist looks at them again.
const lockUnheld = `
SELECT FROM punctual.runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`

// enlist puts runs into ready that wait and are not there. A run that its target works on gets a deadline: the default
// heartbeat_timeout from now.
var enlist = `
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane, waits, since)
SELECT r.id, r.job_id,
       CASE r.status WHEN 'running' THEN now() + interval '5 min' ELSE greatest(now(), r.due_at, r.next_attempt_at) END,
       r.tenant,
       ` + laneInReady + `,
       CASE r.status WHEN 'running' THEN 'target' ELSE 'turn' END, CASE r.status WHEN 'running' THEN r.started_at END
FROM punctual.runs r
WHERE r.id = ANY($1::uuid[])
  AND (r.status IN ('pending', 'retrying') OR r.status = 'running' AND r.accepted_at IS NOT NULL)
ON CONFLICT DO NOTHING`

// Sweep looks for runs that have not ended and that nobody has: no claim names a running one, and one that waits is not
// in ready. Nothing in Punctual leaves such a run behind. But a run may come into that state by a restore of single
// tables, or by hand, and would stay in it for ever, and its job's gate with it. An attempt counts as lost, and what
// waits is in ready again. Each call looks at a batch of runs, and in the end at all that are kept. It returns how many
// runs it took back.
func (s *Claims) Sweep(ctx context.Context) (n int, left bool, err error) {
	running, waiting, err := s.lookForUnheld(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("looking for runs that no replica has: %w", err)
	}
	if len(running) > 0 {
		if n, err = s.endRunning(ctx, s.db.Chores, ofNoClaim, nil, running); err != nil {
			return 0, false, fmt.Errorf("ending attempts that no replica has: %w", err)
		}
	}
	if len(waiting) > 0 {
		err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			if err := pg.Exec(ctx, tx, lockUnheld, waiting); err != nil {
				return err
			}
			done, err := tx.Exec(ctx, enlist, waiting)
			n += int(done.RowsAffected())
			return err
		})
		s.db.Wake()
	}
	if n > 0 {
		s.takenBack.Add(int64(n))
		s.options.Log.Error("runs had not ended, and no replica had them; they are taken back", "count", n,
			"first", append(running, waiting...)[0])
	}
	return n, false, pg.Wrap("putting runs that no replica has into ready", err)
}

// lookForUnheld looks at the next batch of runs, which is of one window of days. It returns those that nobody has.
func (s *Claims) lookForUnheld(ctx context.Context) (running, waiting []uuid.UUID, err error) {
	before := s.swept.Load()
	search := days.Search{Index: days.All}
	if before != nil {
		search.Until = domain.IDTime(*before)
	}
	var last *uuid.UUID
	_, err = search.Back(ctx, s.db.Chores, func(ctx context.Context, q pg.Querier, w days.Window) (bool, error) {
		var b pgx.Batch
		b.Queue(pg.ByIndex)
		b.Queue(selectUnheld(w), before, SweepBatch).Query(func(rows pgx.Rows) error {
			return pg.Each4(rows, func(id uuid.UUID, nobodys, underway, end bool) {
				if end {
					last = new(id)
				}
				switch {
				case nobodys && underway:
					running = append(running, id)
				case nobodys:
					waiting = append(waiting, id)
				}
			})
		})
		return last != nil, q.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return nil, nil, err
	}
	// Unless the sweep has begun anew meanwhile. Nil comes after the oldest run: then the next batch begins anew.
	s.swept.CompareAndSwap(before, last)
	return running, waiting, nil
}

// TakenBack returns how many runs this process has taken back because nobody had them.
func (s *Claims) TakenBack() int64 { return s.takenBack.Load() }
