package notices

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

const (
	// OverlappingEvery is how often one of the replicas looks for jobs most of whose slots are skipped.
	OverlappingEvery = 5 * time.Minute
	// A look reads so many of a tenant's newest skips of each kind, and so many skips in all.
	mostSkips, mostSkipsInAll = 20_000, 100_000
	// It covers so many jobs, so many at a time, and reads so many of the newest slots of each.
	mostCrowded, crowdedAtOnce, mostSlots = 10_000, 500, 4500
	// overlapWindow is how far back a look counts slots.
	overlapWindow = 70 * time.Minute
	// sixSlots is how many days further back than days.Recent a look finds the six newest slots.
	sixSlots = 12
)

// crowded is a job of which slots were skipped, or whose runs were replaced, because the run before had not ended.
type crowded struct {
	job    uuid.UUID
	told   bool
	active bool
	rows   int // that its slots are counted from
	slots  domain.Overlapping
	run    *uuid.UUID // the newest skip
}

// Crowding returns the statement that selects what a look covers: jobs that were told of, and jobs that want to be
// among those with the newest skips. If those are too many, each look covers others.
func Crowding() (sql string, args []any) {
	w := days.Recent()
	w.From = w.From.AddDate(0, 0, -1) // the id of a run that is replaced is of its slot, which may be a day before that
	return `
WITH skipped AS (
    SELECT DISTINCT c.job_id FROM (
        SELECT c.job_id FROM (SELECT id FROM punctual.tenants WHERE deleted_at IS NULL ORDER BY random()) t
        CROSS JOIN (VALUES ('overlap'), ('replaced')) k(reason)
        CROSS JOIN LATERAL (
            SELECT r.job_id FROM punctual.runs r
            WHERE r.tenant = t.id AND r.reason = k.reason AND ` + w.On(`r.id`) + `
            ORDER BY r.id DESC LIMIT $1) c
        LIMIT $2) c)
SELECT job_id FROM punctual.notified WHERE overlapping_since IS NOT NULL
UNION ALL
(SELECT j.id FROM skipped s
 JOIN punctual.jobs j ON j.id = s.job_id AND j.state = 'active'
 JOIN punctual.tenants t ON t.id = j.tenant
 JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
 LEFT JOIN punctual.notified n ON n.job_id = j.id
 WHERE n.overlapping_since IS NULL
   AND coalesce(v.definition ->> 'notify', t.notify::text)::jsonb @> '[{"on": ["overlapping"]}]'
 ORDER BY random() LIMIT $3)`, []any{mostSkips, mostSkipsInAll, mostCrowded}
}

// Counting returns the statement that counts the slots of jobs within the hour, or the six newest if those reach
// further back. The runs are in a window of days.
func Counting(w days.Window, jobs []uuid.UUID, now time.Time) (sql string, args []any) {
	of := days.Job(`j.id`)
	newest := of.Order(`r`, days.NewestFirst)
	slots := `punctual.runs r
     WHERE ` + w.Of(`r`, of) + ` AND r.trigger IN ('schedule', 'catchup')
       AND (r.skipped_last IS NULL OR r.reason = 'overlap')`
	return `
SELECT j.id, n.overlapping_since IS NOT NULL, j.state = 'active', s.rows, s.total, s.skipped, s.newest, s.oldest, s.run
FROM unnest($1::uuid[]) AS c(job_id)
JOIN punctual.jobs j ON j.id = c.job_id
LEFT JOIN punctual.notified n ON n.job_id = j.id
LEFT JOIN LATERAL (SELECT r.id FROM ` + slots + newest + ` OFFSET 5 LIMIT 1) sixth ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, coalesce(sum(r.slots), 0) AS total,
           coalesce(sum(r.slots) FILTER (WHERE r.skipped), 0) AS skipped,
           count(*) FILTER (WHERE r.place <= 3 AND r.skipped) AS newest, min(r.at) FILTER (WHERE r.skipped) AS oldest,
           (array_agg(r.id ORDER BY r.id DESC) FILTER (WHERE r.skipped))[1] AS run
    FROM (SELECT r.id, coalesce(r.skipped_first, r.scheduled_for) AS at,
                 CASE WHEN r.skipped_last IS NULL THEN 1 ELSE coalesce(r.skipped_count, 1001) END AS slots,
                 r.reason IS NOT NULL AND r.reason IN ('overlap', 'replaced') AS skipped,
                 row_number() OVER (` + newest + `) AS place
          FROM ` + slots + `
            AND ` + of.From(`r`, `CASE WHEN sixth.id < $2 THEN sixth.id WHEN sixth.id IS NOT NULL THEN $2
                                       ELSE '00000000-0000-0000-0000-000000000000' END`) + newest + ` LIMIT $3) r) s`,
		[]any{jobs, domain.FirstRunID(now.Add(-overlapWindow)), mostSlots}
}

