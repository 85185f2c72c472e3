package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// selectLimits reads all limits as one row of arrays, so that a heartbeat can read it together with its other facts.
const selectLimits = `
SELECT coalesce(array_agg(id ORDER BY id), '{}') AS tenants,
       coalesce(array_agg(name ORDER BY id), '{}') AS names,
       coalesce(array_agg(coalesce(max_concurrent_runs, 0) ORDER BY id), '{}') AS concurrent,
       coalesce(array_agg(coalesce(max_runs_per_second, 0) ORDER BY id), '{}') AS per_second,
       coalesce(array_agg(frozen_at IS NOT NULL ORDER BY id), '{}') AS frozen
FROM punctual.tenants
WHERE max_concurrent_runs IS NOT NULL OR max_runs_per_second IS NOT NULL OR frozen_at IS NOT NULL`

// limitRows is the result of selectLimits.
type limitRows struct {
	tenants, concurrent, perSecond []int32
	names                          []string
	frozen                         []bool
}

func (r *limitRows) targets() []any {
	return []any{&r.tenants, &r.names, &r.concurrent, &r.perSecond, &r.frozen}
}

func (r *limitRows) all() []scheduler.TenantLimits {
	limits := make([]scheduler.TenantLimits, len(r.tenants))
	for i, id := range r.tenants {
		limits[i] = scheduler.TenantLimits{
			Tenant: id, Name: r.names[i],
			Concurrent: int(r.concurrent[i]), PerSecond: int(r.perSecond[i]), Frozen: r.frozen[i],
		}
	}
	return limits
}

// A tenant's row in tenant_usage is the lock on all allowances of that tenant. Everything it protects is read in
// statements after the one that took the lock.
const (
	makeUsage = `
INSERT INTO punctual.tenant_usage (tenant)
SELECT id FROM punctual.tenants WHERE id = ANY($1::int[]) ORDER BY id
ON CONFLICT DO NOTHING`
	lockUsage = `
SELECT FROM punctual.tenant_usage
WHERE tenant = ANY($1::int[])
ORDER BY tenant
FOR NO KEY UPDATE`
)

// A lost replica may have left runs that, as far as the database knows, are still being sent. Its allowances are free
// again only when those runs have been taken over.
const (
	dropLost = `DELETE FROM punctual.allowances a WHERE a.tenant = ANY($1::int[]) AND a.replica <> $2 AND ` + isLost
	isLost   = `NOT EXISTS (SELECT FROM punctual.replicas r WHERE r.id = a.replica)
	AND NOT EXISTS (SELECT FROM punctual.claims c WHERE c.replica = a.replica)`
)

// ForgetAllowances removes the allowances of lost replicas. It is for tenants for which no replica draws: a draw
// removes those of its tenants itself.
func (s *Claims) ForgetAllowances(ctx context.Context) error {
	_, err := s.db.Conns(ctx).Exec(ctx, `DELETE FROM punctual.allowances a WHERE `+isLost)
	return pg.Wrap("forgetting the allowances of lost replicas", err)
}

// draw gives a replica its part of the tenants' limits.
//
// Slots (max_concurrent_runs): the replica gets as many as it wishes, of those that the other replicas do not have.
// When another replica has work to do and less than an equal share, this replica has no more than an equal share. When
// a tenant has fewer slots than replicas, a replica gives its slot up after two seconds, and the replica that has
// waited longest gets the next one. Slots that the replica's runs in flight hold stay noted for it.
//
// Starts (max_runs_per_second): by the generic cell rate algorithm. Each start uses up its part of a second. starts_at
// is the instant up to which time is used up: never ahead of now, even when the clock was set back, and never further
// behind than a burst.
const draw = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
wish AS (
    SELECT w.*, t.max_concurrent_runs AS most, t.max_runs_per_second AS rate,
           least(
               greatest(
                   u.starts_at,
                   c.at - greatest(1, t.max_runs_per_second / 2.0) / t.max_runs_per_second * interval '1 s'),
               c.at) AS starts_at,
           c.at
    FROM unnest($1::int[], $3::int[], $4::int[], $5::int[], $6::text[], $7::interval[])
         AS w(tenant, keep, slots, starts, held_by, held)
    JOIN punctual.tenants t ON t.id = w.tenant
    JOIN punctual.tenant_usage u ON u.tenant = w.tenant
    CROSS JOIN clock c),
