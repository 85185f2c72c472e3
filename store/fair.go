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

// contendersWith probes each tenant's part of an index once per lane: with a thousand tenants some milliseconds.
func contendersWith(priorities string, oldest func(lane string) string) string {
	return `
SELECT q.queue, t.id, t.weight, min(d.due)
FROM unnest((SELECT $1::smallint[])) AS q(queue) CROSS JOIN generate_series(` + priorities + `) AS priority CROSS JOIN punctual.tenants t
CROSS JOIN LATERAL (` + oldest("(q.queue * 4 + priority)::smallint") + ` LIMIT 1) d
GROUP BY 1, 2, 3`
}

var selectContenders = map[scheduler.Work]string{
	scheduler.WorkDue:     contendersOfSlots("now() - interval '5 s'", "now()"),
	scheduler.WorkLate:    contendersOfSlots("'-infinity'", "now() - interval '5 s'"),
	scheduler.WorkReady:   contendersOfRuns("0, 2"),
	scheduler.WorkOrdered: contendersOfRuns("3, 3"),
}

func contendersOfSlots(after, until string) string {
	return contendersWith("0, 2", func(lane string) string {
		return `SELECT next_run_at AS due FROM punctual.schedules WHERE enabled AND ` + ofTenant("t.id", "next_run_at", after, until)(lane)
	})
}

func contendersOfRuns(priorities string) string {
	return contendersWith(priorities, func(lane string) string {
		return `SELECT due_at AS due FROM punctual.ready WHERE ` + ofTenant("t.id", "due_at", "'-infinity'", "now()")(lane)
	})
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
