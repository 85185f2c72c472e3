package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/pg"
)

// Limits are shared by name: see domain.Limit. A claim of ready runs locks their rows after the gates, and waits for
// none. It holds them until it commits, so what it has read of holders and of waiting runs stays true. All others that
// set waiting runs due lock the limits first, in the order of (tenant, name), and then rows of ready. So they wait for
// claims, but no claim for them.
//
// A finish takes no lock of a limit: it asks for the chore ReleaseLimits once it has committed. A finish that locked
// limits would have to do so before gates, and callbacks know the limits of their run only after they have locked both.

// ChoreLimits is the name of the chore that sets due what waits at limits.
const ChoreLimits = "limits"

// limitRetry is about how long a run is put off when another transaction has locked one of its limits.
const limitRetry = 20 * time.Millisecond

// limitKey names a limit.
type limitKey struct {
	Tenant int32
	Name   string
}

func (k limitKey) compare(o limitKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Name, o.Name))
}

// columns returns keys, sorted, as columns.
func columns(keys []limitKey) (tenants []int32, names []string) {
	slices.SortFunc(keys, limitKey.compare)
	return pg.Column(keys, func(k limitKey) int32 { return k.Tenant }),
		pg.Column(keys, func(k limitKey) string { return k.Name })
}

// limitsOf are the limits of a job, sorted.
func limitsOf(job *domain.Job) []limitKey {
	return pg.Column(slices.Sorted(slices.Values(job.Limits)), func(name string) limitKey {
		return limitKey{job.Tenant, name}
	})
}

// readyLimits are the limits that a claim of ready runs decides about.
type readyLimits struct {
	found   map[limitKey]*domain.Limit // those that it has locked
	busy    map[limitKey]bool          // those that another transaction has locked
	rated   map[limitKey]bool          // those whose rate was used
	touched map[limitKey]bool          // those that runs have got or wait at
	held    []holder                   // what runs hold that start
}

// holder is a run that holds a limit.
type holder struct {
	limitKey
	run uuid.UUID
}

var limitHolders = pg.Columns[holder]{
	pg.Col("tenant", "integer", func(h holder) int32 { return h.Tenant }),
	pg.Col("name", "text", func(h holder) string { return h.Name }),
	pg.Col("run_id", "uuid", func(h holder) uuid.UUID { return h.run }),
}

const lockLimits = `
SELECT l.tenant, l.name
FROM punctual.limits l
JOIN unnest($1::int[], $2::text[]) AS u(tenant, name) ON l.tenant = u.tenant AND l.name = u.name
ORDER BY l.tenant, l.name
FOR NO KEY UPDATE OF l`

// readLimits reads limits after they were locked. Of those that wait at a limit it reads the first, as many as a claim
// may start.
const readLimits = `
SELECT l.tenant, l.name, coalesce(l.max_running, 0), coalesce(l.max_starts_per_second, 0),
       greatest(l.starts_at, '1970-01-01'), ARRAY(SELECT punctual.holders_of_limit(l.tenant, l.name)), w.runs, w.lanes
FROM punctual.limits l
JOIN unnest($1::int[], $2::text[]) AS u(tenant, name) ON l.tenant = u.tenant AND l.name = u.name
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(y.run_id), '{}') AS runs, coalesce(array_agg(y.priority), '{}') AS lanes
    FROM (SELECT y.run_id, (y.lane & 3)::smallint AS priority
          FROM punctual.ready y
          WHERE y.tenant = l.tenant AND y.waits_on = l.name AND y.waits IN ('turn', 'limit')
            AND (y.waits = 'limit' OR y.due_at > now() - interval '1 s')
          ORDER BY (y.lane & 3) = 3, left(y.run_id::text, 13), y.lane & 3, y.run_id
          LIMIT 200) y) w`