shared AS (
    SELECT w.*, o.slots AS others, w.most / (1 + o.n) AS share, m.since > w.at - interval '2 s' AS keeps,
           EXISTS (
               SELECT FROM punctual.allowances a
               WHERE a.tenant = w.tenant AND a.replica <> $2
                 AND a.wants > 0
                 AND a.slots < greatest(1, w.most / (1 + o.n))) AS scarce,
           NOT EXISTS (
               SELECT FROM punctual.allowances a
               WHERE a.tenant = w.tenant AND a.replica <> $2
                 AND a.wants > 0
                 AND a.slots = 0
                 AND a.asked_at > w.at - interval '1 s'
                 AND a.since < CASE WHEN m.slots = 0 THEN m.since ELSE w.at END) AS next
    FROM wish w
    LEFT JOIN punctual.allowances m ON m.tenant = w.tenant AND m.replica = $2
    CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(sum(a.slots), 0) AS slots
        FROM punctual.allowances a
        WHERE a.tenant = w.tenant AND a.replica <> $2) o),
given AS (
    SELECT s.*,
           CASE WHEN s.most IS NULL THEN 0
                ELSE greatest(0, least(s.slots, s.most - s.others,
                    CASE WHEN NOT s.scarce THEN NULL
                         WHEN s.keep = 0 AND s.next THEN greatest(s.share, 1)
                         WHEN s.share = 0 AND s.keeps THEN s.keep
                         ELSE s.share END)) END AS gets,
           extract(epoch FROM s.at - s.starts_at)::float8 * s.rate AS cells
    FROM shared s),
counted AS (
    SELECT g.*,
           CASE WHEN g.most IS NULL THEN 0 ELSE greatest(g.gets, g.keep) END AS noted,
           CASE WHEN g.rate IS NULL OR g.gets <= 0 AND g.most IS NOT NULL THEN 0
                ELSE least(g.starts, floor(g.cells + 0.000001)) END AS starts_now
    FROM given g),
used AS (
    UPDATE punctual.tenant_usage u
    SET starts_at = CASE WHEN c.starts_now > 0 OR u.starts_at > c.at
                         THEN c.starts_at + c.starts_now / c.rate * interval '1 s'
                         ELSE u.starts_at END,
        held_since = CASE WHEN c.held_by = '' OR punctual.held_by(u.held_by, u.held_at) = c.held_by THEN u.held_since
                          ELSE c.at - c.held END,
        held_by = CASE WHEN c.held_by = '' THEN u.held_by ELSE c.held_by END,
        held_at = CASE WHEN c.held_by = '' THEN u.held_at ELSE c.at END
    FROM counted c
    WHERE u.tenant = c.tenant
      AND (c.starts_now > 0 OR u.starts_at > c.at OR c.held_by <> '')),
put AS (
    INSERT INTO punctual.allowances AS a (tenant, replica, slots, wants, since, asked_at)
    SELECT c.tenant, $2, c.noted, greatest(0, c.slots - c.gets), c.at, c.at
    FROM counted c
    WHERE c.most IS NOT NULL AND (c.noted > 0 OR c.slots > c.gets)
    ON CONFLICT (tenant, replica) DO UPDATE
    SET slots = excluded.slots, wants = excluded.wants, asked_at = excluded.asked_at,
        since = CASE WHEN (a.slots > 0) = (excluded.slots > 0) THEN a.since ELSE excluded.since END
    WHERE excluded.wants > 0 OR a.wants > 0 OR a.slots <> excluded.slots),
gone AS (
    DELETE FROM punctual.allowances a
    USING counted c
    WHERE a.tenant = c.tenant AND a.replica = $2
      AND (c.most IS NULL OR c.noted = 0 AND c.slots <= c.gets))
SELECT c.tenant, coalesce(c.most, 0), coalesce(c.rate, 0), c.gets::int, c.noted::int, c.starts_now::int,
       CASE WHEN c.rate IS NULL THEN interval '0'
            ELSE greatest(0, 1 - (c.cells - c.starts_now)) / c.rate * interval '1 s' END
