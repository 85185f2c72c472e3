package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/admit"
	"punctual/store/aside"
	"punctual/store/pg"
)

// A tenant's row in tenant_usage is the lock on all allowances of that tenant. Everything it protects is read in
// statements after the one that took the lock.
const (
	makeUsage = `
INSERT INTO punctual.tenant_usage (tenant)
SELECT id FROM punctual.tenants WHERE id = ANY($1::int[]) ORDER BY id
ON CONFLICT DO NOTHING`
	lockUsageRows = `
SELECT tenant FROM punctual.tenant_usage
WHERE tenant = ANY($1::int[])
ORDER BY tenant
FOR NO KEY UPDATE`
)

// A lost replica may have left runs that, as far as the database knows, are still being sent. Its allowances are free
// again only when those runs have been taken over.
const (
	dropLost    = dropAllLost + ` AND a.tenant = ANY($1::int[]) AND a.replica <> $2`
	dropAllLost = `
DELETE FROM punctual.allowances a
WHERE NOT EXISTS (SELECT FROM punctual.replicas r WHERE r.id = a.replica)
  AND NOT EXISTS (SELECT FROM punctual.claims c WHERE c.replica = a.replica)`
)

// ForgetAllowances removes the allowances of lost replicas. It is for tenants for which no replica draws: a draw
// removes those of its tenants itself.
func (s *Claims) ForgetAllowances(ctx context.Context) error {
	return pg.Wrap("forgetting the allowances of lost replicas", pg.Exec(ctx, s.db.Chores, dropAllLost))
}

// readUsage reads what the tenants whose rows are locked have used, and readShares what each replica has of it.
const (
	readUsage = `
SELECT t.id, coalesce(t.max_concurrent_runs, 0), coalesce(t.max_runs_per_second, 0), u.starts_at, clock_timestamp()
FROM punctual.tenant_usage u
JOIN punctual.tenants t ON t.id = u.tenant
WHERE u.tenant = ANY($1::int[])`
	readShares = `
SELECT tenant, replica, slots, wants, since, asked_at FROM punctual.allowances WHERE tenant = ANY($1::int[])`
)

// answered is a wish and its answer.
type answered struct {
	admit.Wish
	admit.Answered
	at time.Time
}

var (
	usageColumns = pg.Columns[answered]{
		pg.Col("tenant", "integer", func(a answered) int32 { return a.Tenant }),
		pg.Col("starts_at", "timestamptz", func(a answered) *time.Time { return pg.OrNull(a.StartsAt) }),
		pg.Col("held_by", "text", func(a answered) string { return string(a.HeldBy) }),
		pg.Col("held", "interval", func(a answered) time.Duration { return a.Held }),
		pg.Col("at", "timestamptz", func(a answered) time.Time { return a.at }),
	}
	shareColumns = pg.Columns[answered]{
		pg.Col("tenant", "integer", func(a answered) int32 { return a.Tenant }),
		pg.Col("slots", "integer", func(a answered) int32 { return int32(a.Share.Slots) }),
		pg.Col("wants", "integer", func(a answered) int32 { return int32(a.Share.Wants) }),
		pg.Col("since", "timestamptz", func(a answered) time.Time { return a.Share.Since }),
		pg.Col("asked_at", "timestamptz", func(a answered) time.Time { return a.Share.AskedAt }),
	}
)

