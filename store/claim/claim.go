package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// lastingPlan makes Postgres plan each statement of a transaction once for each connection. Left to itself it compares
// what a plan for the arguments at hand costs with what one for all arguments does, and the estimates on both sides are
// as old as the plans. After autovacuum had analysed a growing table, thousands of claims were planned anew, for 0.4 ms
// each. planAnew switches back for statements that find runs by id on any day: only a plan that is made with the ids
// skips the tables of other days.
const (
	lastingPlan = `, set_config('plan_cache_mode', 'force_generic_plan', true)`
	planAnew    = `SELECT set_config('plan_cache_mode', 'auto', true)`
)

// queueLock begins the transaction of a claim and locks its rows.
func (s *Claims) queueLock(b *pgx.Batch, wary bool, sql string, arguments []any) *pgx.QueuedQuery {
	settings := briefly
	if wary {
		settings = warily
	}
	s.queueBegin(b, settings+lastingPlan)
	return b.Queue(sql, arguments...)
}

// onConn runs work on a connection of its own from a pool. The work begins and commits its transaction itself, within
// the round trips that carry its statements. onConn rolls back a transaction that is still open at the end.
func (s *Claims) onConn(ctx context.Context, pool *pg.Pool, work func(conn *pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("getting a connection: %w", err)
	}
	defer conn.Release()
	err = work(conn.Conn())
	s.patient.idling.learn(err)
	err = s.db.TookWrite(err)
	if conn.Conn().PgConn().TxStatus() != 'I' {
		// The caller's context may have ended; the rollback still gives the row locks back at once.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, `ROLLBACK`) // should it fail, Release closes the connection
	}
	return err
}

// selectNextDue finds the next due time of each kind of work, in that kind's queues: slots ($1), runs that wait ($2)
// and ordered runs ($4). It also reports whether there are late slots ($3). With $5 it ignores what is due already. It
// passes over jobs ($6) and runs ($7) that are set aside. It begins with runs at a bound in each queue ($8 and $9), and
// returns the oldest run of each. What is set aside, an array of the chores of Soon that have work, and what is frozen
// follow.
const selectNextDue = `
SELECT now(),
    (SELECT min(n.due) FROM unnest((SELECT $1::smallint[])) q CROSS JOIN generate_series(0, 2) p CROSS JOIN LATERAL (
        SELECT next_run_at AS due FROM punctual.schedules
        WHERE lane = (q * 4 + p)::smallint AND enabled AND job_id <> ALL((SELECT $6::uuid[])::uuid[])
          AND next_run_at > now() - CASE WHEN $5 THEN interval '0' ELSE interval '5 s' END
        ORDER BY next_run_at LIMIT 1) n),
    ARRAY(SELECT (
        SELECT min(n.due) FROM generate_series(0, 2) p CROSS JOIN LATERAL (
            SELECT due_at AS due FROM punctual.waiting
            WHERE lane = (q.queue * 4 + p)::smallint AND ` + Claimable + `
              AND run_id <> ALL((SELECT $7::uuid[])::uuid[])
              AND due_at > CASE WHEN $5 THEN now() ELSE coalesce(q.begin, '-infinity') END
            ORDER BY due_at LIMIT 1) n)
        FROM unnest((SELECT $2::smallint[]), (SELECT $8::timestamptz[])) WITH ORDINALITY q(queue, begin, n) ORDER BY n),
    ARRAY(SELECT (
        SELECT due_at FROM punctual.ready
        WHERE lane = (q.queue * 4 + 3)::smallint AND ` + Claimable + ` AND run_id <> ALL((SELECT $7::uuid[])::uuid[])
          AND due_at > CASE WHEN $5 THEN now() ELSE coalesce(q.begin, '-infinity') END
        ORDER BY due_at LIMIT 1)
        FROM unnest((SELECT $4::smallint[]), (SELECT $9::timestamptz[])) WITH ORDINALITY q(queue, begin, n) ORDER BY n),
    (SELECT min(n.due) FROM unnest((SELECT $3::smallint[])) q CROSS JOIN generate_series(0, 2) p CROSS JOIN LATERAL (
        SELECT next_run_at AS due FROM punctual.schedules
        WHERE lane = (q * 4 + p)::smallint AND enabled AND next_run_at <= now() - interval '5 s'
          AND job_id <> ALL((SELECT $6::uuid[])::uuid[])
        ORDER BY next_run_at LIMIT 1) n) IS NOT NULL, ` + aside.Known + `, `

