package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// Without settings of its own, a table with constantly changing rows is vacuumed only when a fifth of it is dead.
func TestEveryTableWithChurnSaysWhenItIsVacuumed(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.DSN(t))
	execute(t, conn, `
		SELECT punctual.create_partitions((now() AT TIME ZONE 'UTC')::date + 8, (now() AT TIME ZONE 'UTC')::date + 8)`)
	for _, table := range []string{
		"schedules", "ready", "claims", "notices", "exclusive", "replicas", "idempotency_keys", "jobs", "job_versions",
	} {
		want(t, conn, table, `
			SELECT count(*) = 0
			FROM pg_class
			WHERE oid = ('punctual.' || $1)::regclass
			    AND reloptions::text ~ 'autovacuum_vacuum_threshold'
			    AND reloptions::text ~ 'autovacuum_vacuum_scale_factor'`)
	}
	// The partitions that the first migration made, and one that was made after the last migration.
	for _, parent := range []string{"runs", "attempts", "run_data"} {
		want(t, conn, parent, `
			SELECT count(*) <> count(*) FILTER (
			           WHERE reloptions @> '{autovacuum_freeze_min_age=0,autovacuum_vacuum_insert_scale_factor=1}')
			    OR count(*) < 10
			FROM pg_class c
			JOIN pg_inherits i ON i.inhrelid = c.oid
			WHERE i.inhparent = ('punctual.' || $1)::regclass`)
	}
	want(t, conn, "runs", `
		SELECT bool_or(NOT reloptions @> '{fillfactor=45}')
		FROM pg_class c
		JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE i.inhparent = ('punctual.' || $1)::regclass`)
}

// want fails the test if the query returns true, which means that a table lacks its settings.
func want(t *testing.T, conn *pgx.Conn, table, lacks string) {
	t.Helper()
	if read[bool](t, conn, lacks, table) {
		t.Errorf("punctual.%s lacks its settings", table)
	}
}
