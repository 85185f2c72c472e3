package claim

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// The claim, sentence by sentence. Each locks the rows that are due within a window, of the lanes of some queues: in
// each queue high priority before normal before low, then by due time, as many as the queue's quota allows, and passes
// over rows that others have locked. The limits stand beside the locks: an outer LIMIT would lock more than it returns.
//
// $1 and $2 are the queues and their quotas. $3 and $4 are the window: due for at most so long (null: however long),
// and for at least so long. $5 are the tenants of the quotas, or tenants to pass over: those that are at a limit, which
// mostly are none. Of what these have due, only as much is looked at as lies in the window. With $6 each slot comes
// with its definition. Of runs that were made ready together the oldest slot comes first, as run ids begin with it.
// They are looked for from a bound on ($7, for each queue), before which none was left.

// byPriority is the lanes of a queue one after the other. lane locks rows of one of them: its last bits and its limit
// are to be filled in.
func byPriority(lane string) string {
	high, normal := fmt.Sprintf(lane, "", ""), fmt.Sprintf(lane, " + 1", " - (SELECT count(*) FROM high)")
	low := fmt.Sprintf(lane, " + 2", " - (SELECT count(*) FROM high) - (SELECT count(*) FROM normal)")
	return `
    WITH high AS MATERIALIZED (` + high + `),
    normal AS MATERIALIZED (` + normal + `),
    low AS MATERIALIZED (` + low + `)
    SELECT * FROM high UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM low`
}

// selection is a statement that locks due rows, in two forms: for quotas of queues, and for quotas of tenants.
type selection struct{ ofAny, ofTenants string }

// selecting returns both forms of a statement. In it, {quotas} stands for the quotas, {tenant} for what they say of
// a row's tenant, and {begin} for where to begin in a queue.
func selecting(statement string) selection {
	form := func(quotas, tenant string) string {
		return strings.NewReplacer("{quotas}", quotas, "{tenant}", tenant, "{begin}",
			`((SELECT $7::timestamptz[]))[array_position((SELECT $1::smallint[]), q.queue)]`).Replace(statement)
	}
	return selection{
		ofAny: form(`unnest((SELECT $1::smallint[]), (SELECT $2::int[])) AS q(queue, slots)`,
			`tenant <> ALL((SELECT $5::int[])::int[])`),
		ofTenants: form(`unnest((SELECT $1::smallint[]), (SELECT $2::int[]), (SELECT $5::int[])) AS q(queue, slots, tenant)`,
			`tenant = q.tenant`),
	}
}

// ofSlots locks due slots. NO KEY, so that a foreign-key check on a due job does not hide it. Each row comes with a
// fencing token, which was given under the row's lock, and with its address (ctid), which stays the same until the
// transaction ends or writes the row. That the index by tenant serves quotas for tenants, and not the other one through
// all that others have due, is because the column's n_distinct is set in the schema.
var ofSlots = selecting(`
SELECT s.*, now(), nextval('punctual.fences'), CASE WHEN (SELECT $7::boolean) THEN (
    SELECT v.definition FROM punctual.job_versions v WHERE v.job_id = s.job_id AND v.version = s.version) END
FROM {quotas}
CROSS JOIN LATERAL (` + byPriority(`
        SELECT job_id, lane, tenant, scheduled_for, version, ctid AS at
        FROM punctual.schedules
        WHERE enabled AND {tenant} AND lane = (q.queue * 4%s)::smallint
          AND job_id <> ALL((SELECT $6::uuid[])::uuid[])
          AND next_run_at > coalesce(now() - (SELECT $3::interval), '-infinity')
          AND next_run_at <= now() - (SELECT $4::interval)
        ORDER BY next_run_at LIMIT q.slots%s
        FOR NO KEY UPDATE SKIP LOCKED`) + `) s`)

// Claimable is SQL for a row of ready or dated that claims take once it is due. No other row is in the indexes of due
// runs.
const Claimable = `waits IN ('turn', 'host')`

// unlessGateIsFree leaves out jobs of which no run is in flight any more, as there is nothing to replace. While they
// are locked here, the claim that has a worker slot for the successor would pass over it.
const unlessGateIsFree = `
      AND NOT EXISTS (SELECT FROM punctual.exclusive x
                      WHERE x.job_id = w.job_id AND x.active_run IS NULL AND x.earlier_runs IS NULL)`

