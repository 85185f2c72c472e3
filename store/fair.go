package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// What a claim selects by: a quota for each queue, or one for each tenant in a queue.
const (
	queueQuotas  = `unnest((SELECT $1::smallint[]), (SELECT $2::int[])) AS q(queue, slots)`
	tenantQuotas = `unnest((SELECT $1::smallint[]), (SELECT $2::int[]), (SELECT $3::int[])) AS q(queue, slots, tenant)`
	ofTenant     = ` AND tenant = q.tenant`
)

// fairly reports whether the quotas are for tenants.
func fairly(quotas []scheduler.Quota) bool { return len(quotas) > 0 && quotas[0].Tenant != 0 }

// quotaArguments are those of a selection by quotas, which is planned once.
func quotaArguments(quotas []scheduler.Quota) []any {
	var queues []int16
	var slots, tenants []int32
	for _, q := range quotas {
		queues, slots, tenants = append(queues, q.Queue), append(slots, int32(q.Slots)), append(tenants, q.Tenant)
	}
	if fairly(quotas) {
		return []any{prepared{}, queues, slots, tenants}
	}
	return []any{prepared{}, queues, slots}
}

// place is where a claimed row came from.
type place struct {
	queue  int16
	tenant int32
}

// usedUp reports whether there may be more than the quotas let through: as many rows as they allow were found,
// or as many of a tenant as its quota allows.
func usedUp[T any](quotas []scheduler.Quota, rows []T, at func(T) place) bool {
	left := make(map[place]int, len(quotas))
	total := 0
	for _, q := range quotas {
		left[place{q.Queue, q.Tenant}] = q.Slots
		total += q.Slots
	}
	if len(rows) >= total {
		return true
	}
	if !fairly(quotas) {
		return false
	}
	for _, r := range rows {
		if left[at(r)]--; left[at(r)] == 0 {
			return true
		}
	}
	return false
}

// selectContenders probes each tenant's part of an index once per lane: with a thousand tenants some milliseconds.
const selectContenders = `
SELECT q.queue, t.id, t.weight, min(d.due)
FROM unnest($1::smallint[]) AS q(queue) CROSS JOIN generate_series(0, 2) AS priority CROSS JOIN punctual.tenants t
CROSS JOIN LATERAL (%s LIMIT 1) d
GROUP BY 1, 2, 3`

var (
	selectContendersOfReady = fmt.Sprintf(selectContenders, `SELECT due_at AS due FROM punctual.ready
		WHERE lane = (q.queue * 4 + priority)::smallint AND tenant = t.id AND due_at <= now() ORDER BY due_at`)
	selectContendersOfCurrent = fmt.Sprintf(selectContenders, fmt.Sprintf(dueOfTenant, isCurrent))
	selectContendersOfOlder   = fmt.Sprintf(selectContenders, fmt.Sprintf(dueOfTenant, isOlder))
)

const dueOfTenant = `SELECT next_run_at AS due FROM punctual.schedules
		WHERE enabled AND lane = (q.queue * 4 + priority)::smallint AND tenant = t.id AND next_run_at <= now() AND %s ORDER BY next_run_at`

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
	var found []scheduler.Contender
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(sql, queues).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[scheduler.Contender])
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("looking for the tenants that wait: %w", err)
	}
	return found, nil
}
