package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// byIndex keeps the planner from reading whole tables in the rest of a transaction. One that nobody has
// analysed yet, as the runs of a day that has just begun, looks small to it and may not be, and a plan that
// was made then is kept. Nor is a plan compiled: one that cannot do without reading a table whole, such as that of
// the tenants, would then count as dear enough for it, and that takes a tenth of a second.
const byIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

// queueBegin begins a transaction that takes several round trips. Should this process stop in between, the
// rows that it has locked are free again after 5 s.
func queueBegin(b *pgx.Batch, wary bool) {
	b.Queue(`BEGIN`)
	b.Queue(`SET LOCAL idle_in_transaction_session_timeout = '5s'`)
	if wary {
		b.Queue(warily)
		return
	}
	b.Queue(briefly)
}

// onConn runs work on a connection of its own. The work begins and commits its transaction itself,
// within the round trips that carry its statements; whatever it leaves open is rolled back.
func (s *Store) onConn(ctx context.Context, work func(conn *pgx.Conn) error) error {
	conn, err := s.conns(ctx).Acquire(ctx)
	if err != nil {
		return fmt.Errorf("getting a connection: %w", err)
	}
	defer conn.Release()
	err = s.tookWrite(work(conn.Conn()))
	if conn.Conn().PgConn().TxStatus() != 'I' {
		// The caller's context may have ended; the rollback still gives the row locks back at once.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // should it fail, Release closes the connection
	}
	return err
}

// NextDue implements scheduler.Store.
func (s *Store) NextDue(ctx context.Context, queues []int16, lookForOlder bool) (scheduler.Upcoming, error) {
	ctx = forRuns.in(ctx)
	var u scheduler.Upcoming
	var schedule, ready *time.Time
	err := s.conns(ctx).QueryRow(ctx, `
		WITH lanes AS (SELECT (q * 4 + p)::smallint AS lane FROM unnest($1::smallint[]) q, generate_series(0, 2) p)
		SELECT now(),
		       (SELECT min(n.next_run_at) FROM lanes CROSS JOIN LATERAL (
		            SELECT next_run_at FROM punctual.schedules s WHERE enabled AND s.lane = lanes.lane AND next_run_at > now() - interval '5 s'
		            ORDER BY next_run_at LIMIT 1) n),
		       (SELECT min(n.due_at) FROM lanes CROSS JOIN LATERAL (
		            SELECT due_at FROM punctual.ready r WHERE r.lane = lanes.lane ORDER BY due_at LIMIT 1) n),
		       $2 AND EXISTS (SELECT FROM lanes CROSS JOIN LATERAL (
		            SELECT FROM punctual.schedules s WHERE enabled AND s.lane = lanes.lane AND next_run_at <= now() - interval '5 s' ORDER BY next_run_at LIMIT 1) o)`,
		queues, lookForOlder).Scan(&u.Now, &schedule, &ready, &u.Older)
	if err != nil {
		return scheduler.Upcoming{}, fmt.Errorf("looking for what is due next: %w", err)
	}
	if schedule != nil {
		u.Schedule = *schedule
	}
	if ready != nil {
		u.Ready = *ready
	}
	return u, nil
}

// NextFresh implements scheduler.Store.
func (s *Store) NextFresh(ctx context.Context, queues []int16) (scheduler.Upcoming, error) {
	ctx = forRuns.in(ctx)
	var u scheduler.Upcoming
	var schedule, ready *time.Time
	err := s.conns(ctx).QueryRow(ctx, `
		WITH lanes AS (SELECT (q * 4 + p)::smallint AS lane FROM unnest($1::smallint[]) q, generate_series(0, 2) p)
		SELECT now(),
		       (SELECT min(n.next_run_at) FROM lanes CROSS JOIN LATERAL (
		            SELECT next_run_at FROM punctual.schedules s WHERE enabled AND s.lane = lanes.lane AND next_run_at > now() ORDER BY next_run_at LIMIT 1) n),
		       (SELECT min(n.due_at) FROM lanes CROSS JOIN LATERAL (
		            SELECT due_at FROM punctual.ready r WHERE r.lane = lanes.lane AND due_at > now() ORDER BY due_at LIMIT 1) n)`,
		queues).Scan(&u.Now, &schedule, &ready)
	if err != nil {
		return scheduler.Upcoming{}, fmt.Errorf("looking for what becomes due next: %w", err)
	}
	if schedule != nil {
		u.Schedule = *schedule
	}
	if ready != nil {
		u.Ready = *ready
	}
	return u, nil
}

// queueFences collects the fencing tokens that a claim returns, by run.
func queueFences(q *pgx.QueuedQuery, fences map[uuid.UUID]int64) {
	q.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var fence int64
			if err := rows.Scan(&id, &fence); err != nil {
				return err
			}
			fences[id] = fence
		}
		return rows.Err()
	})
}

// withFences keeps the runs that were won, with their fencing tokens, their run tokens and their lease.
func (s *Store) withFences(runs []scheduler.Assignment, fences map[uuid.UUID]int64, lease *scheduler.Lease) []scheduler.Assignment {
	won := runs[:0]
	for _, a := range runs {
		fence, ok := fences[a.RunID]
		if !ok {
			continue
		}
		a.Fence, a.Lease = fence, lease
		if a.Job.Completion == scheduler.CompleteAsync {
			a.RunToken = scheduler.RunToken(*s.tokenKey.Load(), a.RunID, fence)
		}
		won = append(won, a)
	}
	lease.Remaining = len(won)
	return won
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
