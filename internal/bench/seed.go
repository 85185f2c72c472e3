package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"punctual/scheduler/jobspec"
	"punctual/store/session"
)

// A seeder fills the scratch schema with the rows that Punctual itself would write, but faster: minutes instead of
// hours through the API. It writes several batches at the same time.
type seeder struct {
	pool *pgxpool.Pool
	say  func(format string, args ...any)
}

// newSeeder opens connections of its own.
func newSeeder(ctx context.Context, dsn string, say func(string, ...any)) (*seeder, error) {
	cfg, err := session.Database{URL: dsn}.Config()
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "punctual bench"
	cfg.MaxConns = int32(min(max(runtime.NumCPU(), 2), 8))
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &seeder{pool: pool, say: say}, nil
}

func (s *seeder) close() { s.pool.Close() }

// seed says which jobs to write. A job's name is the prefix and a number.
type seed struct {
	prefix      string
	first, last int
	tenants     []int32 // the jobs are dealt out to them in turn
	url         string
	at          time.Time // due time of one-shots; zero: the jobs are at rest
}

// defaultTenant is the tenant that the first migration creates.
var defaultTenant = []int32{1}

// Jobs at rest fire daily. Their first slots are spread over five days from tomorrow, so that none is due during a
// measurement. The stride 7919 puts neighbours of the table far apart in the index. The time in the ids moves on by a
// millisecond every thousand jobs, as it does with the batch route.
const insertJobs = `
WITH new AS MATERIALIZED (
	SELECT i, (substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS id,
	       $3::text || '-' || lpad(i::text, 8, '0') AS name,
	       'team-' || i % 50 AS team,
	       ($4::int[])[1 + i % cardinality($4::int[])] AS tenant,
	       coalesce($5::timestamptz,
	           date_trunc('day', $6::timestamptz) + interval '36 h' + i::bigint * 7919 % 432000 * interval '1 s') AS slot
	FROM (SELECT i, lpad(to_hex((extract(epoch FROM $6::timestamptz) * 1000)::bigint + i / 1000), 12, '0') AS ms
	      FROM generate_series($1::int, $2::int) i) n),
made AS (
	INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue, labels, created_at, updated_at)
	SELECT id, tenant, 1, name, 'active', $7::text, $8::smallint / 4, jsonb_build_object('team', team), $6, $6
	FROM new),
versions AS (
	INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
	SELECT id, 1, $6, 'active',
	       replace(replace(replace($9::text, '@name@', name), '@team@', team),
	           '@slot@', to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))::json
	FROM new)
INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
SELECT id, slot, slot, tenant, 1, $8::smallint, true
FROM new`

// jobs writes jobs. The due time of one-shots must be a whole second.
func (s *seeder) jobs(ctx context.Context, j seed) error {
	definition, err := j.template()
	if err != nil {
		return err
	}
	var at *time.Time
	if !j.at.IsZero() {
		at = &j.at
	}
	var now time.Time
	var queue int16
	if err := s.pool.QueryRow(ctx, `
		SELECT now(), id
		FROM punctual.queues
		WHERE name = $1`, jobspec.DefaultQueue).Scan(&now, &queue); err != nil {
		return fmt.Errorf("seeding jobs: %w", err)
	}
	full := jobspec.Definition{}.WithDefaults()
	return s.inBatches(ctx, "jobs", j.first, j.last, func(ctx context.Context, first, last int) error {
		_, err := s.pool.Exec(ctx, insertJobs, first, last, j.prefix, j.tenants, at, now, string(j.schedule().Kind()),
			full.Priority.Lane(queue), definition)
		return err
	})
}

func (j seed) schedule() (s jobspec.Schedule) {
	var slot jobspec.Instant
	_ = slot.UnmarshalText([]byte("@slot@")) // cannot fail
	if j.at.IsZero() {
		return jobspec.Schedule{Every: jobspec.DurationOf(24 * time.Hour), StartsAt: slot}
	}
	return jobspec.Schedule{At: slot}
}

// template returns a definition as the store writes it, with placeholders that each job replaces.
func (j seed) template() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(jobspec.Definition{
		Name:        "@name@",
		Description: "Yesterday's invoices of @team@",
		Labels:      map[string]string{"team": "@team@"},
		Schedule:    j.schedule(),
		Target:      jobspec.Target{URL: j.url, Body: json.RawMessage(`{"range":"yesterday","kind":"invoices"}`)},
	})
	return string(bytes.TrimSpace(b.Bytes())), err
}

// seedBatch is the number of rows in one transaction: large enough to be fast, small enough for memory.
const seedBatch = 20_000