// lockReplacing locks the due slots of some jobs.
const lockReplacing = `
SELECT s.*, now(), nextval('punctual.fences'), NULL
FROM (
    SELECT job_id, lane, tenant, scheduled_for, version, ctid AS at
    FROM punctual.schedules w
    WHERE job_id = ANY($1::uuid[]) AND job_id <> ALL($2::uuid[])
      AND enabled AND next_run_at <= now()` + unlessGateIsFree + `
    ORDER BY next_run_at LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED) s`

// lockReadyReplacing locks the due runs of some jobs that wait: those in ready, and dated ones. Dated ones come with
// their addresses, as in ofSlots.
const lockReadyReplacing = `
SELECT run_id, job_id, tenant, lane, since, until,
       CASE WHEN tableoid = 'punctual.dated'::regclass THEN ctid END AS dated, now()
FROM punctual.waiting w
WHERE job_id = ANY($1::uuid[]) AND run_id <> ALL($2::uuid[])
  AND ` + Claimable + ` AND due_at <= now()` + unlessGateIsFree + `
ORDER BY due_at, run_id LIMIT $3
FOR UPDATE SKIP LOCKED`

// ofReady locks runs that wait, likewise.
var ofReady = selecting(`
SELECT s.*, now()
FROM {quotas}
CROSS JOIN LATERAL (` + byPriority(`
        SELECT run_id, job_id, tenant, lane, since, until,
               CASE WHEN tableoid = 'punctual.dated'::regclass THEN ctid END AS dated
        FROM punctual.waiting
        WHERE {tenant} AND lane = (q.queue * 4%s)::smallint AND `+Claimable+`
          AND run_id <> ALL((SELECT $6::uuid[])::uuid[])
          AND due_at > greatest(now() - (SELECT $3::interval), {begin}, '-infinity')
          AND due_at <= now() - (SELECT $4::interval)
        ORDER BY due_at, run_id LIMIT q.slots%s
        FOR UPDATE SKIP LOCKED`) + `) s`)

// ofOrdered locks ordered runs: they wait in one lane of a queue, whatever their priority.
var ofOrdered = selecting(`
SELECT s.*, now()
FROM {quotas}
CROSS JOIN LATERAL (
    SELECT run_id, job_id, tenant, lane, since, until, NULL::tid
    FROM punctual.ready
    WHERE {tenant} AND lane = (q.queue * 4 + 3)::smallint AND ` + Claimable + `
      AND run_id <> ALL((SELECT $6::uuid[])::uuid[])
      AND due_at > greatest(now() - (SELECT $3::interval), {begin}, '-infinity')
      AND due_at <= now() - (SELECT $4::interval)
    ORDER BY due_at, run_id LIMIT q.slots FOR UPDATE SKIP LOCKED) s`)

// lockHeld locks runs that wait for one host, the longest unsent first, but for those of some jobs.
const lockHeld = `
SELECT run_id, job_id, tenant, lane, since, until, NULL::tid, now()
FROM punctual.ready
WHERE tenant = $1 AND waits = 'host' AND waits_on = $2 AND lane = ANY($3::smallint[]) AND job_id <> ALL($4::uuid[])
  AND run_id <> ALL($5::uuid[])
ORDER BY since, run_id LIMIT $6
FOR UPDATE SKIP LOCKED`

// window is for how long a claim's rows have been due: at most from (nil: for however long), and at least until. What
// is due now has a bound, because index entries that are dead but still visible to an old snapshot lie beyond it, and
// would slow every claim.
func window(c scheduler.Claim) (from *time.Duration, until time.Duration) {
	switch {
	case len(c.Except) > 0:
		return &c.Since, c.Behind
	case c.Work == domain.WorkDue:
		return new(scheduler.OlderThan), c.Behind
	case c.Work == domain.WorkLate && c.Recent:
		return new(scheduler.RecentlyDue), scheduler.OlderThan
	case c.Work == domain.WorkLate:
		return nil, scheduler.OlderThan
	}
	return nil, 0
}

