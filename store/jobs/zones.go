package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/cron"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// rezoneBatch is how many jobs one transaction of Rezone covers: it computes their next slots while their rows are
// locked.
const rezoneBatch = 200

// Rezone computes the next slots of zoned jobs, and of one-shots by local time, again if they were computed with other
// time zone data than this binary's. It returns how many next slots moved. Slots that are due already stay as they are.
// One replica at a time does so.
//
// During an upgrade, replicas with older data go on with theirs. So the slots are computed when the first replica with
// newer data starts, and once more when the last one with older data is gone. Older data is used again when no replica
// with newer data is live, as after a return to the version before. A job whose row somebody has locked has its turn
// the next time.
func (s *Jobs) Rezone(ctx context.Context) (moved int, err error) {
	version := cron.Zones().Release
	var have string
	var mixed, others, newer bool
	err = s.db.Chores.QueryRow(ctx, `
		SELECT zone_data, zones_mixed,
		       EXISTS (SELECT FROM punctual.replicas WHERE zone_data <> $1),
		       EXISTS (SELECT FROM punctual.replicas WHERE zone_data > $1)
		FROM punctual.deployment`, version).Scan(&have, &mixed, &others, &newer)
	if err != nil {
		return 0, fmt.Errorf("reading the time zone data's version: %w", err)
	}
	if version < have && newer || have == version && (others || !mixed) {
		if others && !mixed {
			_, err = s.zonesExec(ctx, `UPDATE punctual.deployment SET zones_mixed = true`)
		}
		return 0, err
	}
	mine, err := s.zonesExec(ctx, `
		UPDATE punctual.deployment SET rezoned_at = clock_timestamp() WHERE rezoned_at < now() - interval '1 min'`)
	if err != nil || mine == 0 {
		return 0, err
	}
	var r rezoning
	for more := true; more; {
		if more, err = r.some(ctx, s); err != nil {
			return r.moved, fmt.Errorf("computing next slots with time zone data %s: %w", version, err)
		}
	}
	if _, err := s.zonesExec(ctx, `
		UPDATE punctual.deployment
		SET zone_data = $1, rezoned_at = '-infinity',
		    zones_mixed = $2 OR EXISTS (SELECT FROM punctual.replicas WHERE zone_data <> $1)`,
		version, others || r.locked); err != nil {
		return r.moved, err
	}
	if r.moved > 0 {
		s.options.Log.Info("next slots computed again with other time zone data", "moved", r.moved, "zone_data", version)
	}
	return r.moved, nil
}

// zonesExec changes the deployment's row, and returns how many rows it changed.
func (s *Jobs) zonesExec(ctx context.Context, sql string, args ...any) (changed int64, err error) {
	changed, err = pg.Do(ctx, s.db.Chores.For(pg.Everybody), func(tx *pg.Tx) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	})
	return changed, pg.Wrap("writing the time zone data's version", err)
}

// rezoning is a pass over all zoned jobs, in the order of their ids.
type rezoning struct {
	last   uuid.UUID // the last job of the batch before
	moved  int       // next slots that moved
	locked bool      // somebody else had locked the row of a job
}

// selectZoned reads the next zoned jobs, and locks the schedules of those whose next slot is ahead. The slot is null
// where somebody else has locked it.
const selectZoned = `
WITH page AS (
    SELECT s.job_id, s.tenant, s.version, v.definition
    FROM punctual.schedules s
    JOIN punctual.jobs j ON j.id = s.job_id
    JOIN punctual.job_versions v ON v.job_id = s.job_id AND v.version = s.version
    WHERE s.job_id > $1 AND j.kind IN ('cron', 'at') AND s.scheduled_for > now()
      AND v.definition #>> '{schedule,timezone}' IS NOT NULL
    ORDER BY s.job_id LIMIT $2),
free AS MATERIALIZED (
    SELECT s.job_id, s.version, s.scheduled_for
    FROM punctual.schedules s
    WHERE s.job_id IN (SELECT job_id FROM page) AND s.scheduled_for > now()
    ORDER BY s.job_id FOR NO KEY UPDATE SKIP LOCKED)
SELECT p.job_id, p.tenant, p.version, p.definition, f.scheduled_for, now()
FROM page p LEFT JOIN free f ON f.job_id = p.job_id AND f.version = p.version
ORDER BY p.job_id`

// some handles the next batch of jobs. It reports whether there may be more.
func (r *rezoning) some(ctx context.Context, s *Jobs) (more bool, err error) {
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		rows := pg.Query(ctx, tx, selectZoned, r.last, rezoneBatch)
		var moves []claim.Move
		var key definitions.Version
		var tenant int32
		var raw []byte
		var slot *time.Time
		var now time.Time
		_, err = pgx.ForEachRow(rows, []any{&key.Job, &tenant, &key.Version, &raw, &slot, &now}, func() error {
			r.last, more = key.Job, true
			if slot == nil {
				r.locked = true
				return nil
			}
			job, err := s.definitions.CompileText(key, tenant, raw)
			if err != nil {
				s.options.Log.Error("a job's next slot cannot be computed again", "job", key.Job, "error", err)
				return nil
			}
			next, ok := job.Timetable.First(now)
			if ok && !next.At.Equal(*slot) {
				moves = append(moves, claim.Move{
					Job: key.Job, ScheduledFor: next.At, NextRunAt: job.Timetable.Due(next.At, nil),
				})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := pg.Exec(ctx, tx, `UPDATE punctual.deployment SET rezoned_at = clock_timestamp()`); err != nil {
			return err
		}
		if len(moves) == 0 {
			return nil
		}
		r.moved += len(moves)
		return claim.WriteMoves(ctx, tx, moves)
	})
	return more, err
}