// readLimits locks the limits of the claim's runs and reads them. It sends nothing if none has limits.
func (c *readyClaim) readLimits(ctx context.Context) error {
	wanted := map[limitKey]bool{}
	for _, w := range c.waiting {
		if job := c.found.Job(w.key); job != nil && !w.overdue {
			for _, k := range limitsOf(job) {
				wanted[k] = true
			}
		}
	}
	l := &c.limits
	*l = readyLimits{}
	if len(wanted) == 0 {
		return nil
	}
	l.found, l.busy, l.rated, l.touched = map[limitKey]*domain.Limit{}, wanted, map[limitKey]bool{}, map[limitKey]bool{}
	tenants, names := columns(slices.Collect(maps.Keys(wanted)))
	var mine []limitKey
	var b pgx.Batch
	b.Queue(lockLimits+PassOver, tenants, names).Query(pg.Into(&mine, pgx.RowToStructByPos[limitKey]))
	b.Queue(readLimits, tenants, names).Query(func(rows pgx.Rows) error {
		var k limitKey
		var read domain.Limit
		var holders, runs []uuid.UUID
		var priorities []int16
		return pg.Each(rows, []any{
			&k.Tenant, &k.Name, &read.MaxRunning, &read.PerSecond, &read.StartsAt, &holders, &runs, &priorities,
		}, func() {
			of := read
			of.Name, of.Holders = k.Name, map[uuid.UUID]bool{}
			for _, run := range holders {
				of.Holders[run] = true
			}
			for i, run := range runs {
				of.Waiting = append(of.Waiting, domain.Turn{Run: run, Priority: priorities[i]})
			}
			l.found[k] = &of
		})
	})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading limits: %w", err)
	}
	for k := range wanted { // a limit that was deleted limits nothing
		l.busy[k] = l.found[k] != nil && !slices.Contains(mine, k)
	}
	slices.SortStableFunc(c.waiting, func(a, b waitingRun) int { return c.turn(a).Compare(c.turn(b)) })
	return nil
}

func (c *readyClaim) turn(w waitingRun) domain.Turn {
	return domain.Turn{Run: w.RunID, Priority: c.lanes[w.RunID] & 3}
}

// ofRun returns the limits that a run needs, and whether another transaction has locked one of them.
func (l *readyLimits) ofRun(job *domain.Job) (limits domain.Limits, busy bool) {
	for _, k := range limitsOf(job) {
		if busy = busy || l.busy[k]; l.found[k] != nil {
			limits = append(limits, l.found[k])
		}
	}
	return limits, busy
}

// mayStart reports whether a run's limits let it start. If not, it waits at one of them, or comes again in a moment.
func (c *readyClaim) mayStart(w waitingRun, job *domain.Job) bool {
	limits, busy := c.limits.ofRun(job)
	if busy {
		c.putOff(w.RunID, limitRetry/2+rand.N(limitRetry)) //nolint:gosec // no secret
		return false
	}
	t := c.turn(w)
	at := limits.Full(t, c.now, w.Fence != 0)
	if at == nil {
		return true
	}
	limits.Wait(t, at, c.now, w.DueAt)
	c.limits.note(job.Tenant, w, limits)
	c.park(w.RunID, domain.WaitLimit, at.Name)
	c.waitsUngated(w)
	return false
}

// hold gives a run that starts its limits. It reports whether one of them bounds how many run.
func (c *readyClaim) hold(w waitingRun, job *domain.Job) (bounded bool) {
	limits, _ := c.limits.ofRun(job)
	limits.Hold(c.turn(w), c.now, w.Fence != 0)
	c.limits.note(job.Tenant, w, limits)
	return slices.ContainsFunc(limits, func(l *domain.Limit) bool { return l.MaxRunning > 0 })
}

// note collects what has become of a run's limits.
func (l *readyLimits) note(tenant int32, w waitingRun, limits domain.Limits) {
	for _, of := range limits {
		k := limitKey{tenant, of.Name}
		l.touched[k] = true
		if of.Holders[w.RunID] {
			l.held = append(l.held, holder{k, w.RunID})
			l.rated[k] = l.rated[k] || of.PerSecond > 0
		}
	}
}

