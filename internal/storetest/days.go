package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/days"
)

// DayTables counts the days that have partitions of all three tables, and returns the first and the last of these days,
// counted from today.
func (c Replica) DayTables() (have, from, to int) {
	c.T.Helper()
	err := c.DB.Callers.QueryRow(c.T.Context(), `
		WITH days AS (
			SELECT to_date(right(c.relname, 8), 'YYYYMMDD') - (now() AT TIME ZONE 'UTC')::date AS day
			FROM pg_inherits i
			JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent IN (
					'punctual.runs'::regclass, 'punctual.attempts'::regclass, 'punctual.run_data'::regclass)
				AND c.relkind = 'r'
			GROUP BY 1
			HAVING count(*) = 3)
		SELECT count(*), min(day), max(day)
		FROM days`).Scan(&have, &from, &to)
	Must(c.T, err)
	return have, from, to
}

// DropDays drops the tables of days, counted from today.
func (c Fixture) DropDays(from, to int) {
	c.T.Helper()
	for day := from; day <= to; day++ {
		suffix := time.Now().UTC().AddDate(0, 0, day).Format("20060102")
		c.Exec(`DROP TABLE IF EXISTS punctual.runs_` + suffix + `, punctual.attempts_` + suffix +
			`, punctual.run_data_` + suffix)
	}
}

// Archive does what the chore does until nothing is left.
func (c Fixture) Archive() {
	c.T.Helper()
	for left := true; left; {
		var err error
		left, err = c.Archives.Work(c.T.Context())
		Must(c.T, err)
	}
}

// RunsOf writes n runs of a job, a millisecond apart, from the given time after midnight on. The status is an SQL
// expression that may refer to i, the number of the run.
func (c Fixture) RunsOf(job uuid.UUID, n int, after time.Duration, status string) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant,
			job_version, lane, status, trigger, attempt)
		SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 19))::uuid,
			$1, at, at, at, at + interval '2 seconds', $2, 1, 5, `+status+`, 'schedule', 1
		FROM (SELECT i, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + $4::interval
				+ i * interval '1 ms' AS at
			FROM generate_series(1, $3::int) i) s`, job, c.Tenant, n, after)
}

// Midnight is the beginning of the day in UTC, by the database's clock.
func (c Fixture) Midnight() time.Time {
	c.T.Helper()
	return Value[time.Time](c, `SELECT date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'`)
}

// Ago returns noon, in UTC, of the day the given number of days ago.
func (c Fixture) Ago(days int) time.Time {
	c.T.Helper()
	return c.Clock().Truncate(24*time.Hour).AddDate(0, 0, -days).Add(12 * time.Hour)
}

// FreshDays makes the store forget which days it has looked at, as if an hour had passed.
func (c Fixture) FreshDays() {
	c.Days = days.New(c.DB, c.Archives, c.Options.Retention, c.Options.FailureRetention, c.Options.Log)
}

// Ran writes a run whose slot is at the given instant, with an attempt and a body, and makes its partition. If the
// status is final, the run ended at its slot.
func (c Fixture) Ran(job uuid.UUID, slot time.Time, status domain.Status) uuid.UUID {
	c.T.Helper()
	id := domain.SlotRunID(job, slot)
	c.Exec(`SELECT punctual.create_partitions($1::date, $1::date)`, slot)
	var finished *time.Time
	if status.Final() {
		finished = &slot
	}
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger, reason, fence)
		VALUES ($1, $2, $3, $3, $4, $5, 1, 5, $6::text, 'schedule', CASE WHEN $6::text IN ('dead', 'skipped') THEN 'timeout' END, 1)`,
		id, job, slot, finished, c.Tenant, string(status))
	c.Exec(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome)
		VALUES ($1, 1, 1, $2, $2, 'failed')`, id, slot)
	c.Exec(`INSERT INTO punctual.run_data (run_id, body) VALUES ($1, 'x')`, id)
	return id
}