// The outcome of a draw. Rows that stay as they were are not written.
var (
	writeUsage = `
UPDATE punctual.tenant_usage u
SET starts_at = c.starts_at,
    held_since = CASE WHEN c.held_by = '' OR punctual.held_by(u.held_by, u.held_at) = c.held_by THEN u.held_since
                      ELSE c.at - c.held END,
    held_by = CASE WHEN c.held_by = '' THEN u.held_by ELSE c.held_by END,
    held_at = CASE WHEN c.held_by = '' THEN u.held_at ELSE c.at END
FROM ` + usageColumns.Unnest("c") + `
WHERE u.tenant = c.tenant AND (c.held_by <> '' OR u.starts_at IS DISTINCT FROM c.starts_at)`
	writeShares = `
INSERT INTO punctual.allowances AS a (tenant, replica, slots, wants, since, asked_at)
SELECT c.tenant, ` + shareColumns.Arg(1) + `, c.slots, c.wants, c.since, c.asked_at
FROM ` + shareColumns.Unnest("c") + `
ON CONFLICT (tenant, replica) DO UPDATE
SET slots = excluded.slots, wants = excluded.wants, asked_at = excluded.asked_at, since = excluded.since
WHERE excluded.wants > 0 OR a.wants > 0 OR a.slots <> excluded.slots`
	dropShares = `DELETE FROM punctual.allowances WHERE replica = $1 AND tenant = ANY($2::int[])`
)

// Draw implements scheduler.Store. A tenant of which a row cannot be read or written gets no answer, and keeps no other
// from getting one: it is asked for by itself, a while after.
func (s *Claims) Draw(
	ctx context.Context, replica uuid.UUID, wishes []admit.Wish,
) (allowances []admit.Allowance, err error) {
	wishes = s.failing.without(wishes, time.Now())
	if allowances, err = s.draw(ctx, replica, wishes); !aside.Blames(ctx, err) {
		return allowances, err
	}
	for _, w := range wishes {
		got, err := s.draw(ctx, replica, []admit.Wish{w})
		switch {
		case err == nil:
			allowances = append(allowances, got...)
		case !aside.Blames(ctx, err):
			return allowances, err
		default:
			s.options.Log.Error("drawing on a tenant's limits fails by itself; its runs beyond what it has wait",
				"tenant", w.Tenant, "error", err)
			s.failing.add(w.Tenant, time.Now())
		}
	}
	return allowances, nil
}

// failing are tenants of whose limits nothing can be drawn, each until when it is left out. Safe for concurrent use.
type failing struct {
	mu    sync.Mutex
	until map[int32]time.Time
}

// without leaves out the wishes of tenants that fail, until their time is up.
func (f *failing) without(wishes []admit.Wish, now time.Time) []admit.Wish {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(wishes), func(w admit.Wish) bool { return now.Before(f.until[w.Tenant]) })
}

func (f *failing) add(tenant int32, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = map[int32]time.Time{}
	}
	f.until[tenant] = now.Add(aside.FirstRetry)
}

// draw locks what the tenants have used, lets admit.Usage answer the wishes, and writes the answers. A tenant with a
// row that another transaction has locked for longer gets no answer.
func (s *Claims) draw(
	ctx context.Context, replica uuid.UUID, wishes []admit.Wish,
) (allowances []admit.Allowance, err error) {
	err = s.wary.draw.try(func(wary bool) error {
		return s.onConn(ctx, s.db.Runs, func(conn *pgx.Conn) (err error) {
			lock := s.lockUsage
			if wary {
				lock = s.lockUsageWarily
			}
			tenants := pg.Column(wishes, func(w admit.Wish) int32 { return w.Tenant })
			usages, err := lock(ctx, conn, replica, tenants)
			if err != nil {
				return err
			}
			if wary && len(usages) < len(wishes) {
				s.wary.draw.found()
			}
			allowances, err = answer(ctx, conn, replica, wishes, usages)
			return err
		})
	})
	return allowances, pg.Wrap(fmt.Sprintf("drawing on the limits of %d tenants", len(wishes)), err)
}

// lockUsage begins the transaction, locks what the tenants have used, and reads it.
func (s *Claims) lockUsage(
	ctx context.Context, conn *pgx.Conn, replica uuid.UUID, tenants []int32,
) (usages map[int32]*admit.Usage, err error) {
	var b pgx.Batch
	s.queueBegin(&b, shortly)
	b.Queue(makeUsage, tenants)
	b.Queue(lockUsageRows, tenants)
	usages = queueUsage(&b, replica, tenants)
	return usages, conn.SendBatch(ctx, &b).Close()
}

