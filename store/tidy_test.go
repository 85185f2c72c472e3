package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// tidyUp does the tidying of one minute.
func tidyUp(c Fixture) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.deployment SET tidied_at = '-infinity'`)
	for left := true; left; {
		var err error
		if left, err = c.Chore(c.T.Context(), "tidying"); err != nil {
			c.T.Fatal(err)
		}
	}
}

// shots writes n one-shots that were completed 8 days ago.
func shots(c Fixture, n int) {
	c.T.Helper()
	c.Exec(`WITH made AS (
			INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue, created_at)
			SELECT gen_random_uuid(), $2, 1, 'shot-' || i, 'active', 'at', 1, now() - interval '9 days'
			FROM generate_series(1, $1::int) i
			RETURNING id),
		versions AS (
			INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
			SELECT id, 1, now() - interval '9 days', 'active', '{"schedule":{"at":"2020-01-01T00:00:00Z"}}'
			FROM made)
		INSERT INTO punctual.schedules (job_id, tenant, version, lane, enabled, completed_at)
		SELECT id, $2, 1, 5, false, now() - interval '8 days' - random() * interval '1 hour'
		FROM made`, n, c.Tenant)
}

// versions gives a job n more versions, one a second, the last of them the given time ago. Each version arms a delay
// again.
func versions(c Fixture, job uuid.UUID, n int, ago time.Duration) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
		SELECT v.job_id, v.version + i, now() - $3::interval - ($2::int - i) * interval '1 s', 'active',
			json_build_object('name', 'x', 'schedule', json_build_object('delay', '5m'), 'description', i::text)
		FROM punctual.job_versions v, generate_series(1, $2::int) i
		WHERE v.job_id = $1
			AND v.version = (SELECT version FROM punctual.jobs WHERE id = $1)`, job, n, ago)
	c.Exec(`UPDATE punctual.jobs SET version = version + $2 WHERE id = $1`, job, n)
	c.Exec(`UPDATE punctual.schedules SET version = version + $2 WHERE job_id = $1`, job, n)
}

// More than a minute's worth of data has expired. It is gone after one pass.
//
// Keys, one-shots, deleted jobs, versions, letters, operations, audit entries.
//
//prove:data
func TestWhatIsKeptForATimeGoesAsFastAsItComes(t *testing.T) {
	t.Parallel()
	pgtest.Exhaustive(t, "its tables are large")
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name    string
		arrange func(c Fixture)
		left    string
	}{
		{"answers to an Idempotency-Key", func(c Fixture) {
			c.Exec(`INSERT INTO punctual.idempotency_keys (tenant, key, request_hash, status, response, created_at)
				SELECT $1, 'k' || i, '', 200, 'null', now() - interval '25 hours' FROM generate_series(1, 3000) i`, c.Tenant)
		}, `SELECT count(*) FROM punctual.idempotency_keys`},
		{
			"completed one-shots", func(c Fixture) { shots(c, 3000) },
			`SELECT count(*) FROM punctual.jobs WHERE state <> 'deleted'`,
		},
		{
			"completed one-shots whose slots were claimed", func(c Fixture) {
				shots(c, 3000)
				c.Exec(`INSERT INTO punctual.completions (look_at, job_ids, versions)
					SELECT now(), array_agg(job_id), array_agg(version) FROM punctual.schedules GROUP BY substr(job_id::text, 1, 1)`)
				c.Exec(`DELETE FROM punctual.schedules`)
			},
			`SELECT count(*) FROM punctual.jobs WHERE state <> 'deleted'`,
		},
		{"deleted jobs", func(c Fixture) {
			shots(c, 6000)
			c.Exec(`UPDATE punctual.schedules SET completed_at = NULL`)
			c.Exec(`UPDATE punctual.jobs SET state = 'deleted', named = false, deleted_at = now() - interval '31 days'`)
		}, `SELECT count(*) FROM punctual.jobs`},
		{"versions of a job that is written all the time", func(c Fixture) {
			job := c.Create("debounce", Delay(5*time.Minute))
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days'`)
			versions(c, job.ID, 3000, 33*day)
		}, `SELECT count(*) - 1 FROM punctual.job_versions`},
		{"dead letters that were resolved", func(c Fixture) {
			c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
					attempts, resolved_at)
				SELECT gen_random_uuid(), gen_random_uuid(), $1, 'x', 1, now(), 'manual', 1, now() - interval '91 days'
				FROM generate_series(1, 3000)`, c.Tenant)
		}, `SELECT count(*) FROM punctual.dead_letters`},
		{"operations that have ended", func(c Fixture) {
			c.Exec(`INSERT INTO punctual.operations (id, tenant, kind, state, request, matched, finished_at)
				SELECT gen_random_uuid(), $1, 'replay', 'done', '{}', 0, now() - interval '91 days'
				FROM generate_series(1, 3000)`, c.Tenant)
		}, `SELECT count(*) FROM punctual.operations`},
		{"the audit log", func(c Fixture) {
			c.Exec(`INSERT INTO punctual.audit_log (id, at, tenant, action, actor_kind)
				SELECT (rpad(lpad(to_hex((extract(epoch FROM now() - interval '400 days') * 1000)::bigint), 12, '0'), 20, '0')
						|| lpad(to_hex(i), 12, '0'))::uuid,
					now() - interval '400 days', $1, 'job.update', 'system'
				FROM generate_series(1, 12000) i`, c.Tenant)
		}, `SELECT count(*) FROM punctual.audit_log WHERE at < now() - interval '399 days'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewFixture(t)
			tt.arrange(c)
			if n := c.Count(tt.left); n < 3000 {
				t.Fatalf("there are %d", n)
			}
			tidyUp(c)
			c.WantCount(0, "rows are left", tt.left)
		})
	}
}