// inBatches calls write for the numbers from first to last, several batches at a time. It ends at the first error.
func (s *seeder) inBatches(
	ctx context.Context, what string, first, last int,
	write func(ctx context.Context, first, last int) error,
) error {
	writing, going := errgroup.WithContext(ctx)
	writing.SetLimit(int(s.pool.Config().MaxConns))
	told := time.Now()
	for from := first; from <= last && going.Err() == nil; from += seedBatch {
		if time.Since(told) > 10*time.Second {
			s.say("seeding: %d of %d %s", from-first, last-first+1, what)
			told = time.Now()
		}
		writing.Go(func() error { return write(going, from, min(from+seedBatch-1, last)) })
	}
	if err := writing.Wait(); err != nil {
		return fmt.Errorf("seeding %s: %w", what, err)
	}
	return ctx.Err()
}

// settle runs VACUUM (ANALYZE) now rather than when autovacuum gets to it, and a checkpoint if it may. So neither
// happens during the next measurement, however many rows were written.
func (s *seeder) settle(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx,
		`VACUUM (ANALYZE) punctual.jobs, punctual.job_versions, punctual.schedules, punctual.runs`); err != nil {
		return fmt.Errorf("vacuuming: %w", err)
	}
	_, _ = s.pool.Exec(ctx, `CHECKPOINT`)
	return ctx.Err()
}

// historyDays is the number of days that seeded history covers: less than the default retention.
const historyDays = 28

// Seeded history is uneven, as history is: frequentJobs jobs share nearly all runs, one after the other at even
// intervals. Besides them, up to dailyJobs jobs have one run a day, and all others have none.
const (
	frequentJobs = 20
	dailyJobs    = 500
)

// seededRuns writes a run for each job and instant (at) of a query. It was triggered by hand, which can happen at any
// time, and succeeded at its first attempt.
const seededRuns = `
INSERT INTO punctual.runs (id, job_id, replica, scheduled_for, due_at, created_at, claimed_at, started_at, finished_at,
    fence, tenant, job_version, lane, attempt, http_status, late, status, trigger, triggered_by)
SELECT (substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(gen_random_uuid()::text, 16))::uuid, j.id, $1::uuid,
       at, at, at, at + interval '4 ms', at + interval '5 ms', at + interval '40 ms',
       nextval('punctual.fences'), j.tenant, j.version, j.lane, 1, 200, false, 'succeeded', 'manual',
       'a caller without sign-in'
FROM (SELECT *, lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms FROM (%s) a) r
JOIN LATERAL (
    SELECT s.job_id AS id, s.tenant, s.version, s.lane
    FROM punctual.schedules s
    WHERE s.job_id = r.job) j ON true
ORDER BY r.at`

var (
	insertFrequent = fmt.Sprintf(seededRuns, `
		SELECT ($2::uuid[])[1 + i % cardinality($2::uuid[])] AS job,
		       date_trunc('milliseconds', $3::timestamptz + i * $4::interval) AS at
		FROM generate_series($5::int, $6::int) i`)
	insertDaily = fmt.Sprintf(seededRuns, `
		SELECT k.id AS job, $3::timestamptz + day * interval '1 day' + k.n * interval '1 day' / cardinality($2::uuid[]) AS at
		FROM unnest($2::uuid[]) WITH ORDINALITY k(id, n), generate_series($4::int, $5::int) day`)
)

// history writes finished runs of existing jobs, from historyDays ago to a minute ago.
func (s *seeder) history(ctx context.Context, runs int) error {
	const length = historyDays * 24 * time.Hour
	daily := min(dailyJobs, runs/historyDays/4)
	var often, rarely []uuid.UUID
	var from time.Time
	err := s.pool.QueryRow(ctx, `
		WITH chosen AS (
		    SELECT id, row_number() OVER (ORDER BY id) AS n
		    FROM (SELECT id FROM punctual.jobs WHERE state = 'active' ORDER BY id LIMIT $1::int + $2::int) j)
		SELECT (SELECT array_agg(id ORDER BY n) FROM chosen WHERE n <= $1::int),
		       coalesce((SELECT array_agg(id ORDER BY n) FROM chosen WHERE n > $1::int), '{}'),
		       now() - $3::interval - interval '1 min',
		       punctual.create_partitions((now() AT TIME ZONE 'UTC' - $3::interval - interval '1 min')::date,
		           (now() AT TIME ZONE 'UTC')::date)`, frequentJobs, daily, length).Scan(&often, &rarely, &from, nil)
	if err != nil {
		return fmt.Errorf("seeding history: %w", err)
	}
	replica := uuid.New()
	if len(rarely) > 0 {
		if _, err := s.pool.Exec(ctx, insertDaily, replica, rarely, from, 0, historyDays-1); err != nil {
			return fmt.Errorf("seeding the runs of daily jobs: %w", err)
		}
	}
	runs -= len(rarely) * historyDays
	return s.inBatches(ctx, "runs", 0, runs-1, func(ctx context.Context, first, last int) error {
		_, err := s.pool.Exec(ctx, insertFrequent, replica, often, from, length/time.Duration(runs), first, last)
		return err
	})
}
