package migrations_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/migrations"
	"punctual/store/session"
)

// plain returns a database with the privileges that Postgres gives by itself. Those of other tests have fewer.
func plain(t *testing.T) *pgx.Conn {
	t.Helper()
	dsn := pgtest.EmptyDSN(t)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	return connect(t, dsn)
}

// asReader begins a transaction in a migrated database as a role that is a member of punctual_reader and nothing else.
func asReader(t *testing.T) *pgx.Conn {
	t.Helper()
	conn := plain(t)
	execute(t, conn, `
		BEGIN;
		CREATE ROLE auditor NOSUPERUSER;
		GRANT punctual_reader TO auditor;
		GRANT auditor TO CURRENT_USER;`)
	return conn
}

// evil makes a type of the reader's own. Whoever casts it runs a function of the reader's with the caster's rights.
func evil(target string) string {
	return strings.ReplaceAll(`
		SET LOCAL ROLE auditor;
		CREATE TYPE pg_temp.evil AS (x text);
		CREATE TEMP TABLE loot (as_role text, key text);
		GRANT ALL ON loot TO PUBLIC;
		CREATE FUNCTION pg_temp.steal(pg_temp.evil) RETURNS TARGET LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO pg_temp.loot SELECT current_user, encode(key, 'hex') FROM punctual.run_token_key;
			RETURN NULL;
		END $$;
		CREATE CAST (pg_temp.evil AS TARGET) WITH FUNCTION pg_temp.steal(pg_temp.evil) AS IMPLICIT;
		CREATE TEMP TABLE t (id uuid, job_id pg_temp.evil, tenant pg_temp.evil, status text);
		GRANT ALL ON t TO PUBLIC;`, "TARGET", target)
}

// attacks are the ways by which a function of the owner's could be brought to cast a value of the reader's own type.
var attacks = map[string]string{
	"expect_success": evil("uuid") + `
		CREATE TRIGGER t AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION punctual.expect_success();
		INSERT INTO t (job_id) VALUES (ROW('a'));`,
	"record_changes": evil("integer") + `
		CREATE TRIGGER t AFTER INSERT ON t REFERENCING NEW TABLE AS written
			FOR EACH STATEMENT EXECUTE FUNCTION punctual.record_changes();
		INSERT INTO t (id, tenant, status) VALUES (gen_random_uuid(), ROW('a'), 'succeeded');`,
}

