package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/cron"
	"punctual/store/pg"
)

// rezoneBatch is how many jobs one transaction of Rezone covers: it computes their next slots while their rows are
// locked.
const rezoneBatch = 200

// Rezone computes the next slots of zoned jobs again if they were computed with other time zone data than this
// binary's. It returns how many next slots moved. Slots that are due already stay as they are.
func (s *Store) Rezone(ctx context.Context) (int, error) {
	ctx = pg.Runs.In(ctx)
	var have string
	if err := s.db.Conns(ctx).QueryRow(ctx, `SELECT zone_data FROM punctual.deployment`).Scan(&have); err != nil {
		return 0, fmt.Errorf("reading the time zone data's version: %w", err)
	}
	version := cron.ZoneDataVersion()
	if have == version {
		return 0, nil
	}
	moved := 0
	for after := (uuid.UUID{}); ; {
		last, n, err := s.rezoneSome(ctx, after)
		if err != nil {
			return moved, fmt.Errorf("computing next slots with time zone data %s: %w", version, err)
		}
		moved += n
		if last == uuid.Nil {
			break
		}
		after = last
	}
	if _, err := s.db.Conns(ctx).Exec(ctx, `UPDATE punctual.deployment SET zone_data = $1`, version); err != nil {
		return moved, fmt.Errorf("writing the time zone data's version: %w", err)
	}
	return moved, nil
}

// rezoneSome handles some jobs after the given id. It returns the last one it handled, or uuid.Nil at the end.
func (s *Store) rezoneSome(ctx context.Context, after uuid.UUID) (last uuid.UUID, moved int, err error) {
	err = s.db.InTx(ctx, pg.Everybody, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT s.job_id, s.tenant, s.version, s.scheduled_for, now(), v.definition
			FROM punctual.schedules s
			JOIN punctual.jobs j ON j.id = s.job_id
			JOIN punctual.job_versions v ON v.job_id = s.job_id AND v.version = s.version
			WHERE s.job_id > $1 AND j.kind = 'cron' AND s.scheduled_for > now()
			  AND v.definition #>> '{schedule,timezone}' IS NOT NULL
			ORDER BY s.job_id LIMIT $2 FOR NO KEY UPDATE OF s`, after, rezoneBatch)
		if err != nil {
			return err
		}
		var ids []uuid.UUID
		var slots, due []time.Time
		key, tenant, slot, now, raw := jobVersion{}, int32(0), time.Time{}, time.Time{}, []byte(nil)
		_, err = pgx.ForEachRow(rows, []any{&key.id, &tenant, &key.version, &slot, &now, &raw}, func() error {
			last = key.id
			job, err := s.compile(key, tenant, raw)
			if err != nil {
				s.options.Log.Error("a job's next slot cannot be computed again", "job", key.id, "error", err)
				return nil
			}
			next, ok := job.Timetable.First(now)
			if ok && !next.At.Equal(slot) {
				ids, slots, due = append(ids, key.id), append(slots, next.At), append(due, job.Timetable.Due(next.At, nil))
			}
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		moved = len(ids)
		_, err = tx.Exec(ctx, `
			UPDATE punctual.schedules s SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at
			FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS u(job_id, scheduled_for, next_run_at)
			WHERE s.job_id = u.job_id`, ids, slots, due)
		return err
	})
	return last, moved, err
}
