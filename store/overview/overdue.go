package overview

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// patience is for how long work may have been due before it counts as overdue.
const patience = 10 * time.Second

// mostJobs is how many jobs OverdueJobs and FailingJobs return at most.
const mostJobs = 1000

// Overdue is the work of a tenant that should have begun.
type Overdue struct {
	Slots  int        `json:"slots" maximum:"10000" doc:"Slots that have been due for more than 10 s and are not claimed. 10000: 10,000 or more." example:"12"`
	Runs   int        `json:"runs" maximum:"10000" doc:"Runs that have waited for more than 10 s since they were due: retries, manual and dated runs, and runs that wait for their host. Backfills, replays and runs that wait for another run of their job are left out, because they wait by design. 10000: 10,000 or more." example:"3"`
	Jobs   int        `json:"jobs" maximum:"1000" doc:"Of how many jobs these slots and runs are. 1000: 1,000 or more." example:"2"`
	Oldest *OldestDue `json:"oldest" doc:"The slot or run that has been due for longest. Null: nothing is overdue."`
}

// OldestDue is the work that has been due for longest.
type OldestDue struct {
	DueAt time.Time  `json:"due_at" doc:"When it was due."`
	JobID uuid.UUID  `json:"job_id" format:"uuid" doc:"Its job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job   string     `json:"job" doc:"The job's name." example:"daily-invoice-gen"`
	Run   *uuid.UUID `json:"run" format:"uuid" nullable:"true" doc:"The run. Null: it is a slot or a dated run, which has no run yet."`
}

// The sources of overdue work, each read by the index of the claims or of the breakers: due slots, due runs and runs
// that are held back. $1 is the tenant, @p the patience, and @l a limit for each lane. A run of a backfill or replay is
// in the lane that ends in 3.
const (
	overdueLanes = `
WITH lanes AS MATERIALIZED (
    SELECT (q.id * 4 + p)::smallint AS lane FROM punctual.queues q, generate_series(0, 2) p)`
	overdueSlots = `
    SELECT r.* FROM lanes l CROSS JOIN LATERAL (
        SELECT s.job_id, NULL::uuid AS run_id, s.next_run_at AS due
        FROM punctual.schedules s
        WHERE s.enabled AND s.lane = l.lane AND s.tenant = $1 AND s.next_run_at < now() - @p
        ORDER BY s.next_run_at LIMIT @l) r`
	overdueRuns = `
    SELECT r.* FROM lanes l CROSS JOIN LATERAL (
        SELECT y.job_id, CASE WHEN y.tableoid = 'punctual.ready'::regclass THEN y.run_id END AS run_id, y.due_at AS due
        FROM punctual.waiting y
        WHERE y.lane = l.lane AND y.tenant = $1 AND y.due_at < now() - @p AND y.waits = 'turn'
        ORDER BY y.due_at LIMIT @l) r`
	heldRuns = `
    SELECT r.* FROM (
        SELECT y.job_id, y.run_id, y.since AS due
        FROM punctual.ready y
        WHERE y.tenant = $1 AND y.waits = 'host' AND y.since < now() - @p LIMIT @l) r`
)

// within fills in the patience and a limit.
func within(sql string, limit int) string {
	return strings.NewReplacer(
		`@p`, fmt.Sprintf(`interval '%d s'`, int(patience.Seconds())), `@l`, fmt.Sprint(limit)).Replace(sql)
}

var (
	overdueWork = overdueLanes + fmt.Sprintf(`,
slots AS MATERIALIZED (%[1]s LIMIT %[3]d),
work AS MATERIALIZED (SELECT u.job_id FROM (%[2]s) u LIMIT %[3]d),
jobs AS (SELECT job_id FROM slots UNION SELECT job_id FROM work LIMIT %[4]d)`,
		within(overdueSlots, pg.DepthCap), within(overdueRuns+` UNION ALL `+heldRuns, pg.DepthCap), pg.DepthCap, mostJobs)
	countOverdue = overdueWork + `
SELECT (SELECT count(*) FROM slots), (SELECT count(*) FROM work), (SELECT count(*) FROM jobs)`
	selectOldest = overdueLanes + within(`
SELECT o.due, o.job_id, coalesce((SELECT j.name FROM punctual.jobs j WHERE j.id = o.job_id), ''), o.run_id
FROM (`+overdueSlots+` UNION ALL `+overdueRuns+` UNION ALL (`+oldestHeld+`)) o
ORDER BY o.due LIMIT 1`, 1)
	selectOverdueJobs = overdueWork + ` SELECT job_id FROM jobs`
)

// oldestHeld is the run that has been held back for longest. The index has them by what they wait for.
const oldestHeld = `
    SELECT y.job_id, y.run_id, y.since AS due
    FROM punctual.ready y
    WHERE y.tenant = $1 AND y.waits = 'host' AND y.since < now() - @p
    ORDER BY y.since LIMIT 1`

// queueOverdue queues the statements that read what is overdue.
func queueOverdue(b *pgx.Batch, o *Overdue, tenant int32) {
	b.Queue(countOverdue, pg.Prepared{}, tenant).QueryRow(func(row pgx.Row) error {
		return row.Scan(&o.Slots, &o.Runs, &o.Jobs)
	})
	b.Queue(selectOldest, pg.Prepared{}, tenant).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[OldestDue])
		if err == nil && len(found) > 0 {
			o.Oldest = found[0]
		}
		return err
	})
}

// OverdueJobs returns the jobs that Overdue counts, of which a slot or a run is overdue: up to 1,000.
func (b *Board) OverdueJobs(ctx context.Context, tenant int32) ([]uuid.UUID, error) {
	jobs, err := pg.All(ctx, b.db.Callers.Reader(tenant), pgx.RowTo[uuid.UUID], selectOverdueJobs, pg.Prepared{}, tenant)
	return jobs, pg.Wrap("looking for jobs that are overdue", err)
}