// roomy are the limits that runs have got or wait at, without those that are full now.
func (l *readyLimits) roomy() (keys []limitKey) {
	for k := range l.touched {
		if !l.found[k].Taken() {
			keys = append(keys, k)
		}
	}
	return keys
}

// queue queues what was decided about limits. What they then have room for is set due at the end of the transaction.
func (l *readyLimits) queue(b *pgx.Batch) {
	for k, rated := range l.rated {
		if rated {
			b.Queue(`UPDATE punctual.limits SET starts_at = $3 WHERE tenant = $1 AND name = $2`,
				k.Tenant, k.Name, l.found[k].StartsAt)
		}
	}
	if len(l.held) > 0 {
		b.Queue(`
			INSERT INTO punctual.limit_holders (`+limitHolders.Names()+`)
			SELECT * FROM `+limitHolders.Unnest("u")+`
			ON CONFLICT DO NOTHING`, limitHolders.Args(l.held)...)
	}
}

// queueRelease sets due what locked limits have room for. It comes after all that the transaction does to runs.
func queueRelease(b *pgx.Batch, keys []limitKey) {
	tenants, names := columns(keys)
	b.Queue(`
		WITH next AS MATERIALIZED (
		    SELECT w.run_id, greatest(now(), l.starts_at + w.n * l.apart) AS due
		    FROM (SELECT l.tenant, l.name, punctual.room_at_limit(l) AS room, l.starts_at,
		                 coalesce(1000000 / l.max_starts_per_second, 0) * interval '1 microsecond' AS apart
		          FROM punctual.limits l
		          JOIN unnest($1::int[], $2::text[]) AS u(tenant, name) ON l.tenant = u.tenant AND l.name = u.name
		          OFFSET 0) l
		    CROSS JOIN LATERAL (
		        SELECT y.run_id, row_number() OVER () - 1 AS n
		        FROM (SELECT y.run_id
		              FROM punctual.ready y
		              WHERE y.tenant = l.tenant AND y.waits = 'limit' AND y.waits_on = l.name
		              ORDER BY (y.lane & 3) = 3, left(y.run_id::text, 13), y.lane & 3, y.run_id
		              LIMIT greatest(l.room, 0)) y) w
		    WHERE l.room > 0),
		mine AS MATERIALIZED (
		    SELECT y.run_id
		    FROM punctual.ready y
		    JOIN next n ON n.run_id = y.run_id
		    WHERE y.waits = 'limit'
		    FOR UPDATE OF y SKIP LOCKED)
		UPDATE punctual.ready y
		SET waits = 'turn', due_at = greatest(n.due, y.due_at)
		FROM next n
		JOIN mine m ON m.run_id = n.run_id
		WHERE y.run_id = n.run_id`, tenants, names)
}

// limitsDue are the limits of which runs are holders that have ended, and those with room at which a run waits.
const limitsDue = `
SELECT h.tenant, h.name
FROM punctual.limit_holders h
WHERE h.run_id <> ALL(ARRAY(
    SELECT r.id FROM punctual.runs_of(ARRAY(SELECT a.run_id FROM punctual.limit_holders a)) r
    WHERE r.finished_at IS NULL))
UNION
SELECT l.tenant, l.name
FROM punctual.limits l
WHERE EXISTS (SELECT FROM punctual.ready y
              WHERE y.tenant = l.tenant AND y.waits = 'limit' AND y.waits_on = l.name)
  AND punctual.room_at_limit(l) > 0`

// LimitsDue is true while ReleaseLimits has work.
const LimitsDue = `EXISTS (` + limitsDue + `)`