FROM counted c`

// Draw implements scheduler.Store. It is one round trip and thereby one transaction. Without pg.ByIndex Postgres would
// compile the plan of so long a statement from a few hundred tenants on, which takes 0.7 s. A tenant with a row that
// another transaction has locked gets no answer.
func (s *Claims) Draw(
	ctx context.Context, replica uuid.UUID, wishes []scheduler.Wish,
) (allowances []scheduler.Allowance, err error) {
	ctx = pg.Runs.In(ctx)
	tenants := tenantsOf(wishes)
	err = s.wary.draw.try(func(wary bool) (err error) {
		if wary {
			allowances, err = s.drawWarily(ctx, replica, wishes)
			return err
		}
		allowances = nil // each try begins anew
		var b pgx.Batch
		b.Queue(shortly)
		b.Queue(makeUsage, tenants)
		b.Queue(lockUsage, tenants)
		queueDraw(&b, replica, wishes, &allowances)
		return s.db.Conns(ctx).SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return nil, s.db.TookWrite(fmt.Errorf("drawing on the limits of %d tenants: %w", len(wishes), err))
	}
	return allowances, nil
}

func tenantsOf(wishes []scheduler.Wish) (tenants []int32) {
	for _, w := range wishes {
		tenants = append(tenants, w.Tenant)
	}
	return tenants
}

// queueDraw queues draw. The caller has locked the tenants' rows in tenant_usage.
func queueDraw(b *pgx.Batch, replica uuid.UUID, wishes []scheduler.Wish, allowances *[]scheduler.Allowance) {
	tenants := tenantsOf(wishes)
	var keep, slots, starts []int32
	var heldBy []string
	var held []time.Duration
	for _, w := range wishes {
		keep = append(keep, int32(w.Keep))
		slots, starts = append(slots, int32(w.Slots)), append(starts, int32(w.Starts))
		heldBy, held = append(heldBy, string(w.HeldBy)), append(held, w.Held)
	}
	b.Queue(dropLost, tenants, replica)
	b.Queue(draw, tenants, replica, keep, slots, starts, heldBy, held).Query(func(rows pgx.Rows) (err error) {
		*allowances, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a scheduler.Allowance, err error) {
			return a, row.Scan(&a.Tenant, &a.Concurrent, &a.PerSecond, &a.Slots, &a.Noted, &a.Starts, &a.Wait)
		})
		return err
	})
}

// Statements that lock, by tenant, the rows a draw may write, and pass over rows that other transactions have locked:
// the tenants' rows, for foreign keys, and the rows of usage and of the replicas' allowances. makeUsage comes before
// lockUsageWarily, for tenants without a row in tenant_usage.
const (
	lockTenantsOfUsage = `
SELECT id FROM punctual.tenants
WHERE id = ANY($1::int[])
ORDER BY id
FOR KEY SHARE SKIP LOCKED`
	lockUsageWarily = `
SELECT tenant FROM punctual.tenant_usage
WHERE tenant = ANY($1::int[])
ORDER BY tenant
FOR NO KEY UPDATE SKIP LOCKED`
	findLockedShares = `
WITH free AS MATERIALIZED (
    SELECT tenant, replica
    FROM punctual.allowances
    WHERE tenant = ANY($1::int[])
    ORDER BY tenant, replica
    FOR UPDATE SKIP LOCKED)
SELECT tenant
FROM punctual.allowances a
WHERE tenant = ANY($1::int[])
  AND NOT EXISTS (SELECT FROM free f WHERE f.tenant = a.tenant AND f.replica = a.replica)`
)

// drawWarily draws on the limits of the tenants whose rows are free of other transactions' locks. The other tenants get
// no answer.
func (s *Claims) drawWarily(
	ctx context.Context, replica uuid.UUID, wishes []scheduler.Wish,
) (allowances []scheduler.Allowance, err error) {
	err = s.onConn(ctx, func(conn *pgx.Conn) error {
		var free, locked []int32
		collect := func(into *[]int32) func(pgx.Rows) error {
			return func(rows pgx.Rows) (err error) {
				*into, err = pgx.CollectRows(rows, pgx.RowTo[int32])
				return err
			}
		}
		tenants := tenantsOf(wishes)
		var b pgx.Batch
		s.queueBegin(&b, true)
		b.Queue(lockTenantsOfUsage, tenants).Query(collect(&free))
		if err := conn.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		b = pgx.Batch{}
		b.Queue(makeUsage, free)
		b.Queue(lockUsageWarily, free).Query(collect(&free))
		b.Queue(findLockedShares, tenants).Query(collect(&locked))
		if err := conn.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		some := slices.DeleteFunc(slices.Clone(wishes), func(w scheduler.Wish) bool {
			return !slices.Contains(free, w.Tenant) || slices.Contains(locked, w.Tenant)
		})
		if len(some) < len(wishes) {
			s.wary.draw.found()
		}
		b = pgx.Batch{}
		queueDraw(&b, replica, some, &allowances)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, &b).Close()
	})
	return allowances, err
}
