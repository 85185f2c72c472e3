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

// usedUp returns the queues in which there may be more than the quotas let through: as many rows as one of them allows
// were found.
func usedUp[T any](quotas []scheduler.Quota, rows []T, at func(T) place) (queues []int16) {
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

// contenders hops from tenant to tenant through a lane's part of the index by tenant: two probes for each tenant that has
// something in the lane, whether or not it is due, and none for the others. It hops downwards and comes to a tenant from
// the end of its part, where the rows are that lie ahead: at the other end are the dead entries of those gone by.
func contenders(priorities, table, column, when, after, until string) string {
	return fmt.Sprintf(`
WITH RECURSIVE lanes AS (
    SELECT q.queue, (q.queue * 4 + priority)::smallint AS lane FROM unnest((SELECT $1::smallint[])) AS q(queue) CROSS JOIN generate_series(%[1]s) AS priority),
present AS (
    SELECT l.queue, l.lane, f.tenant FROM lanes l CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.%[2]s WHERE lane = l.lane%[4]s ORDER BY tenant DESC, %[3]s DESC LIMIT 1) f
    UNION ALL
    SELECT p.queue, p.lane, f.tenant FROM present p CROSS JOIN LATERAL (
        SELECT tenant FROM punctual.%[2]s WHERE lane = p.lane AND tenant < p.tenant%[4]s ORDER BY tenant DESC, %[3]s DESC LIMIT 1) f)
SELECT p.queue, p.tenant, t.weight, min(d.due)
FROM present p CROSS JOIN LATERAL (
    SELECT %[3]s AS due FROM punctual.%[2]s WHERE lane = p.lane AND tenant = p.tenant AND %[3]s > %[5]s AND %[3]s <= %[6]s%[4]s ORDER BY %[3]s LIMIT 1) d
JOIN punctual.tenants t ON t.id = p.tenant
GROUP BY 1, 2, 3`, priorities, table, column, when, after, until)
}

var selectContenders = map[scheduler.Work]string{
	scheduler.WorkDue:     contenders("0, 2", "schedules", "next_run_at", " AND enabled", "now() - interval '5 s'", "now()"),
	scheduler.WorkLate:    contenders("0, 2", "schedules", "next_run_at", " AND enabled", "'-infinity'", "now() - interval '5 s'"),
	scheduler.WorkReady:   contenders("0, 2", "ready", "due_at", "", "'-infinity'", "now()"),
	scheduler.WorkOrdered: contenders("3, 3", "ready", "due_at", "", "'-infinity'", "now()"),
}

// Contenders implements scheduler.Store.
func (s *Store) Contenders(ctx context.Context, of scheduler.Work, queues []int16) ([]scheduler.Contender, error) {
	ctx = forRuns.in(ctx)
	var found []scheduler.Contender
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(selectContenders[of], prepared{}, queues).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[scheduler.Contender])
		return err
	})
	if err := s.conns(ctx).SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("looking for the tenants that wait: %w", err)
	}
	return found, nil
}
