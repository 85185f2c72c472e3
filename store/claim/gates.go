package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// What a statement does about rows that another transaction has locked.
const (
	Wait     = ``
	PassOver = ` SKIP LOCKED`
)

// Gate is the gate of a job whose runs must not overlap. A run takes the gate when it is claimed and has it until it
// ends.
type Gate struct {
	active  uuid.UUID   // uuid.Nil: none
	earlier []uuid.UUID // runs that were in flight when the job got its gate: active too, until they end
	Waiting uuid.UUID   // uuid.Nil: none

	waitsFor waitingFacts
	gated    bool // whether the job's runs must not overlap now
	busy     bool // another transaction has locked it
}

// waitingFacts tell whether the waiting run of a gate has expired.
type waitingFacts struct {
	version int32
	tenant  int32
	trigger domain.Trigger
	due     time.Time
	expired bool
}

// Gated reports whether the job's runs must not overlap, so that it has a row in exclusive.
func Gated(d jobspec.Definition) bool {
	return d.WithDefaults().ConcurrencyPolicy != jobspec.PolicyAllow
}

// Holders are the runs that have the gate; it is free when there are none.
func (g Gate) Holders() []uuid.UUID {
	var runs []uuid.UUID
	if g.active != uuid.Nil {
		runs = append(runs, g.active)
	}
	for _, run := range g.earlier {
		if run != g.active {
			runs = append(runs, run)
		}
	}
	return runs
}

// Facts returns the part of a gate that a decision needs.
func (g Gate) Facts() domain.Gate {
	return domain.Gate{Active: g.Holders(), Waiting: g.Waiting, WaitingExpired: g.waitsFor.expired}
}

// waitsAs is the version of a job's definition that the waiting run of its gate sends.
func (g Gate) waitsAs(job uuid.UUID) definitions.Version {
	return definitions.Version{Job: job, Version: g.waitsFor.version}
}

// readGates reads the gates of jobs. lockGates locks them before, but for those that another transaction has locked.
const (
	readGates = `
SELECT job_id, false, active_run, earlier_runs, waiting_run, gated
FROM punctual.exclusive
WHERE job_id = ANY($1::uuid[])`
	lockGates = readGates + `
ORDER BY job_id
FOR NO KEY UPDATE SKIP LOCKED`
)

// queueGates locks the gates of jobs and reads them. It leaves out a gate that another transaction has locked. It must
// be a statement after the one that locked the jobs' schedules or ready rows: within that statement it would read a
// stale snapshot, and two runs of a job would overlap against its policy.
func queueGates(b *pgx.Batch, jobs []uuid.UUID, gates map[uuid.UUID]Gate) {
	b.Queue(lockGates, pg.Prepared{}, jobs).Query(collectGates(gates))
}

// queueGatesOfAny is queueGates for jobs that may or may not have a gate. A gate that another transaction has locked is
// marked busy. The other gates are read under their locks.
func queueGatesOfAny(b *pgx.Batch, jobs []uuid.UUID, gates map[uuid.UUID]Gate) {
	b.Queue(`
		WITH mine AS MATERIALIZED (
		    SELECT job_id, active_run, earlier_runs, waiting_run, gated
		    FROM punctual.exclusive
		    WHERE job_id = ANY($1::uuid[])
		    ORDER BY job_id
		    FOR NO KEY UPDATE SKIP LOCKED)
		SELECT job_id, false, active_run, earlier_runs, waiting_run, gated FROM mine
		UNION ALL
		SELECT job_id, true, active_run, earlier_runs, waiting_run, gated
		FROM punctual.exclusive x
		WHERE job_id = ANY($1::uuid[])
		  AND NOT EXISTS (SELECT FROM mine m WHERE m.job_id = x.job_id)`, pg.Prepared{}, jobs).Query(collectGates(gates))
}

func collectGates(into map[uuid.UUID]Gate) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var job uuid.UUID
			var g Gate
			if err := rows.Scan(&job, &g.busy, &g.active, &g.earlier, &g.Waiting, &g.gated); err != nil {
				return err
			}
			into[job] = g
		}
		return rows.Err()
	}
}