// A trigger function with the rights of its owner, attached to a table of the reader's own, would run the reader's code
// with those rights.
func TestAReaderDoesNotBecomeTheOwner(t *testing.T) {
	t.Parallel()
	for function, attack := range attacks {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			conn := asReader(t)
			_, err := conn.Exec(t.Context(), attack)
			if want := "permission denied for function punctual." + function; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// Should somebody ever be granted such a function, it still refuses tables that it was not made for.
func TestATriggerFunctionOfTheOwnerRefusesOtherTables(t *testing.T) {
	t.Parallel()
	for function, attack := range attacks {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			conn := asReader(t)
			execute(t, conn, `INSERT INTO punctual.change_feeds (tenant) VALUES (1)`)
			execute(t, conn, `GRANT EXECUTE ON FUNCTION punctual.`+function+`() TO auditor`)
			_, err := conn.Exec(t.Context(), attack)
			if want := function + " is no trigger of"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// Functions that a later migration adds, and forgets to take from PUBLIC, are nobody's either.
func TestWhatALaterMigrationAddsIsNotForEverybody(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	files := nextRelease(t).(fstest.MapFS)
	files["00003_later.sql"] = &fstest.MapFile{Data: []byte(`-- +goose Up
		CREATE FUNCTION punctual.of_a_later_release() RETURNS integer LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';`)}
	if _, err := migrations.UpFrom(t.Context(), session.Database{URL: dsn}, files); err != nil {
		t.Fatal(err)
	}
	if anybody := read[bool](t, connect(t, dsn), forEverybody+` AND p.proname = 'of_a_later_release')`); anybody {
		t.Error("everybody may execute it")
	}
}

const forEverybody = `
	SELECT EXISTS (
		SELECT FROM pg_proc p
		CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		WHERE p.pronamespace = 'punctual'::regnamespace AND a.grantee = 0`

// The privileges that docs/security/roles.md tells, read from the catalogue. Whoever adds a function that runs with the
// rights of its owner, or a table that a reader must not see, meets this test and thinks about both.
func TestEachRoleMayDoWhatIsDocumented(t *testing.T) {
	t.Parallel()
	conn := plain(t)
	const (
		granted = `
			SELECT coalesce(array_agg(DISTINCT p.proname::text ORDER BY p.proname::text), '{}')
			FROM pg_proc p
			CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
			LEFT JOIN pg_roles r ON r.oid = a.grantee
			WHERE p.pronamespace = 'punctual'::regnamespace AND a.grantee <> p.proowner
			  AND (r.rolname, p.proname) IS DISTINCT FROM ('test', 'forget_audit_log') AND `
		ofReader = `r.rolname = 'punctual_reader' AND `
		ofTenant = `r.rolname = 'punctual_tenant' AND `
		caster   = `(p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype) OR EXISTS (
			SELECT FROM unnest(p.proargtypes) a(type) JOIN pg_type t ON t.oid = a.type WHERE t.typtype = 'p'))`
	)
	for _, c := range []struct {
		name, sql string
		want      []string
	}{
		{"functions for everybody", granted + `r.oid IS NULL`, nil},
		{"functions for other roles", granted + `r.rolname NOT IN ('punctual_reader', 'punctual_tenant')`, nil},
		{"triggers and functions of values of any type, for others than the owner", granted + caster, nil},
		{
			"functions of the owner's rights, for readers", granted + ofReader + `p.prosecdef`,
			[]string{"held_up_by", "is_claimed", "is_served", "runs_being_sent", "shortage"},
		},
		{
			"functions of the owner's rights, for tenants", granted + ofTenant + `p.prosecdef`,
			[]string{
				"acts_for_job", "acts_for_run", "create_partition_of", "held_up_by", "is_claimed", "is_served",
				"runs_being_sent", "shortage",
			},
		},
		{"volatile functions, for readers", granted + ofReader + `p.provolatile = 'v' AND NOT p.prosecdef`, []string{"system_identifier"}},
		{
			"volatile functions, for tenants", granted + ofTenant + `p.provolatile = 'v' AND NOT p.prosecdef`,
			[]string{"count_dated", "run_id_at", "system_identifier", "write_dated", "write_event"},
		},
		{"tables for everybody", relations + `a.grantee = 0`, nil},
		{"what readers write", relations + `r.rolname = 'punctual_reader' AND a.privilege_type <> 'SELECT'`, nil},
		{
			"what readers do not read", `
			SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c
			WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
			  AND NOT has_table_privilege('punctual_reader', c.oid, 'SELECT')`,
			[]string{
				"api_keys", "audit_entries", "data_keys", "idempotency_keys", "job_secrets", "request_rates", "run_token_key",
				"secret_uses", "secrets", "signing_secrets",
			},
		},
		{
			"what tenants see that has no policy", `
			SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c
			WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relrowsecurity
			  AND has_any_column_privilege('punctual_tenant', c.oid, 'SELECT, INSERT, UPDATE')`,
			[]string{"archives", "audit_entries", "counted_hours", "data_keys", "deployment", "queues"},
		},
		{
			"who may use the schema", `
			SELECT array_agg(a.grantee::regrole || ' ' || a.privilege_type ORDER BY a.grantee::regrole::text) FROM pg_namespace n
			CROSS JOIN LATERAL aclexplode(n.nspacl) a WHERE n.nspname = 'punctual' AND a.grantee <> n.nspowner`,
			[]string{"punctual_audit USAGE", "punctual_reader USAGE", "punctual_tenant USAGE"},
		},
		{
			"functions of the owner's rights that look things up by the caller's search path", `
			SELECT coalesce(array_agg(p.proname::text), '{}') FROM pg_proc p
			WHERE p.pronamespace = 'punctual'::regnamespace AND p.prosecdef
			  AND NOT 'search_path=pg_catalog, pg_temp' = ANY(coalesce(p.proconfig, '{}'))`, nil,
		},
	} {
		if diff := cmp.Diff(c.want, read[[]string](t, conn, c.sql), cmp.Transformer("", func(s []string) string {
			return strings.Join(s, " ")
		})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

const relations = `
	SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class c
	CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
	LEFT JOIN pg_roles r ON r.oid = a.grantee
	WHERE c.relnamespace = 'punctual'::regnamespace AND a.grantee <> c.relowner AND `

// A superuser may import an archive, or run a replica. The replicas of the owner must be able to remove those days.
func TestTheTablesOfDaysBelongToTheOwnerOfTheSchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Clone(t)
	super := connect(t, pgtest.Server(t).DSN(connect(t, dsn).Config().Database))
	execute(t, super, `
		SELECT punctual.create_partitions('2020-01-01', '2020-01-02');
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, status, trigger)
		SELECT punctual.partition_bound('2020-01-02'), gen_random_uuid(), now(), now(), now(), 1, 1, 5, 'dead', 'manual';
		ALTER TABLE punctual.runs DETACH PARTITION punctual.runs_20200102;
		ALTER TABLE punctual.attempts DETACH PARTITION punctual.attempts_20200102;
		ALTER TABLE punctual.run_data DETACH PARTITION punctual.run_data_20200102;
		SELECT punctual.retire_partitions('2020-01-02', true, 1);
		SELECT punctual.restore_partitions('2020-01-03')`)
	if n := read[int](t, super, `SELECT count(*) FROM pg_tables WHERE tablename ~ '_202001'`); n != 9 {
		t.Errorf("there are %d tables", n)
	}
	if others := read[string](t, super, `
		SELECT coalesce(string_agg(tablename || ' of ' || tableowner, ', '), '') FROM pg_tables
		WHERE tablename ~ '_202001' AND tableowner <> (
			SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'punctual')`); others != "" {
		t.Errorf("others own %s", others)
	}
}