// FindOverlapping writes a notice for each job of which most slots have been skipped for an hour, because the run
// before had not ended. It is told once, until that is over.
func (s *Notifier) FindOverlapping(ctx context.Context) error {
	sql, args := Crowding()
	var ids []uuid.UUID
	err := s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) (err error) {
		ids, err = pg.All(ctx, tx, pgx.RowTo[uuid.UUID], sql, args...)
		return err
	})
	for part := range slices.Chunk(ids, crowdedAtOnce) {
		if err == nil {
			err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error { return judgeOverlaps(ctx, tx, part) })
		}
	}
	return pg.Wrap("looking for jobs whose slots are skipped", err)
}

// judgeOverlaps looks at jobs. For those with few slots it looks further back.
func judgeOverlaps(ctx context.Context, tx *pg.Tx, ids []uuid.UUID) error {
	now, err := pg.Clock(ctx, tx)
	if err == nil {
		err = pg.Exec(ctx, tx, days.InOrder)
	}
	if err != nil {
		return err
	}
	w := days.Recent()
	jobs, err := count(ctx, tx, w, ids, now)
	if err != nil {
		return err
	}
	var few []uuid.UUID
	jobs = slices.DeleteFunc(jobs, func(c crowded) bool {
		if c.rows >= 6 || !c.active {
			return false
		}
		few = append(few, c.job)
		return true
	})
	if len(few) > 0 {
		w.From = w.From.AddDate(0, 0, -sixSlots)
		more, err := count(ctx, tx, w, few, now)
		if err != nil {
			return err
		}
		jobs = append(jobs, more...)
	}
	return writeOverlapping(ctx, tx, jobs, now)
}

func count(ctx context.Context, tx *pg.Tx, w days.Window, ids []uuid.UUID, now time.Time) ([]crowded, error) {
	sql, args := Counting(w, ids, now)
	return pg.All(ctx, tx, func(row pgx.CollectableRow) (c crowded, err error) {
		return c, row.Scan(&c.job, &c.told, &c.active, &c.rows, &c.slots.Slots, &c.slots.Skipped, &c.slots.Newest,
			&c.slots.Oldest, &c.run)
	}, sql, args...)
}

// insertOverlapping tells of a job unless another replica has done so meanwhile.
const insertOverlapping = `
WITH told AS (
    INSERT INTO punctual.notified AS n (job_id, overlapping_since)
    SELECT u.job_id, u.since FROM unnest($1::uuid[], $2::timestamptz[]) AS u(job_id, since) ORDER BY u.job_id
    ON CONFLICT (job_id) DO UPDATE SET overlapping_since = excluded.overlapping_since WHERE n.overlapping_since IS NULL
    RETURNING n.job_id, n.overlapping_since, n.sent)
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, slots, reason, error, since,
    happened_at, tell_at)
SELECT r.job_id, r.tenant, r.job_version, 'overlapping', r.id, r.scheduled_for, u.slots, r.reason, u.error,
       t.overlapping_since, now(), greatest(now(), (t.sent ->> 'overlapping')::timestamptz + ` + Gap + `)
FROM unnest($3::uuid[], $4::int[], $5::text[]) AS u(run_id, slots, error)
JOIN punctual.runs_of($3::uuid[]) r ON r.id = u.run_id
JOIN told t ON t.job_id = r.job_id`