// mendGates inserts the gates of jobs that should have one but have no row, so that a job whose gate was lost, in a
// restore or by hand, does not stay due for ever. Some need one for their missed slots alone (open). It must not insert
// gates that are only locked: such an insert would wait for the transaction that updates the gate, against the lock
// order.
func mendGates(
	ctx context.Context, conn pg.Querier, jobs map[definitions.Version]*domain.Job, found map[uuid.UUID]Gate,
	open ...uuid.UUID,
) error {
	missing := slices.Clone(open)
	for _, job := range jobs {
		if _, ok := found[job.ID]; !ok && job.ConcurrencyPolicy != jobspec.PolicyAllow {
			missing = append(missing, job.ID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.SortFunc(missing, pg.CompareIDs)
	return pg.Wrap("repairing gates", pg.Exec(ctx, conn, `
		INSERT INTO punctual.exclusive (job_id, gated)
		SELECT id, id <> ALL($2::uuid[]) FROM (
		    SELECT j.id
		    FROM punctual.jobs j
		    WHERE j.id = ANY($1::uuid[])
		      AND NOT EXISTS (SELECT FROM punctual.exclusive x WHERE x.job_id = j.id)
		    ORDER BY j.id
		    FOR KEY SHARE SKIP LOCKED) j
		ON CONFLICT DO NOTHING`, slices.Compact(missing), append([]uuid.UUID{}, open...)))
}

// freeEndedGates clears, in memory, the runs of gates that have ended or are missing, so that they hold no gate. It
// also finds out which of the waiting runs have expired.
func (s *Claims) freeEndedGates(ctx context.Context, conn pg.Querier, gates map[uuid.UUID]Gate, now time.Time) error {
	var named []uuid.UUID
	for _, g := range gates {
		for _, id := range append([]uuid.UUID{g.active, g.Waiting}, g.earlier...) {
			if id != uuid.Nil {
				named = append(named, id)
			}
		}
	}
	if len(named) == 0 {
		return nil
	}
	rows := pg.Query(ctx, conn, `
		SELECT id, job_version, tenant, trigger, due_at
		FROM punctual.runs
		WHERE id = ANY($1::uuid[])
		  AND status NOT IN ('succeeded', 'dead', 'skipped', 'cancelled')`, named)
	alive := map[uuid.UUID]waitingFacts{}
	var id uuid.UUID
	var f waitingFacts
	if err := pg.Each(rows, []any{&id, &f.version, &f.tenant, &f.trigger, &f.due}, func() { alive[id] = f }); err != nil {
		return fmt.Errorf("reading the runs of gates: %w", err)
	}
	for job, g := range gates {
		if _, ok := alive[g.active]; !ok {
			g.active = uuid.Nil
		}
		g.earlier = slices.DeleteFunc(g.earlier, func(run uuid.UUID) bool { _, ok := alive[run]; return !ok })
		if facts, ok := alive[g.Waiting]; ok {
			g.waitsFor = facts
		} else {
			g.Waiting = uuid.Nil
		}
		gates[job] = g
	}
	return s.findExpired(ctx, conn, gates, now)
}

// findExpired finds out which of the runs that wait at gates have expired. Each run is judged by the definition that it
// sends.
func (s *Claims) findExpired(ctx context.Context, conn pg.Batcher, gates map[uuid.UUID]Gate, now time.Time) error {
	found, err := s.definitions.Read(ctx, conn, func(yield func(definitions.Version, int32) bool) {
		for job, g := range gates {
			if g.Waiting != uuid.Nil && !yield(g.waitsAs(job), g.waitsFor.tenant) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for id, g := range gates {
		job := found.Jobs[g.waitsAs(id)]
		if g.Waiting == uuid.Nil || job == nil {
			continue
		}
		a := domain.Assignment{Job: job, Trigger: g.waitsFor.trigger, DueAt: g.waitsFor.due}
		g.waitsFor.expired = a.Expired(now)
		gates[id] = g
	}
	return nil
}

// makeWay cancels runs that others replace, and ends, unsent, runs that have expired at their gates. The caller holds
// the gates.
func makeWay(ctx context.Context, q pg.Querier, replaced, expired []uuid.UUID) error {
	if len(replaced) > 0 {
		if _, err := CancelRuns(ctx, q, replaced, domain.ReasonReplaced); err != nil {
			return err
		}
	}
	if len(expired) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(lockReadyToCancel, expired)
	b.Queue(`
		WITH over AS (
		    UPDATE punctual.runs
		    SET status = 'skipped', reason = 'expired', finished_at = now()
		    WHERE id = ANY($1::uuid[]) AND status = 'pending'
		    RETURNING id)
		DELETE FROM punctual.ready y
		USING over o
		WHERE y.run_id = o.id`, expired)
	b.Queue(`
		UPDATE punctual.exclusive e SET waiting_run = NULL
		FROM punctual.runs r
		WHERE r.id = ANY($1::uuid[])
		  AND e.job_id = r.job_id
		  AND e.waiting_run = r.id
		  AND r.status = 'skipped'`, expired)
	return pg.Wrap("ending expired runs", q.SendBatch(ctx, &b).Close())
}

// jobRun is a run at the gate of its job.
type jobRun struct{ job, run uuid.UUID }

var jobRuns = pg.Columns[jobRun]{
	pg.Col("job_id", "uuid", func(r jobRun) uuid.UUID { return r.job }),
	pg.Col("run_id", "uuid", func(r jobRun) uuid.UUID { return r.run }),
}

// queueTakeGates makes each run the active run of its job. The caller holds the gates, and says whether all of them are
// of jobs whose runs must not overlap. Else each stays what it is.
func queueTakeGates(b *pgx.Batch, runs []jobRun, gated bool) {
	if len(runs) > 0 {
		b.Queue(`
			UPDATE punctual.exclusive e
			SET active_run = u.run_id, waiting_run = nullif(e.waiting_run, u.run_id), gated = e.gated OR `+jobRuns.Arg(1)+`
			FROM `+jobRuns.Unnest("u")+`
			WHERE e.job_id = u.job_id`, append(jobRuns.Args(runs), gated)...)
	}
}

// queueWait makes each run the waiting run of its job. The caller holds the gates.
func queueWait(b *pgx.Batch, runs []jobRun) {
	if len(runs) > 0 {
		b.Queue(`
			UPDATE punctual.exclusive e
			SET waiting_run = u.run_id, gated = true
			FROM `+jobRuns.Unnest("u")+`
			WHERE e.job_id = u.job_id`, jobRuns.Args(runs)...)
	}
}

// dueAgain is SQL that sets a row y of ready due that waits at its gate. It is due anew: claims begin where the last
// one has left nothing.
const dueAgain = `waits = 'turn', due_at = greatest(now(), y.due_at)`

// LockGate locks the gate of a tenant's job, if it has one, to cancel runs of the job. In the order of locks, a gate
// comes after the job's schedule and before its runs, its rows in ready and its row in jobs.
func LockGate(ctx context.Context, tx *pg.Tx, tenant int32, job uuid.UUID) error {
	err := pg.Exec(ctx, tx, `
		SELECT
		FROM punctual.exclusive x
		WHERE x.job_id = $1 AND EXISTS (SELECT FROM punctual.jobs j WHERE j.id = $1 AND j.tenant = $2)
		FOR NO KEY UPDATE OF x`, job, tenant)
	return pg.Wrap("locking the gate of job "+job.String(), err)
}

// LockGates locks the gates of jobs that have one, and waits for none. It returns the jobs whose gate another
// transaction has locked.
func LockGates(ctx context.Context, tx *pg.Tx, jobs []uuid.UUID) (busy []uuid.UUID, err error) {
	busy, err = pg.All(ctx, tx, pgx.RowTo[uuid.UUID], lockFree["exclusive"], jobs)
	return busy, pg.Wrap("locking gates", err)
}

// OpenGate lets the runs of a job overlap from now on. The run of a missed slot keeps the gate for those that follow
// it. Call it before the job's row is locked, and QueueReleaseAll after that.
func OpenGate(ctx context.Context, tx *pg.Tx, job uuid.UUID) error {
	return pg.Wrap("opening the gate of job "+job.String(), pg.Exec(ctx, tx, `
		UPDATE punctual.exclusive
		SET gated = false, waiting_run = NULL, earlier_runs = NULL,
		    active_run = (SELECT r.id FROM punctual.runs_of(earlier_runs || active_run) r
		                  WHERE r.trigger = 'catchup' AND r.finished_at IS NULL ORDER BY r.id LIMIT 1)
		WHERE job_id = $1`, job))
}

// QueueReleaseAll sets due every run that waits at the gate of a job.
func QueueReleaseAll(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`SELECT FROM punctual.ready WHERE job_id = $1 AND waits = 'gate' ORDER BY run_id FOR UPDATE`, job)
	b.Queue(`
		UPDATE punctual.ready y SET `+dueAgain+` WHERE y.job_id = $1 AND y.waits = 'gate'`, job)
}

// QueueCloseGate keeps the runs of a job from overlapping from now on. The runs in flight have the gate until they end.
// The caller has locked the gate, if there is one, and written the job's row, so no run is made meanwhile. The
// statement waits for a claim that holds one of the job's rows in ready. The runs that such a claim starts count as in
// flight.
func QueueCloseGate(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`SELECT FROM punctual.ready WHERE job_id = $1 ORDER BY run_id FOR UPDATE`, job)
	b.Queue(`
		WITH flying AS MATERIALIZED (
		    SELECT r.id
		    FROM punctual.runs_of(ARRAY(SELECT run_id FROM punctual.ready WHERE job_id = $1)) r
		    WHERE r.status IN ('retrying', 'running') AND r.step IS NULL -- its workflow has the gate
		    UNION
		    SELECT r.id FROM punctual.runs_of(ARRAY(SELECT punctual.runs_being_sent($1))) r WHERE r.step IS NULL)
		INSERT INTO punctual.exclusive AS e (job_id, active_run, earlier_runs)
		SELECT $1, (SELECT id FROM flying ORDER BY id DESC LIMIT 1),
		       nullif(ARRAY(SELECT id FROM flying ORDER BY id DESC), '{}')
		ON CONFLICT (job_id) DO UPDATE
		SET gated = true, active_run = excluded.active_run, earlier_runs = excluded.earlier_runs`, job)
}

// FreeGates frees gates that are held by runs that were in flight when their job got its gate, and have ended.
func (s *Claims) FreeGates(ctx context.Context) (left bool, err error) {
	var jobs []uuid.UUID
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	// A run that has ended stays ended, so runs may be read before the gate is locked.
	b.Queue(`
		WITH alive AS MATERIALIZED (
		    SELECT r.id
		    FROM punctual.runs_of(ARRAY(SELECT unnest(earlier_runs) FROM punctual.exclusive
		                                WHERE earlier_runs IS NOT NULL)) r
		    WHERE r.finished_at IS NULL),
		seen AS MATERIALIZED (
		    SELECT e.job_id, e.earlier_runs,
		           ARRAY(SELECT u.id
		                 FROM unnest(e.earlier_runs) WITH ORDINALITY AS u(id, n)
		                 JOIN alive r ON r.id = u.id
		                 ORDER BY u.n) AS alive
		    FROM punctual.exclusive e
		    WHERE e.earlier_runs IS NOT NULL
		    ORDER BY e.job_id),
		mine AS MATERIALIZED (
		    SELECT e.job_id
		    FROM punctual.exclusive e
		    JOIN seen s ON s.job_id = e.job_id AND s.earlier_runs = e.earlier_runs AND s.alive <> s.earlier_runs
		    ORDER BY e.job_id
		    FOR NO KEY UPDATE OF e SKIP LOCKED)
		UPDATE punctual.exclusive e
		SET earlier_runs = nullif(s.alive, '{}'),
		    active_run = CASE WHEN e.active_run = ANY(s.earlier_runs) AND e.active_run <> ALL(s.alive)
		                      THEN s.alive[1]
		                      ELSE e.active_run END
		FROM seen s
		JOIN mine m ON m.job_id = s.job_id
		WHERE e.job_id = s.job_id AND e.earlier_runs = s.earlier_runs
		RETURNING e.job_id`).Query(pg.Into(&jobs, pgx.RowTo[uuid.UUID]))
	if err := s.db.Chores.SendBatch(ctx, &b).Close(); err != nil {
		return false, s.db.TookWrite(fmt.Errorf("freeing gates of earlier runs: %w", err))
	}
	if len(jobs) == 0 {
		return false, nil
	}
	return false, s.releaseAt(ctx, jobs)
}

// CheckGates sets due the runs that wait at gates that are free. It is for a run that was not set due when its gate was
// freed: the run would wait for ever.
func (s *Claims) CheckGates(ctx context.Context) error {
	return s.releaseAt(ctx, nil)
}

// releaseAt sets due the oldest run at each free gate: of the given jobs, or with nil of all.
func (s *Claims) releaseAt(ctx context.Context, jobs []uuid.UUID) error {
	var released pgconn.CommandTag
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(`
		WITH waiting AS MATERIALIZED (
		    SELECT DISTINCT ON (w.job_id) w.job_id, w.run_id
		    FROM punctual.ready w
		    WHERE w.waits = 'gate' AND ($1::uuid[] IS NULL OR w.job_id = ANY($1::uuid[]))
		    ORDER BY w.job_id, w.run_id),
		gates AS MATERIALIZED (
		    SELECT w.run_id, e.active_run
		    FROM waiting w
		    LEFT JOIN punctual.exclusive e ON e.job_id = w.job_id
		    WHERE e.earlier_runs IS NULL),
		free AS MATERIALIZED (
		    SELECT g.run_id
		    FROM gates g
		    LEFT JOIN punctual.runs_of(ARRAY(SELECT active_run FROM gates)) r ON r.id = g.active_run
		    WHERE r.id IS NULL OR r.finished_at IS NOT NULL),
		mine AS MATERIALIZED (
		    SELECT y.run_id
		    FROM punctual.ready y
		    JOIN free f ON f.run_id = y.run_id
		    WHERE y.waits = 'gate'
		    FOR UPDATE OF y SKIP LOCKED)
		UPDATE punctual.ready y
		SET `+dueAgain+`
		FROM mine m
		WHERE y.run_id = m.run_id`, jobs).
		Exec(func(tag pgconn.CommandTag) error {
			released = tag
			return nil
		})
	if err := s.db.Chores.SendBatch(ctx, &b).Close(); err != nil {
		return s.db.TookWrite(fmt.Errorf("looking for runs at gates that are free: %w", err))
	}
	if released.RowsAffected() > 0 {
		s.db.Wake()
	}
	return nil
}
