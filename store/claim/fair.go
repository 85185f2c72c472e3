package claim

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/aside"
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

// everyQueue returns the queues of quotas: more may be due in each.
func everyQueue(quotas []admit.Quota) []int16 {
	return pg.Column(quotas, func(q admit.Quota) int16 { return q.Queue })
}

// contenders finds the tenants that wait in a table. It hops from tenant to tenant through a lane's part of the index
// by tenant. That takes two probes for each tenant that has rows in the lane, due or not, and none for any other. It
// hops downwards and reaches each tenant's part of the index at its far end, where the rows of the future are. The
// near end holds the dead entries of past rows.
//
// $1 are the queues, $2 and $3 the first and the last priority, $4 and $5 the window, as in a claim. $6 is where each
// queue begins, if not at the first entry.
func contenders(table, due, condition string) string {
	return strings.NewReplacer("{table}", "punctual."+table, "{due}", due, "{condition}", condition).Replace(`
WITH RECURSIVE lanes AS (
    SELECT q.queue, (q.queue * 4 + priority)::smallint AS lane, coalesce(q.begin, '-infinity') AS begin
    FROM unnest((SELECT $1::smallint[]), (SELECT $6::timestamptz[])) AS q(queue, begin)
    CROSS JOIN generate_series($2::int, $3::int) AS priority),
present AS (
    SELECT l.*, f.tenant FROM lanes l CROSS JOIN LATERAL (
        SELECT tenant FROM {table} WHERE lane = l.lane AND {due} > l.begin{condition}
        ORDER BY tenant DESC, {due} DESC LIMIT 1) f
    UNION ALL
    SELECT p.queue, p.lane, p.begin, f.tenant FROM present p CROSS JOIN LATERAL (
        SELECT tenant FROM {table} WHERE lane = p.lane AND tenant < p.tenant AND {due} > p.begin{condition}
        ORDER BY tenant DESC, {due} DESC LIMIT 1) f)
SELECT p.queue, p.tenant, t.weight, min(d.due)
FROM present p
CROSS JOIN LATERAL (
    SELECT {due} AS due FROM {table}
    WHERE lane = p.lane AND tenant = p.tenant{condition}
      AND {due} > greatest(now() - (SELECT $4::interval), p.begin)
      AND {due} <= now() - (SELECT $5::interval)
    ORDER BY {due} LIMIT 1) d
JOIN punctual.tenants t ON t.id = p.tenant
GROUP BY 1, 2, 3`)
}

var (
	slotContenders  = contenders("schedules", "next_run_at", " AND enabled")
	readyContenders = contenders("waiting", "due_at", " AND "+Claimable)

	// The same around rows that cannot be read ($7). It reads more than an index, and so costs more.
	slotContendersAround  = contenders("schedules", "next_run_at", " AND enabled AND job_id"+notThese)
	readyContendersAround = contenders("waiting", "due_at", " AND "+Claimable+" AND run_id"+notThese)
)

const notThese = " <> ALL((SELECT $7::uuid[])::uuid[])"

// Contending returns the statement that finds the tenants that wait for a kind of work, and its arguments.
func Contending(of domain.Work, queues []int16, begin []*time.Time) (sql string, arguments []any) {
	from, until := window(scheduler.Claim{Work: of})
	switch of {
	case domain.WorkReady:
		return readyContenders, []any{pg.Prepared{}, queues, 0, 2, from, until, begin}
	case domain.WorkOrdered:
		return readyContenders, []any{pg.Prepared{}, queues, 3, 3, from, until, begin}
	}
	return slotContenders, []any{pg.Prepared{}, queues, 0, 2, from, until, begin}
}

// Contenders implements scheduler.Store.
func (s *Claims) Contenders(ctx context.Context, of domain.Work, queues []int16) ([]admit.Contender, error) {
	sql, arguments := Contending(of, queues, s.bounds[of].begin(queues, time.Now()))
	found, err := s.contenders(ctx, of, queues, sql, arguments)
	if aside.Blames(ctx, err) {
		sql, among := readyContendersAround, runsAhead
		if of == domain.WorkDue || of == domain.WorkLate {
			sql, among = slotContendersAround, slotsAhead
		}
		if aside.TooSlow(err) {
			s.patient.statements.tooShort()
		}
		s.aside.SetUnreadable(ctx, among, err)
		found, err = s.contenders(ctx, of, queues, sql, append(arguments, s.aside.Of(among.Kind)))
	}
	return found, pg.Wrap("looking for the tenants that wait", err)
}

func (s *Claims) contenders(
	ctx context.Context, of domain.Work, queues []int16, sql string, arguments []any,
) (found []admit.Contender, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.patient.statements.now())
	defer cancel()
	var now time.Time
	var b pgx.Batch
	b.Queue(pg.ByIndex, pg.Prepared{}) // without lastingPlan: with 1,000 tenants that one costs a fifth more for every run
	began := time.Now()
	b.Queue(sql, arguments...).Query(pg.Into(&found, pgx.RowToStructByPos[admit.Contender]))
	b.Queue(`SELECT now()`, pg.Prepared{}).QueryRow(pg.IntoPlaces(&now))
	if err := s.db.Runs.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if of == domain.WorkReady || of == domain.WorkOrdered {
		s.bounds[of].learn(queues, oldestOf(queues, found), now, began)
	}
	return found, nil
}