// lockOver locks the rows of jobs in order. One that is locked is looked at again next time.
const lockOver = `
SELECT job_id FROM punctual.notified
WHERE job_id = ANY($1::uuid[]) AND overlapping_since IS NOT NULL ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED`

// overlapOver has the end told to all who know of it.
const overlapOver = `
WITH ended AS (
    UPDATE punctual.notified n SET overlapping_since = NULL
    FROM (SELECT job_id, overlapping_since FROM punctual.notified WHERE job_id = ANY($1::uuid[])) o
    WHERE n.job_id = o.job_id
    RETURNING n.job_id, o.overlapping_since AS since),
known AS (
    SELECT s.recipient_id, s.job_id, e.since
    FROM punctual.notice_states s JOIN ended e ON e.job_id = s.job_id WHERE s.kind = 'overlaps'),
locked AS (
    SELECT id FROM punctual.outbox WHERE id IN (SELECT recipient_id FROM known) ORDER BY id FOR NO KEY UPDATE),
due AS (
    UPDATE punctual.outbox o SET due_at = least(o.due_at, now()) FROM locked l WHERE o.id = l.id RETURNING o.id)
UPDATE punctual.notice_states s SET ends = 'overlap_over', since = k.since, tell_at = least(s.tell_at, now())
FROM known k JOIN due d ON d.id = k.recipient_id
WHERE s.recipient_id = k.recipient_id AND s.job_id = k.job_id AND s.kind = 'overlaps'`

// writeOverlapping writes what is so and what is over. No slot of a job that is not active is skipped any more.
func writeOverlapping(ctx context.Context, tx *pg.Tx, all []crowded, now time.Time) error {
	var over, jobs, runs []uuid.UUID
	var since []time.Time
	var skipped []int
	var said []string
	for _, c := range all {
		switch {
		case c.told && (!c.active || c.slots.Over()):
			over = append(over, c.job)
		case !c.told && c.active && c.slots.Steady(now):
			jobs, since, runs = append(jobs, c.job), append(since, *c.slots.Oldest), append(runs, *c.run)
			skipped = append(skipped, c.slots.Skipped)
			said = append(said, fmt.Sprintf("%d of %d slots since %s did not run to their end, because the run before had "+
				"not ended when the next slot came", c.slots.Skipped, c.slots.Slots, pg.Stamp(*c.slots.Oldest)))
		}
	}
	if len(jobs)+len(over) == 0 {
		return nil
	}
	over, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], lockOver, over) // and then see what was collected until then
	if err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue(insertOverlapping, jobs, since, runs, skipped, said)
	b.Queue(overlapOver, over)
	tx.Ask(scheduler.ChoreNotices)
	return tx.SendBatch(ctx, &b).Close()
}

// OverlappingJobs is how many jobs of a tenant were told of.
type OverlappingJobs struct {
	Tenant string
	Jobs   int
}

// CountOverlapping counts the jobs that were told of, up to 10,000, of the hundred tenants with the most of them.
func (s *Notifier) CountOverlapping(ctx context.Context) ([]OverlappingJobs, error) {
	counts, err := pg.All(ctx, s.db.Chores, pgx.RowToStructByPos[OverlappingJobs], `
		SELECT t.name, count(*)
		FROM (SELECT job_id FROM punctual.notified WHERE overlapping_since IS NOT NULL LIMIT $1) n
		JOIN punctual.jobs j ON j.id = n.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		GROUP BY t.id ORDER BY count(*) DESC LIMIT 100`, mostCrowded)
	return counts, pg.Wrap("counting jobs whose slots are skipped", err)
}
