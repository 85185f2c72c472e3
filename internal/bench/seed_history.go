package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// historyDays is the number of days that seeded history covers: less than the default retention.
const historyDays = 28

// historyJobs is the largest number of jobs that seeded runs belong to.
const historyJobs = 10_000

// A seeded run was triggered by hand, which can happen at any time, and succeeded at its first attempt.
const insertHistory = `
INSERT INTO punctual.runs (id, job_id, replica, scheduled_for, due_at, created_at, claimed_at, started_at, finished_at,
    fence, tenant, job_version, lane, attempt, http_status, late, status, trigger)
SELECT (substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(gen_random_uuid()::text, 16))::uuid, j.id, $6::uuid,
       at, at, at, at + interval '4 ms', at + interval '5 ms', at + interval '40 ms',
       nextval('punctual.fences'), j.tenant, j.version, j.lane, 1, 200, false, 'succeeded', 'manual'
FROM (SELECT i, at, lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms
      FROM generate_series($1::int, $2::int) i,
           LATERAL (SELECT date_trunc('milliseconds', $3::timestamptz + i * $4::interval) AS at) a) r
JOIN unnest($5::uuid[]) WITH ORDINALITY k(id, n) ON k.n = 1 + r.i::bigint * 7919 % cardinality($5::uuid[])
JOIN LATERAL (
    SELECT s.job_id AS id, s.tenant, s.version, s.lane
    FROM punctual.schedules s
    WHERE s.job_id = k.id) j ON true
ORDER BY r.i`

// history writes finished runs of existing jobs, evenly spread from historyDays ago to a minute ago.
func (s *seeder) history(ctx context.Context, runs int) error {
	const length = historyDays * 24 * time.Hour
	var ids []uuid.UUID
	var from time.Time
	err := s.pool.QueryRow(ctx, `
		SELECT (SELECT array_agg(id)
		        FROM (SELECT id FROM punctual.jobs WHERE state = 'active' ORDER BY id LIMIT $1) j),
		       now() - $2::interval - interval '1 min',
		       punctual.create_partitions((now() AT TIME ZONE 'UTC' - $2::interval - interval '1 min')::date,
		           (now() AT TIME ZONE 'UTC')::date)`, historyJobs, length).Scan(&ids, &from, nil)
	if err != nil {
		return fmt.Errorf("seeding history: %w", err)
	}
	replica := uuid.New()
	return s.inBatches(ctx, "runs", 0, runs-1, func(ctx context.Context, first, last int) error {
		_, err := s.pool.Exec(ctx, insertHistory, first, last, from, length/time.Duration(runs), ids, replica)
		return err
	})
}