const whatIsFrozen = `, f.* FROM (` + freeze.SelectFrozen + `) f`

// NextDue implements scheduler.Store.
func (s *Claims) NextDue(ctx context.Context, queues scheduler.LookInto, ahead bool) (scheduler.Upcoming, error) {
	u, err := s.nextDue(ctx, queues, ahead, s.options.Soon)
	if aside.Blames(ctx, err) {
		u, err = s.nextDue(ctx, queues, ahead, s.options.Always) // what is due does not depend on what chores read
	}
	if aside.TooSlow(err) {
		s.patient.statements.tooShort()
	}
	for slices.ContainsFunc([]aside.Rows{s.sieves.due.rows, s.sieves.ready.rows, slotsAhead, runsAhead},
		func(rows aside.Rows) bool { return s.aside.SetUnreadable(ctx, rows, err) }) {
		u, err = s.nextDue(ctx, queues, ahead, s.options.Always)
	}
	return u, err
}

func (s *Claims) nextDue(
	ctx context.Context, queues scheduler.LookInto, ahead bool, asked string,
) (u scheduler.Upcoming, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*s.patient.statements.now())
	defer cancel()
	var schedule *time.Time
	var ready, ordered []*time.Time // by queue
	var known *string
	var soon []string
	waiting, bulk, began := &s.bounds[domain.WorkReady], &s.bounds[domain.WorkOrdered], time.Now()
	if err := s.db.Runs.QueryRow(limited, selectNextDue+asked+whatIsFrozen, pg.Prepared{}, queues[domain.WorkDue],
		queues[domain.WorkReady], queues[domain.WorkLate], queues[domain.WorkOrdered], ahead,
		s.sieves.due.over(s.aside), s.sieves.ready.over(s.aside),
		waiting.begin(queues[domain.WorkReady], began), bulk.begin(queues[domain.WorkOrdered], began)).
		Scan(&u.Now, &schedule, &ready, &ordered, &u.Older, &known, &soon, &u.Halted, &u.Frozen); err != nil {
		return scheduler.Upcoming{}, fmt.Errorf("looking for what is due next: %w", err)
	}
	s.aside.Learn(known)
	s.db.Ask(soon...)
	if !ahead {
		waiting.learn(queues[domain.WorkReady], ready, u.Now, began)
		bulk.learn(queues[domain.WorkOrdered], ordered, u.Now, began)
	}
	u.Schedule, u.Ready, u.Ordered = pg.OrZero(schedule), firstOf(ready), firstOf(ordered)
	return u, nil
}

// withFences keeps the runs that this replica won, and gives each its fencing token, its run token and its lease.
func (s *Claims) withFences(
	runs []domain.Assignment, fences map[uuid.UUID]int64, lease *domain.Lease,
) []domain.Assignment {
	won := runs[:0]
	for _, a := range runs {
		fence, ok := fences[a.RunID]
		if !ok {
			continue
		}
		a.Fence, a.Lease = fence, lease
		if a.Job.Completion == jobspec.CompleteAsync || a.Step != "" {
			a.RunToken = domain.RunToken(*s.tokenKey.Load(), a.RunID, fence)
		}
		won = append(won, a)
	}
	lease.Remaining, lease.Started = len(won), s.fences.Started()
	return won
}