// queueUsage reads what the tenants have used. The caller has locked their rows in tenant_usage.
func queueUsage(b *pgx.Batch, replica uuid.UUID, tenants []int32) map[int32]*admit.Usage {
	usages := map[int32]*admit.Usage{}
	b.Queue(dropLost, tenants, replica)
	b.Queue(readUsage, tenants).Query(func(rows pgx.Rows) error {
		var u admit.Usage
		var startsAt *time.Time
		return pg.Each(rows, []any{&u.Tenant, &u.Concurrent, &u.PerSecond, &startsAt, &u.At}, func() {
			u.StartsAt = pg.OrZero(startsAt)
			usages[u.Tenant] = new(u)
		})
	})
	b.Queue(readShares, tenants).Query(func(rows pgx.Rows) error {
		var tenant int32
		var of admit.Share
		return pg.Each(rows, []any{&tenant, &of.Replica, &of.Slots, &of.Wants, &of.Since, &of.AskedAt}, func() {
			if u := usages[tenant]; u != nil {
				u.Shares = append(u.Shares, of)
			}
		})
	})
	return usages
}

// answer answers the wishes about tenants whose usage was read, writes the answers, and commits.
func answer(
	ctx context.Context, conn *pgx.Conn, replica uuid.UUID, wishes []admit.Wish, usages map[int32]*admit.Usage,
) (allowances []admit.Allowance, err error) {
	var all, sharing []answered
	var gone []int32
	for _, w := range wishes {
		u := usages[w.Tenant]
		if u == nil {
			continue
		}
		a := answered{w, u.Answer(replica, w), u.At}
		allowances, all = append(allowances, a.Allowance), append(all, a)
		if a.Share == nil {
			gone = append(gone, w.Tenant)
		} else {
			sharing = append(sharing, a)
		}
	}
	var b pgx.Batch
	b.Queue(writeUsage, usageColumns.Args(all)...)
	b.Queue(writeShares, append(shareColumns.Args(sharing), replica)...)
	b.Queue(dropShares, replica, gone)
	b.Queue(`COMMIT`, pg.Prepared{})
	return allowances, conn.SendBatch(ctx, &b).Close()
}

// Statements that lock, by tenant, the rows a draw may write, and pass over rows that other transactions have locked:
// the tenants' rows, for foreign keys, and the rows of usage and of the replicas' allowances. makeUsage comes before
// lockFreeUsage, for tenants without a row in tenant_usage.
const (
	lockTenantsOfUsage = `
SELECT id FROM punctual.tenants
WHERE id = ANY($1::int[])
ORDER BY id
FOR KEY SHARE SKIP LOCKED`
	lockFreeUsage    = lockUsageRows + PassOver
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

// lockUsageWarily is lockUsage for the tenants whose rows are free of other transactions' locks. It leaves out the
// others.
func (s *Claims) lockUsageWarily(
	ctx context.Context, conn *pgx.Conn, replica uuid.UUID, tenants []int32,
) (usages map[int32]*admit.Usage, err error) {
	var free, locked []int32
	var b pgx.Batch
	s.queueBegin(&b, warily)
	b.Queue(lockTenantsOfUsage, tenants).Query(pg.Into(&free, pgx.RowTo[int32]))
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	b = pgx.Batch{}
	b.Queue(makeUsage, free)
	b.Queue(lockFreeUsage, free).Query(pg.Into(&free, pgx.RowTo[int32]))
	b.Queue(findLockedShares, tenants).Query(pg.Into(&locked, pgx.RowTo[int32]))
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	free = slices.DeleteFunc(free, func(tenant int32) bool { return slices.Contains(locked, tenant) })
	b = pgx.Batch{}
	usages = queueUsage(&b, replica, free)
	return usages, conn.SendBatch(ctx, &b).Close()
}
