package history

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/runs"
)

// What is recorded of a run in several tables is written in one transaction, so in one snapshot it agrees. Each
// statement looks at the runs of one day ($1 to $2), of the tenant and the job asked for ($3 to $5), and returns what
// does not agree. ofDay limits runs r.
const (
	ofDay = `r.id >= $1 AND r.id < $2 AND ($3 = 0 OR r.tenant = $3) AND ($4::uuid IS NULL OR r.job_id = $4)
  AND ($5 = '' OR r.job_id IN (SELECT n.id FROM punctual.jobs n WHERE n.name = $5))`
	contrary = `
SELECT 'contrary' AS kind, t.name AS tenant, coalesce(j.name, '') AS job, f.job_id, f.slot, ARRAY[f.id] AS runs,
       f.detail
FROM (`
	byRun = `) f(id, job_id, tenant, slot, detail)
JOIN punctual.tenants t ON t.id = f.tenant
LEFT JOIN punctual.jobs j ON j.id = f.job_id
WHERE f.detail IS NOT NULL
ORDER BY f.id LIMIT $6`
)

var contradictions = []string{
	// A dead run, unless it is a step, has its dead letter from the same transaction. That stays for at least as long.
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for, 'it is dead, and has no dead letter'
    FROM punctual.runs r JOIN punctual.jobs b ON b.id = r.job_id
    WHERE ` + ofDay + ` AND r.status = 'dead' AND r.trigger <> 'step'
      AND NOT EXISTS (SELECT FROM punctual.dead_letters d WHERE d.run_id = r.id)` + byRun,
	contrary + `
    SELECT d.run_id, d.job_id, d.tenant, d.scheduled_for, CASE
        WHEN r.id IS NULL THEN 'it has a dead letter, and there is no such run'
        WHEN r.status <> 'dead' THEN 'it has a dead letter, and is ' || r.status
        WHEN r.trigger = 'step' THEN 'it is a step, and has a dead letter'
        WHEN (r.job_id, r.tenant, r.job_version, r.scheduled_for, r.trigger::text, r.attempt)
             IS DISTINCT FROM (d.job_id, d.tenant, d.job_version, d.scheduled_for, d.trigger::text, d.attempts)
             OR r.reason IS DISTINCT FROM d.reason THEN 'its dead letter says something else of it'
        WHEN d.replayed_as >= $7 AND NOT EXISTS (SELECT FROM punctual.runs_of(ARRAY[d.replayed_as]))
        THEN 'its dead letter was replayed as run ' || d.replayed_as || ', and there is no such run' END
    FROM punctual.dead_letters d
    LEFT JOIN punctual.runs r ON r.id = d.run_id AND r.id >= $1 AND r.id < $2
    WHERE d.run_id >= $1 AND d.run_id < $2 AND ($3 = 0 OR d.tenant = $3) AND ($4::uuid IS NULL OR d.job_id = $4)
      AND ($5 = '' OR d.job_id IN (SELECT n.id FROM punctual.jobs n WHERE n.name = $5))` + byRun,
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for,
           'it replays run ' || d.run_id || ', whose dead letter says otherwise'
    FROM punctual.runs r JOIN punctual.dead_letters d ON d.run_id = r.replay_of
    WHERE ` + ofDay + ` AND r.trigger = 'replay' AND d.replayed_as IS DISTINCT FROM r.id` + byRun,
	// Each attempt that counts and was followed by another has a row, and the last one of a run that died or is retried.
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for,
           'of its first ' || n.needed || ' attempts, ' || a.n || ' are on record'
    FROM punctual.runs r
    CROSS JOIN LATERAL (SELECT r.attempt - CASE WHEN r.status IN ('dead', 'retrying') THEN 0 ELSE 1 END AS needed) n
    CROSS JOIN LATERAL (SELECT count(DISTINCT a.number) AS n FROM punctual.attempts a
                        WHERE a.run_id = r.id AND a.run_id >= $1 AND a.run_id < $2
                          AND a.number <= n.needed AND a.outcome <> 'interrupted') a
    WHERE ` + ofDay + ` AND (r.attempt > 1 OR r.status IN ('dead', 'retrying'))
      AND n.needed > 0 AND a.n < n.needed` + byRun,
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for, 'it was cancelled while it was sent, and no attempt is on record'
    FROM punctual.runs r
    WHERE ` + ofDay + ` AND r.status = 'cancelled' AND r.started_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM punctual.attempts a WHERE a.run_id = r.id AND a.run_id >= $1 AND a.run_id < $2)` + byRun,
	contrary + `
    SELECT a.run_id, r.job_id, coalesce(r.tenant, nullif($3, 0), 1), r.scheduled_for, CASE
        WHEN r.id IS NULL THEN 'it has attempts, and there is no such run'
        WHEN a.fence > r.fence OR r.fence IS NULL THEN 'an attempt has a greater fencing token than its latest one'
        WHEN a.fence = r.fence AND r.status IN ('succeeded', 'skipped')
        THEN 'it is ' || r.status || ', and its latest attempt was ' || a.outcome
        WHEN a.number > r.attempt + CASE a.outcome WHEN 'interrupted' THEN 1 ELSE 0 END
        THEN 'attempt ' || a.number || ' is on record, and its latest is ' || r.attempt
        WHEN a.finished_at < a.started_at THEN 'attempt ' || a.number || ' ended before it started' END
    FROM punctual.attempts a
    LEFT JOIN punctual.runs r ON r.id = a.run_id AND r.id >= $1 AND r.id < $2
    WHERE a.run_id >= $1 AND a.run_id < $2
      AND (r.id IS NULL AND $3 = 0 AND $4::uuid IS NULL AND $5 = '' OR ` + ofDay + `)` + byRun,
	// A report of success decides, whatever else was to become of the run.
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for, CASE
        WHEN p.tenant <> r.tenant THEN 'the report of its target is of another tenant'
        WHEN p.fence > r.fence OR r.fence IS NULL
        THEN 'its target has reported with a greater fencing token than that of its latest attempt'
        WHEN p.outcome IS NULL OR p.applied_at IS NULL THEN NULL
        WHEN p.outcome = 'succeeded' AND r.status <> 'succeeded'
             OR p.outcome = 'failed' AND p.fence = r.fence AND r.status = 'succeeded'
        THEN 'its target has reported ' || p.outcome || ', and it is ' || r.status END
    FROM punctual.reports p
    JOIN punctual.runs r ON r.id = p.run_id
    WHERE p.run_id >= $1 AND p.run_id < $2 AND ` + ofDay + byRun,
	// One token for two attempts. The sequence gives each once.
	contrary + `
    SELECT min(w.run)::uuid, min(w.job)::uuid, min(w.tenant), NULL::timestamptz, 'it has the fencing token ' || w.fence
           || ', and so has run ' || max(w.run)
    FROM (SELECT r.fence, r.id::text AS run, r.job_id::text AS job, r.tenant
          FROM punctual.runs r WHERE ` + ofDay + ` AND r.fence IS NOT NULL
          UNION ALL
          SELECT a.fence, r.id::text, r.job_id::text, r.tenant
          FROM punctual.attempts a JOIN punctual.runs r ON r.id = a.run_id
          WHERE a.run_id >= $1 AND a.run_id < $2 AND ` + ofDay + ` AND a.fence <> r.fence) w
    GROUP BY w.fence HAVING count(*) > 1` + byRun,
	contrary + `
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for, 'it is step ' || r.step || ' of run ' || r.parent_run
           || ', and there is no such run of the job'
    FROM punctual.runs r
    WHERE ` + ofDay + ` AND r.parent_run IS NOT NULL AND NOT EXISTS (
        SELECT FROM punctual.runs w
        WHERE w.id = r.parent_run AND w.id >= $1 AND w.id < $2
          AND w.job_id = r.job_id AND w.tenant = r.tenant)` + byRun,
	contrary + `
    SELECT y.run_id, y.job_id, y.tenant, r.scheduled_for, CASE
        WHEN r.id IS NULL THEN 'it waits in ready, and there is no such run'
        WHEN r.job_id <> y.job_id OR r.tenant <> y.tenant THEN 'it waits in ready as the run of another job' END
    FROM punctual.ready y
    LEFT JOIN punctual.runs r ON r.id = y.run_id AND r.id >= $1 AND r.id < $2
    WHERE y.run_id >= $1 AND y.run_id < $2 AND ($3 = 0 OR y.tenant = $3) AND ($4::uuid IS NULL OR y.job_id = $4)
      AND ($5 = '' OR y.job_id IN (SELECT n.id FROM punctual.jobs n WHERE n.name = $5))` + byRun,
}

// records compares runs with what other tables say of them, day by day, each in its own snapshot: so nothing reads,
// sorts or collects more than a day.
func (v *verification) records(ctx context.Context) error {
	for from := v.summary.From.Add(-runs.ClockSlack); from.Before(v.summary.To); {
		till := jobspec.Earlier(from.Truncate(24*time.Hour).Add(24*time.Hour), v.summary.To.Add(time.Millisecond))
		err := v.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
			for _, sql := range contradictions {
				if err := v.contradiction(ctx, tx, sql, domain.FirstRunID(from), domain.FirstRunID(till)); err != nil {
					return err
				}
			}
			return v.failed
		})
		if err != nil {
			return err
		}
		from = till
	}
	return nil
}

func (v *verification) contradiction(ctx context.Context, tx pgx.Tx, sql string, from, till uuid.UUID) error {
	args := []any{from, till, v.tenant, pg.OrNull(v.only), v.name, mostNamed}
	if sql == contradictions[1] {
		args = append(args, v.firstID())
	}
	return v.find(ctx, tx, "comparing runs with what is recorded of them", byName, sql, args...)
}
