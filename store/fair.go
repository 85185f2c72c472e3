package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// fairly reports whether the quotas are for tenants.
func fairly(quotas []scheduler.Quota) bool { return len(quotas) > 0 && quotas[0].Tenant != 0 }

// quotaArguments are those of a claim's selection, which is planned once.
func quotaArguments(c scheduler.Claim) []any {
	var queues []int16
	var slots, tenants []int32
	for _, q := range c.Quotas {
		queues, slots, tenants = append(queues, q.Queue), append(slots, int32(q.Slots)), append(tenants, q.Tenant)
	}
	switch {
	case len(c.Except) > 0:
		return []any{prepared{}, queues, slots, c.Except, c.Since}
	case fairly(c.Quotas):
		return []any{prepared{}, queues, slots, tenants}
	}
	return []any{prepared{}, queues, slots}
}

// place is where a claimed row came from.
type place struct {
	queue  int16
	tenant int32
}

// usedUp reports whether there may be more than the quotas let through: as many rows as one of them allows were found.
func usedUp[T any](quotas []scheduler.Quota, rows []T, at func(T) place) bool {
	left := make(map[place]int, len(quotas))
	for _, q := range quotas {
		left[place{q.Queue, q.Tenant}] = q.Slots
	}
	anybodys := !fairly(quotas)
	for _, r := range rows {
		p := at(r)
		if anybodys {
			p.tenant = 0
		}
		if left[p]--; left[p] == 0 {
			return true
		}
	}
	return false
}

// contendersWith probes each tenant's part of an index once per lane: with a thousand tenants some milliseconds.
func contendersWith(oldest func(lane string) string) string {
	return `
SELECT q.queue, t.id, t.weight, min(d.due)
FROM unnest((SELECT $1::smallint[])) AS q(queue) CROSS JOIN generate_series(0, 2) AS priority CROSS JOIN punctual.tenants t
CROSS JOIN LATERAL (` + oldest("(q.queue * 4 + priority)::smallint") + ` LIMIT 1) d
GROUP BY 1, 2, 3`
}

var (
	selectContendersOfCurrent = contendersOfSlots("now() - interval '5 s'", "now()")
	selectContendersOfOlder   = contendersOfSlots("'-infinity'", "now() - interval '5 s'")
	selectContendersOfReady   = contendersWith(func(lane string) string {
		return `SELECT due_at AS due FROM punctual.ready WHERE ` + ofTenant("t.id", "due_at", "'-infinity'", "now()")(lane)
	})
)

func contendersOfSlots(after, until string) string {
	return contendersWith(func(lane string) string {
		return `SELECT next_run_at AS due FROM punctual.schedules WHERE enabled AND ` + ofTenant("t.id", "next_run_at", after, until)(lane)
	})
}

// DueTenants implements scheduler.Store.
func (s *Store) DueTenants(ctx context.Context, queues []int16, older bool) ([]scheduler.Contender, error) {
	if older {
		return s.contenders(ctx, selectContendersOfOlder, queues)
	}
	return s.contenders(ctx, selectContendersOfCurrent, queues)
}

// ReadyTenants implements scheduler.Store.
func (s *Store) ReadyTenants(ctx context.Context, queues []int16) ([]scheduler.Contender, error) {
	return s.contenders(ctx, selectContendersOfReady, queues)
}

func (s *Store) contenders(ctx context.Context, sql string, queues []int16) ([]scheduler.Contender, error) {
	ctx = forRuns.in(ctx)
	var found []scheduler.Contender
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(sql, prepared{}, queues).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[scheduler.Contender])
		return err
	})
	if err := s.conns(ctx).SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("looking for the tenants that wait: %w", err)
	}
	return found, nil
}