// ReleaseLimits takes limits back from runs that have ended, and sets due what there is room for. It is asked for once
// a run with limits has ended. The heartbeat asks for it too, for runs that were cancelled or lost with their replica.
func (s *Claims) ReleaseLimits(ctx context.Context) (left bool, err error) {
	limited, cancel := context.WithTimeout(ctx, aside.Whole)
	keys, err := pg.All(limited, s.db.Chores, pgx.RowToStructByPos[limitKey], limitsDue)
	cancel()
	if aside.Blames(ctx, err) { // a run of one of them cannot be read
		keys, err = pg.All(ctx, s.db.Chores, pgx.RowToStructByPos[limitKey],
			`SELECT tenant, name FROM punctual.limits ORDER BY tenant, name`)
	}
	if err != nil || len(keys) == 0 {
		return false, pg.Wrap("looking for limits with room", err)
	}
	failed, err := aside.Apart(ctx, keys, func(ctx context.Context, keys []limitKey) error {
		return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			tx.Wake()
			return release(ctx, tx, keys)
		})
	})
	for _, f := range failed { // nothing to set aside: the runs that wait at it are looked at again after a while
		err = errors.Join(err, fmt.Errorf("setting due what waits at limit %s: %w", f.Item.Name, f.Err))
	}
	return false, err
}

// ReleaseLimit is ReleaseLimits for one limit that a transaction has changed.
func ReleaseLimit(ctx context.Context, tx *pg.Tx, tenant int32, name string) error {
	tx.Wake()
	return release(ctx, tx, []limitKey{{tenant, name}})
}

// Unlimit sets due all runs that wait at a limit which a transaction has deleted.
func Unlimit(ctx context.Context, tx *pg.Tx, tenant int32, name string) error {
	tx.Wake()
	return pg.Wrap("setting due what waited at a limit", pg.Exec(ctx, tx, `
		UPDATE punctual.ready y
		SET waits = 'turn', waits_on = NULL, due_at = greatest(now(), y.due_at)
		WHERE y.tenant = $1 AND y.waits IN ('turn', 'limit') AND y.waits_on = $2`, tenant, name))
}

func release(ctx context.Context, q pg.Batcher, keys []limitKey) error {
	tenants, names := columns(keys)
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(lockLimits, tenants, names)
	b.Queue(`
		DELETE FROM punctual.limit_holders h
		USING (SELECT u.tenant, u.name, ARRAY(SELECT punctual.holders_of_limit(u.tenant, u.name)) AS alive
		       FROM unnest($1::int[], $2::text[]) AS u(tenant, name) OFFSET 0) l
		WHERE h.tenant = l.tenant AND h.name = l.name AND h.run_id <> ALL(l.alive)`, tenants, names)
	queueRelease(&b, keys)
	return pg.Wrap("setting due what waits at limits", q.SendBatch(ctx, &b).Close())
}

// limitsFollowing asks for ReleaseLimits if a run that ends may have to give limits back. It implements Following.
type limitsFollowing struct {
	Nothing
	freed bool
}

// QueueEnds implements Following.
func (f *limitsFollowing) QueueEnds(_ *pgx.Batch, outcomes []domain.Outcome, _ Day) {
	f.freed = slices.ContainsFunc(outcomes, func(o domain.Outcome) bool {
		return len(o.Job.Limits) > 0 && o.Verdict != domain.Await
	})
}

// Asks implements Following.
func (f *limitsFollowing) Asks() []string {
	if f.freed {
		return []string{ChoreLimits}
	}
	return nil
}

// QueueLimits notes which limits the current definition of a job names. The job's row must exist by then.
func QueueLimits(b *pgx.Batch, tenant int32, job uuid.UUID, names []string) {
	if len(names) > 0 {
		b.Queue(`
			INSERT INTO punctual.job_limits (job_id, tenant, name)
			SELECT $1, $2, name FROM unnest($3::text[]) AS n(name) ORDER BY name`, job, tenant, names)
	}
}

// QueueForgetLimits notes that a job names no limits.
func QueueForgetLimits(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`DELETE FROM punctual.job_limits WHERE job_id = $1`, job)
}