// statement is the form that a claim needs, with its arguments. It is planned once.
func (s selection) statement(c scheduler.Claim, not []uuid.UUID) (sql string, arguments []any) {
	queues, slots, tenants := quotaColumns(c.Quotas)
	from, until := window(c)
	arguments = []any{pg.Prepared{}, queues, slots, from, until}
	if fairly(c.Quotas) {
		return s.ofTenants, append(arguments, tenants, not)
	}
	return s.ofAny, append(arguments, append([]int32{}, c.Except...), not) // never null: no row is unlike null
}

func quotaColumns(quotas []admit.Quota) (queues []int16, slots, tenants []int32) {
	for _, q := range quotas {
		queues, slots, tenants = append(queues, q.Queue), append(slots, int32(q.Slots)), append(tenants, q.Tenant)
	}
	return queues, slots, tenants
}

// A part of a batch that has failed is claimed by the ids of its items ($4), of whatever kind of work they are, within
// the quotas ($1 to $3) of the claim at hand.
const (
	inQuotas = `
FROM unnest((SELECT $1::smallint[]), (SELECT $2::int[]), (SELECT $3::int[])) AS q(queue, slots, tenant)
CROSS JOIN LATERAL (`
	ofQuota = ` = ANY((SELECT $4::uuid[])::uuid[]) AND lane / 4 = q.queue AND q.tenant IN (0, tenant)`

	lockSlotsOf = `
SELECT s.*, now(), nextval('punctual.fences'), NULL` + inQuotas + `
    SELECT job_id, lane, tenant, scheduled_for, version, ctid AS at
    FROM punctual.schedules
    WHERE job_id` + ofQuota + ` AND enabled AND next_run_at <= now()
    ORDER BY next_run_at LIMIT q.slots
    FOR NO KEY UPDATE SKIP LOCKED) s`
	lockReadyOf = `
SELECT s.*, now()` + inQuotas + `
    SELECT run_id, job_id, tenant, lane, since, until,
           CASE WHEN tableoid = 'punctual.dated'::regclass THEN ctid END AS dated
    FROM punctual.waiting
    WHERE run_id` + ofQuota + ` AND ` + Claimable + ` AND due_at <= now()
    ORDER BY due_at, run_id LIMIT q.slots
    FOR UPDATE SKIP LOCKED) s`
	// lockSilentOf is the same for deadlines, which need no quota.
	lockSilentOf = `
SELECT run_id, job_id, tenant, lane, since, until, NULL::tid, now()
FROM punctual.ready
WHERE run_id = ANY($1::uuid[]) AND ` + isDeadline + ` AND due_at <= now()
ORDER BY due_at
FOR UPDATE SKIP LOCKED`
)

// lockingOf is the statement by which a claim locks the items of a part, and its arguments.
func lockingOf(statement string, c scheduler.Claim, only []uuid.UUID) (sql string, arguments []any) {
	queues, slots, tenants := quotaColumns(c.Quotas)
	return statement, []any{pg.Prepared{}, queues, slots, tenants, only}
}

// lockingSlots returns the statement that locks due slots, with its arguments. It reads their definitions along if
// asked to. That saves a statement and a round trip if they are not compiled yet, as those of one-shots never are.
func lockingSlots(c scheduler.Claim, of taking, definitions bool) (sql string, arguments []any) {
	switch {
	case of.only != nil:
		return lockingOf(lockSlotsOf, c, of.only)
	case len(c.Replacing) > 0:
		return lockReplacing, []any{pg.Prepared{}, c.Replacing, of.not, admit.BatchSize}
	}
	sql, arguments = ofSlots.statement(c, of.not)
	return sql, append(arguments, definitions)
}

// lockingWaiting returns the statement that locks due runs, which begins at a bound.
func lockingWaiting(c scheduler.Claim, not []uuid.UUID, begin *bound) (sql string, arguments []any) {
	of := ofReady
	if c.Work == domain.WorkOrdered {
		of = ofOrdered
	}
	sql, arguments = of.statement(c, not)
	queues, _, _ := quotaColumns(c.Quotas)
	return sql, append(arguments, begin.get(queues))
}

// Locking returns the statement by which a claim of a kind of work locks its rows of schedules or of ready, and its
// arguments.
func Locking(c scheduler.Claim) (sql string, arguments []any) {
	all := taking{not: []uuid.UUID{}}
	if c.Work == domain.WorkReady || c.Work == domain.WorkOrdered {
		return lockingWaiting(c, all.not, &bound{})
	}
	return lockingSlots(c, all, true)
}
