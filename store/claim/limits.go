package claim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Limits are shared by name: see domain.Limit. A claim of ready runs locks their rows after the gates, and waits for
// none. It holds them until it commits, so what it has read of holders and of waiting runs stays true. All others that
// set waiting runs due lock the limits first, in the order of (tenant, name), and then rows of ready. So they wait for
// claims, but no claim for them.
//
// A finish takes no lock of a limit: it asks for the chore ReleaseLimits once it has committed. A finish that locked
// limits would have to do so before gates, and callbacks know the limits of their run only after they have locked both.

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

var limitKeys = pg.Columns[limitKey]{
	pg.Col("tenant", "integer", func(k limitKey) int32 { return k.Tenant }),
	pg.Col("name", "text", func(k limitKey) string { return k.Name }),
}

// limitsOf are the limits of a job, sorted.
func limitsOf(job *domain.Job) []limitKey {
	return pg.Column(slices.Sorted(slices.Values(job.Limits)), func(name string) limitKey {
		return limitKey{job.Tenant, name}
	})
}

// limits are those that the runs' jobs name. It is a subject.
type limits struct {
	*lockedRuns
	overlaps *overlaps
	found    map[limitKey]*domain.Limit // those that the claim has locked
	busy     map[limitKey]bool          // those that another transaction has locked
	rated    map[limitKey]bool          // those whose rate was used
	touched  map[limitKey]bool          // those that runs have got or wait at
	held     []holder                   // what runs hold that start
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

var lockLimits = `
SELECT l.tenant, l.name
FROM punctual.limits l
JOIN ` + limitKeys.Unnest("u") + ` ON l.tenant = u.tenant AND l.name = u.name
ORDER BY l.tenant, l.name
FOR NO KEY UPDATE OF l`

// readLimits reads limits after they were locked. Of those that wait at a limit it reads the first, as many as a claim
// may start.
var readLimits = `
SELECT l.tenant, l.name, coalesce(l.max_running, 0), coalesce(l.max_starts_per_second, 0),
       greatest(l.starts_at, '1970-01-01'), ARRAY(SELECT punctual.holders_of_limit(l.tenant, l.name)), w.runs, w.lanes
FROM punctual.limits l
JOIN ` + limitKeys.Unnest("u") + ` ON l.tenant = u.tenant AND l.name = u.name
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(y.run_id), '{}') AS runs, coalesce(array_agg(y.priority), '{}') AS lanes
    FROM (SELECT y.run_id, (y.lane & 3)::smallint AS priority
          FROM punctual.ready y
          WHERE y.tenant = l.tenant AND y.waits_on = l.name AND y.waits IN ('turn', 'limit')
            AND (y.waits = 'limit' OR y.due_at > now() - interval '1 s')
          ORDER BY (y.lane & 3) = 3, left(y.run_id::text, 13), y.lane & 3, y.run_id
          LIMIT 200) y) w`

// read locks the limits of the claim's runs and reads them, and has the runs decided about in the order in which they
// wait at limits. It sends nothing if none has limits.
func (l *limits) read(ctx context.Context) error {
	wanted := map[limitKey]bool{}
	for _, r := range l.runs {
		if r.Job != nil && !r.overdue {
			for _, k := range limitsOf(r.Job) {
				wanted[k] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	l.found, l.busy, l.rated, l.touched = map[limitKey]*domain.Limit{}, wanted, map[limitKey]bool{}, map[limitKey]bool{}
	keys := limitKeys.Args(slices.SortedFunc(maps.Keys(wanted), limitKey.compare))
	var mine []limitKey
	var b pgx.Batch
	b.Queue(lockLimits+PassOver, keys...).Query(pg.Into(&mine, pgx.RowToStructByPos[limitKey]))
	b.Queue(readLimits, keys...).Query(func(rows pgx.Rows) error {
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
	if err := l.conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading limits: %w", err)
	}
	for k := range wanted { // a limit that was deleted limits nothing
		l.busy[k] = l.found[k] != nil && !slices.Contains(mine, k)
	}
	slices.SortStableFunc(l.runs, func(a, b *waitingRun) int { return l.turn(a).Compare(l.turn(b)) })
	return nil
}

func (l *limits) turn(r *waitingRun) domain.Turn {
	return domain.Turn{Run: r.RunID, Priority: l.rows[r.RunID].lane & 3}
}

// ofRun returns the limits that a run needs, and whether another transaction has locked one of them.
func (l *limits) ofRun(r *waitingRun) (all domain.Limits, busy bool) {
	for _, k := range limitsOf(r.Job) {
		if busy = busy || l.busy[k]; l.found[k] != nil {
			all = append(all, l.found[k])
		}
	}
	return all, busy
}

// decide lets a run go on if its limits let it start. If not, it waits at one of them, or comes again in a moment.
func (l *limits) decide(r *waitingRun) verdict {
	if len(r.Job.Limits) == 0 {
		return goesOn
	}
	all, busy := l.ofRun(r)
	if busy {
		return again(limitRetry/2 + rand.N(limitRetry)) //nolint:gosec // no secret
	}
	t := l.turn(r)
	at := all.Full(t, l.now, r.Fence != 0)
	if at == nil {
		return goesOn
	}
	all.Wait(t, at, l.now, r.DueAt)
	l.note(r, all)
	l.overlaps.waitsNext(r)
	return verdict{fate: waits, wait: domain.WaitLimit, on: at.Name}
}

// take gives a run that starts its limits.
func (l *limits) take(r *waitingRun) {
	if len(r.Job.Limits) == 0 {
		return
	}
	all, _ := l.ofRun(r)
	all.Hold(l.turn(r), l.now, r.Fence != 0)
	l.note(r, all)
	r.Bounded = slices.ContainsFunc(all, func(of *domain.Limit) bool { return of.MaxRunning > 0 })
}

// pass gives up the turn of a run that leaves or waits for something else, so that those behind it may start now.
func (l *limits) pass(r *waitingRun, v verdict) {
	if r.Job != nil && (v.fate == leaves || v.fate == waits && v.wait != domain.WaitLimit) {
		all, _ := l.ofRun(r)
		all.Pass(l.turn(r))
	}
}

// note collects what has become of a run's limits.
func (l *limits) note(r *waitingRun, all domain.Limits) {
	for _, of := range all {
		k := limitKey{r.Job.Tenant, of.Name}
		l.touched[k] = true
		if of.Holders[r.RunID] {
			l.held = append(l.held, holder{k, r.RunID})
			l.rated[k] = l.rated[k] || of.PerSecond > 0
		}
	}
}

// roomy are the limits that runs have got or wait at, without those that are full now.
func (l *limits) roomy() (keys []limitKey) {
	for k := range l.touched {
		if !l.found[k].Taken() {
			keys = append(keys, k)
		}
	}
	return keys
}

// write queues what was decided about limits. What they then have room for is set due at the end of the transaction.
func (l *limits) write(_ context.Context, b *pgx.Batch) error {
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
	return nil
}

// queueRoom sets due what the limits of the claim have room for, once it has written all else.
func (l *limits) queueRoom(b *pgx.Batch) {
	if roomy := l.roomy(); len(roomy) > 0 {
		queueRelease(b, roomy)
	}
}