// RanTwice writes a run that is dead and one that succeeded, of a day.
func (c Fixture) RanTwice(job uuid.UUID, day time.Time) map[string]uuid.UUID {
	c.T.Helper()
	return map[string]uuid.UUID{
		"dead":      c.Ran(job, day, domain.StatusDead),
		"succeeded": c.Ran(job, day.Add(time.Second), domain.StatusSucceeded),
	}
}

// Detach detaches the tables of a day.
func (c Fixture) Detach(day time.Time) {
	c.T.Helper()
	for _, parent := range []string{"runs", "attempts", "run_data"} {
		c.Exec(`ALTER TABLE punctual.` + parent + ` DETACH PARTITION punctual.` + parent + `_` + day.Format("20060102"))
	}
}

// Kept lists the runs that still exist with their attempt and body. A run that exists in part is listed as "half of"
// its name.
func (c Fixture) Kept(runs map[string]uuid.UUID) string {
	c.T.Helper()
	var names []string
	for name, id := range runs {
		n := c.Count(`SELECT (SELECT count(*) FROM punctual.runs WHERE id = $1)
			+ (SELECT count(*) FROM punctual.attempts WHERE run_id = $1)
			+ (SELECT count(*) FROM punctual.run_data WHERE run_id = $1)`, id)
		switch n {
		case 3:
			names = append(names, name)
		case 0:
		default:
			names = append(names, "half of "+name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Tables lists the existing tables of a day, attached or not.
func (c Fixture) Tables(day time.Time) string {
	c.T.Helper()
	return c.Text(`
		SELECT coalesce(string_agg(
			replace(c.relname, $1, 'DAY')
				|| CASE WHEN i.inhrelid IS NULL THEN ' detached' WHEN i.inhdetachpending THEN ' pending' ELSE '' END,
			', ' ORDER BY c.relname DESC), '')
		FROM pg_class c
		LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r'
			AND c.relname LIKE '%' || $1 || '%'`, day.Format("20060102"))
}

// RetireRuns drops the days past their retention, as a replica does every minute.
func (c Fixture) RetireRuns() {
	c.T.Helper()
	Must(c.T, c.Days.Retire(c.T.Context()))
}

// Uneven writes three days of a history in which a few jobs have nearly all runs: 8 frequent ones with 34,560 a day
// together, 60 rare ones that died once on the first of these days, and 40 that never ran. The 100 are watched for
// having no success, and for skipped slots.
func (c Replica) Uneven() {
	c.T.Helper()
	c.Many(8, "frequent", -1e15)
	c.Many(60, "rare", -1e15)
	c.Many(40, "never", -1e15)
	c.Exec(`UPDATE punctual.jobs SET labels = '{"team": "billing"}'`)
	c.PartitionsBack(3)
	const runs = `INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant, job_version,
			lane, status, trigger, attempt)
		SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8'
				|| substr(md5(j.id::text || at), 1, 19))::uuid,
			j.id, at, at, at, at + interval '1 s', 1, 1, 5, status, 'schedule', 1
		FROM punctual.jobs j, `
	const yesterday = `date_trunc('day', now(), 'UTC') - interval '1 day'`
	c.Exec(runs + `generate_series(` + yesterday + ` - interval '1 day', now(), '20 s') at, (VALUES ('succeeded')) v(status)
		WHERE j.name ~ '^frequent' ORDER BY at`)
	c.Exec(runs + `(VALUES (` + yesterday + ` - interval '1 hour', 'dead')) v(at, status) WHERE j.name ~ '^rare'`)
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger, attempts)
		SELECT r.id, r.job_id, 1, j.name, 1, r.scheduled_for, r.trigger, 1
		FROM punctual.jobs j JOIN punctual.runs r ON r.job_id = j.id WHERE r.status = 'dead'`)
	c.Exec(`INSERT INTO punctual.notified (job_id, look_at, overlapping_since)
		SELECT id, now(), now() FROM punctual.jobs WHERE name !~ '^frequent'`)
}
