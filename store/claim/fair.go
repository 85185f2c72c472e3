package claim

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// fairly reports whether each quota is for one tenant.
func fairly(quotas []admit.Quota) bool { return len(quotas) > 0 && quotas[0].Tenant != 0 }

// place is the queue and the tenant of a claimed row.
type place struct {
	queue  int16
	tenant int32
}

// usedUp returns the queues that may hold more due rows than the quotas let through: a claim found as many rows there
// as one of their quotas allows.
func usedUp[T any](quotas []admit.Quota, rows []T, at func(T) place) (queues []int16) {
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
			queues = append(queues, p.queue)
		}
	}
	return queues
}

// slotContenders and readyContenders find the tenants that wait. They hop from tenant to tenant through a lane's part
// of the index by tenant. That takes two probes for each tenant that has rows in the lane, due or not, and none for any
// other tenant. They hop downwards and reach each tenant's part of the index at its far end, where the rows of the
// future are. The near end holds the dead entries of past rows.
//
// $1 are the queues, $2 and $3 the first and the last priority, $4 and $5 the window, as in a claim.
const slotContenders = `
WITH RECURSIVE lanes AS (
    SELECT q.queue, (q.queue * 4 + priority)::smallint AS lane
    FROM unnest((SELECT $1::smallint[])) AS q(queue) CROSS JOIN generate_series($2::int, $3::int) AS priority),
present AS (
    SELECT l.queue, l.lane, f.tenant FROM lanes l CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.schedules WHERE lane = l.lane AND enabled
        ORDER BY tenant DESC, next_run_at DESC LIMIT 1) f
    UNION ALL
    SELECT p.queue, p.lane, f.tenant FROM present p CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.schedules WHERE lane = p.lane AND tenant < p.tenant AND enabled
        ORDER BY tenant DESC, next_run_at DESC LIMIT 1) f)
SELECT p.queue, p.tenant, t.weight, min(d.due)
FROM present p
CROSS JOIN LATERAL (
    SELECT next_run_at AS due FROM punctual.schedules
    WHERE lane = p.lane AND tenant = p.tenant AND enabled
      AND next_run_at > coalesce(now() - (SELECT $4::interval), '-infinity')
      AND next_run_at <= now() - (SELECT $5::interval)
    ORDER BY next_run_at LIMIT 1) d
JOIN punctual.tenants t ON t.id = p.tenant
GROUP BY 1, 2, 3`

const readyContenders = `
WITH RECURSIVE lanes AS (
    SELECT q.queue, (q.queue * 4 + priority)::smallint AS lane
    FROM unnest((SELECT $1::smallint[])) AS q(queue) CROSS JOIN generate_series($2::int, $3::int) AS priority),
present AS (
    SELECT l.queue, l.lane, f.tenant FROM lanes l CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.waiting WHERE lane = l.lane
        ORDER BY tenant DESC, due_at DESC LIMIT 1) f
    UNION ALL
    SELECT p.queue, p.lane, f.tenant FROM present p CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.waiting WHERE lane = p.lane AND tenant < p.tenant
        ORDER BY tenant DESC, due_at DESC LIMIT 1) f)
SELECT p.queue, p.tenant, t.weight, min(d.due)
FROM present p
CROSS JOIN LATERAL (
    SELECT due_at AS due FROM punctual.waiting
    WHERE lane = p.lane AND tenant = p.tenant
      AND due_at > coalesce(now() - (SELECT $4::interval), '-infinity')
      AND due_at <= now() - (SELECT $5::interval)
    ORDER BY due_at LIMIT 1) d
JOIN punctual.tenants t ON t.id = p.tenant
GROUP BY 1, 2, 3`

// Contending returns the statement that finds the tenants that wait for a kind of work, and its arguments.
func Contending(of domain.Work, queues []int16) (sql string, arguments []any) {
	from, until := window(scheduler.Claim{Work: of})
	switch of {
	case domain.WorkReady:
		return readyContenders, []any{pg.Prepared{}, queues, 0, 2, from, until}
	case domain.WorkOrdered:
		return readyContenders, []any{pg.Prepared{}, queues, 3, 3, from, until}
	}
	return slotContenders, []any{pg.Prepared{}, queues, 0, 2, from, until}
}

// Contenders implements scheduler.Store.
func (s *Claims) Contenders(ctx context.Context, of domain.Work, queues []int16) ([]admit.Contender, error) {
	var found []admit.Contender
	var b pgx.Batch
	b.Queue(pg.ByIndex, pg.Prepared{}) // without lastingPlan: with 1,000 tenants that one costs a fifth more for every run
	sql, arguments := Contending(of, queues)
	b.Queue(sql, arguments...).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[admit.Contender])
		return err
	})
	if err := s.db.Runs.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("looking for the tenants that wait: %w", err)
	}
	return found, nil
}