// Old versions that a row names stay.
//
// A version is removed if it ceased to be current before the retention began and no row names it.
//
//prove:data
func TestVersionsThatMatterStay(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	numbers := func(c Fixture, job uuid.UUID) (found []int) {
		for v := range 20 {
			if c.Count(`SELECT count(*) FROM punctual.job_versions WHERE job_id = $1 AND version = $2`, job, v) == 1 {
				found = append(found, v)
			}
		}
		return found
	}
	for _, tt := range []struct {
		name    string
		arrange func(c Fixture, job uuid.UUID)
		want    []int
	}{
		{"the last one of long ago, which still held", func(Fixture, uuid.UUID) {}, []int{6}},
		{"one that a run names which did not succeed", func(c Fixture, job uuid.UUID) {
			run := c.Ran(job, c.Ago(39), domain.StatusDead)
			c.Exec(`UPDATE punctual.runs SET job_version = 4 WHERE id = $1`, run)
		}, []int{4, 6}},
		{"one that a run names which is not over", func(c Fixture, job uuid.UUID) {
			run := c.Ran(job, c.Ago(39), domain.StatusPending)
			c.Exec(`UPDATE punctual.runs SET job_version = 3 WHERE id = $1`, run)
		}, []int{3, 6}},
		{"all of a job that has a backfill under way", func(c Fixture, job uuid.UUID) {
			c.Exec(`INSERT INTO punctual.operations (id, tenant, kind, request, matched, job_id, last_slot)
				VALUES (gen_random_uuid(), $1, 'backfill', '{"job_version":2}', 1, $2, now())`, c.Tenant, job)
		}, []int{1, 2, 3, 4, 5, 6}},
		{"one that armed a delay which is still to come, paused and resumed since", func(c Fixture, job uuid.UUID) {
			c.Exec(`UPDATE punctual.job_versions
				SET definition = '{"schedule":{"delay":"1000h"}}',
					state = CASE WHEN version % 2 = 0 THEN 'paused' ELSE 'active' END
				WHERE job_id = $1 AND version >= 3`, job)
		}, []int{3, 4, 5, 6}},
		{"the last pause and what ended it, from when success is expected", func(c Fixture, job uuid.UUID) {
			c.Exec(`UPDATE punctual.job_versions SET state = 'paused' WHERE job_id = $1 AND version IN (2, 4)`, job)
		}, []int{4, 5, 6}},
		{"whatever has ceased to hold since", func(c Fixture, job uuid.UUID) {
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '29 days'
				WHERE job_id = $1 AND version = 6`, job)
		}, []int{5, 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("debounce", Delay(5*time.Minute))
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days'`)
			versions(c, job.ID, 5, 39*day)
			tt.arrange(c, job.ID)
			tidyUp(c)
			if got := numbers(c, job.ID); !slices.Equal(got, tt.want) {
				t.Errorf("versions %d are left, want %d", got, tt.want)
			}
			if got := c.SaysOf("debounce", time.Now().Add(-45*day)); (tt.want[0] > 1) !=
				strings.HasPrefix(got, "unknown: The version of the job") {
				t.Errorf("of long ago it is explained: %s", got)
			}
		})
	}
}

// A secret value of a definition is removed with the last version that refers to it.
func TestSecretsOfForgottenVersionsGo(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("rotated", Never)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days'`)
	versions(c, job.ID, 5, 39*24*time.Hour)
	old, current := uuid.New(), uuid.New()
	c.Exec(`INSERT INTO punctual.data_keys (id, sealed) VALUES (1, 'sealed')`)
	for id, least := range map[uuid.UUID]int{old: 2, current: 4} {
		c.Exec(`INSERT INTO punctual.job_secrets (id, tenant, job_id, data_key, ciphertext) VALUES ($1, $2, $3, 1, 'x')`,
			id, c.Tenant, job.ID)
		c.Exec(`UPDATE punctual.job_versions
			SET definition = json_build_object(
				'schedule', '{}'::json,
				'target', json_build_object(
					'auth', json_build_object('value', json_build_object('sealed', $2::text))))
			WHERE job_id = $1 AND version >= $3`, job.ID, id.String(), least)
	}
	c.Exec(`UPDATE punctual.job_versions SET definition = replace(definition::text, $1, $2)::json
		WHERE version IN (2, 3)`, current.String(), old.String())
	c.Exec(`UPDATE punctual.job_versions SET definition = replace(definition::text, $1, $2)::json WHERE version >= 4`,
		old.String(), current.String())
	tidyUp(c)
	c.WantCount(0, "the value that no version has is there",
		`SELECT count(*) FROM punctual.job_secrets WHERE id = $1`, old)
	c.WantCount(1, "the value that the present version has is gone",
		`SELECT count(*) FROM punctual.job_secrets WHERE id = $1`, current)
}
