package notices

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
)

const (
	// OverlappingEvery is how often replicas look for jobs most of whose slots are skipped.
	OverlappingEvery = 5 * time.Minute
	// mostOverlapping is how many jobs one look covers, and mostSlots how many of the newest slots of each.
	mostOverlapping, mostSlots = 500, 5000
	// overlapWindow is how far back a look counts slots, and replacedWindow how far back it finds jobs: a run that is
	// replaced has the id of its slot, which is a period before that happens.
	overlapWindow, replacedWindow = 70 * time.Minute, 3 * time.Hour
)

// crowded is a job of which slots were skipped, or whose runs were replaced, because the run before had not ended.
type crowded struct {
	key    definitions.Version
	tenant int32
	list   []byte // the tenant's default notify
	told   bool
	slots  domain.Overlapping
	run    *uuid.UUID // the newest skip
}

// findCrowded selects jobs with such skips, and those that were told. The runs are found by index, so other jobs cost
// nothing, and neither do claims.
func findCrowded(w days.Window) string {
	return `
WITH candidate AS (
    SELECT job_id FROM punctual.notified WHERE overlapping_since IS NOT NULL
    UNION
    SELECT c.job_id FROM punctual.tenants t
    CROSS JOIN LATERAL (
        SELECT r.job_id FROM punctual.runs r
        WHERE r.tenant = t.id AND r.reason IN ('overlap', 'replaced') AND r.id >= $1 AND ` + w.On(`r.id`) + `) c
    WHERE t.deleted_at IS NULL
    LIMIT $2)
SELECT j.id, j.version, j.tenant, t.notify, n.overlapping_since IS NOT NULL, s.total, s.skipped, s.newest, s.oldest,
       s.run
FROM candidate c
JOIN punctual.jobs j ON j.id = c.job_id
JOIN punctual.tenants t ON t.id = j.tenant
LEFT JOIN punctual.notified n ON n.job_id = j.id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.slots), 0) AS total, coalesce(sum(r.slots) FILTER (WHERE r.skipped), 0) AS skipped,
           count(*) FILTER (WHERE r.place <= 3 AND r.skipped) AS newest, min(r.at) FILTER (WHERE r.skipped) AS oldest,
           (array_agg(r.id ORDER BY r.id DESC) FILTER (WHERE r.skipped))[1] AS run
    FROM (SELECT r.id, coalesce(r.skipped_first, r.scheduled_for) AS at,
                 CASE WHEN r.skipped_last IS NULL THEN 1 ELSE coalesce(r.skipped_count, 1001) END AS slots,
                 r.reason IS NOT NULL AND r.reason IN ('overlap', 'replaced') AS skipped,
                 row_number() OVER (ORDER BY r.id DESC) AS place
          FROM punctual.runs r
          WHERE r.job_id = j.id AND r.trigger IN ('schedule', 'catchup') AND ` + w.On(`r.id`) + `
            AND (r.skipped_last IS NULL OR r.reason = 'overlap')
          ORDER BY r.id DESC LIMIT $3) r
    WHERE r.place <= 6 OR r.at > now() - $4::interval) s`
}

// FindOverlapping writes a notice for each job of which most slots have been skipped for an hour, because the run
// before had not ended. It is told once, until that is over.
func (s *Teller) FindOverlapping(ctx context.Context) (left bool, err error) {
	err = s.db.InTx(pg.Chores.In(ctx), pg.Everybody, func(tx *pg.Tx) error {
		now, err := pg.Clock(ctx, tx)
		if err != nil {
			return err
		}
		var jobs []crowded
		var c crowded
		if _, err := pgx.ForEachRow(pg.Query(ctx, tx, findCrowded(days.Recent()),
			domain.FirstRunID(now.Add(-replacedWindow)), mostOverlapping, mostSlots, overlapWindow), []any{
			&c.key.Job, &c.key.Version, &c.tenant, &c.list, &c.told, &c.slots.Slots, &c.slots.Skipped, &c.slots.Newest,
			&c.slots.Oldest, &c.run,
		}, func() error {
			jobs = append(jobs, c)
			c = crowded{}
			return nil
		}); err != nil || len(jobs) == 0 {
			return err
		}
		found, err := s.definitions.Read(ctx, tx, definitions.Of(jobs, func(c crowded) (definitions.Version, int32) {
			return c.key, c.tenant
		}))
		if err != nil {
			return err
		}
		return writeOverlapping(ctx, tx, jobs, found.Jobs, now)
	})
	return false, pg.Wrap("looking for jobs whose slots are skipped", err)
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
JOIN punctual.runs r ON r.id = u.run_id
JOIN told t ON t.job_id = r.job_id
WHERE r.id = ANY($3::uuid[])`

func writeOverlapping(
	ctx context.Context, tx *pg.Tx, all []crowded, found map[definitions.Version]*domain.Job, now time.Time,
) error {
	var over, jobs, runs []uuid.UUID
	var since []time.Time
	var skipped []int
	var said []string
	for _, c := range all {
		job := found[c.key]
		if c.told && c.slots.Over() {
			over = append(over, c.key.Job)
		}
		if c.told || job == nil || !c.slots.Steady(now) {
			continue
		}
		list := job.Notify
		if list == nil {
			var err error
			if list, err = ReadList(c.list); err != nil {
				return err
			}
		}
		if !domain.Asks(list, domain.EventOverlapping) {
			continue
		}
		jobs, since, runs = append(jobs, c.key.Job), append(since, *c.slots.Oldest), append(runs, *c.run)
		skipped = append(skipped, c.slots.Skipped)
		said = append(said, fmt.Sprintf("%d of %d slots since %s did not run to their end, because the run before had not "+
			"ended when the next slot came", c.slots.Skipped, c.slots.Slots, pg.Stamp(*c.slots.Oldest)))
	}
	var b pgx.Batch
	if len(over) > 0 {
		b.Queue(`UPDATE punctual.notified SET overlapping_since = NULL WHERE job_id = ANY($1::uuid[])`, over)
	}
	if len(jobs) > 0 {
		b.Queue(insertOverlapping, jobs, since, runs, skipped, said)
	}
	return tx.SendBatch(ctx, &b).Close()
}
