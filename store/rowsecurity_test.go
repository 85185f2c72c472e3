package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/aside"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// forAll lists the tables that every tenant may read, because they hold no tenant's data. Data keys are sealed. In
// deployment a tenant may also raise the count of changed secrets. Of counted_hours a tenant may read when each hour
// was counted. Archives name no run.
var forAll = []string{"archives", "counted_hours", "data_keys", "deployment", "queues"}

// guardedTables returns all tables on which the tenants' role has any privilege, except forAll. It asks the database,
// so that a new table without a policy is among them.
func guardedTables(c Fixture) []string {
	c.T.Helper()
	tables := Column[string](c, `
		SELECT c.relname
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
			AND NOT c.relispartition
			AND (has_table_privilege(
					'punctual_tenant', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
				OR has_any_column_privilege('punctual_tenant', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
		ORDER BY c.relname`)
	return slices.DeleteFunc(tables, func(table string) bool { return slices.Contains(forAll, table) })
}

// furnish writes a row of the tenant into every table.
func furnish(c Fixture) {
	c.T.Helper()
	job := c.Create("theirs", Forbid)
	run, err := c.For(c.Tenant).TriggerJob(c.T.Context(), "theirs", jobs.TriggerRequest{Body: []byte(`1`)})
	c.Must(err)
	c.Aside.PutRun(c.T.Context(), aside.Outcome, run.ID, errors.New("refused"))
	if _, _, err := c.Idempotent(c.T.Context(), c.Tenant, store.Idempotency{Key: "theirs"},
		func(store.Writer) (store.Answer, error) { return store.Answer{Status: 200}, nil }); err != nil {
		c.T.Fatal(err)
	}
	resolve := letters.BulkRequest{Kind: letters.OperationResolve}
	if _, err := c.For(c.Tenant).StartOperation(c.T.Context(), resolve); err != nil {
		c.T.Fatal(err)
	}
	pause := letters.JobsRequest{Change: jobs.Change{Action: jobs.PauseMany}}
	if _, err := c.For(c.Tenant).StartJobs(c.T.Context(), pause); err != nil {
		c.T.Fatal(err)
	}
	c.Exec(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome)
		VALUES ($1, 1, 1, now(), now(), 'failed')`, run.ID)
	c.Date("theirs", jobs.DateRequest{Delay: time.Hour})
	c.Emit("theirs", `1`)
	c.Exec(`INSERT INTO punctual.dated_work (job_id, tenant) VALUES ($1, $2)`, job.ID, c.Tenant)
	c.Exec(`INSERT INTO punctual.dated_sequences (job_id, key, tenant, sequence, run_id, due_at)
		VALUES ($1, 'key', $2, 1, $3, now())`, job.ID, c.Tenant, run.ID)
	c.Exec(`INSERT INTO punctual.cancels (run_id, replica) VALUES ($1, gen_random_uuid())`, run.ID)
	c.Exec(`INSERT INTO punctual.reports (run_id, tenant, fence, outcome) VALUES ($1, $2, 1, 'failed')`, run.ID, c.Tenant)
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts)
		VALUES ($1, $2, $3, 'theirs', 1, now(), 'manual', 1)`, run.ID, job.ID, c.Tenant)
	c.Exec(`INSERT INTO punctual.notified (job_id) VALUES ($1)`, job.ID)
	c.Exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
		VALUES ($1, $2, 1, 'dead', $3, now())`, job.ID, c.Tenant, run.ID)
	c.Exec(`INSERT INTO punctual.lifecycle_events (recipient_id, tenant, url, event, run_id, job_id, scheduled_for, attempt)
		VALUES (gen_random_uuid(), $2, 'https://theirs.example/', 'started', $3, $1, now(), 1)`, job.ID, c.Tenant, run.ID)
	c.Exec(`INSERT INTO punctual.notice_messages (id, tenant, format, url, happened_at, headline, events, jobs)
		VALUES (gen_random_uuid(), $1, 'json', 'https://theirs.example/', now(), 'theirs', '{}', '{}')`, c.Tenant)
	c.Exec(`WITH recipient AS (
			INSERT INTO punctual.outbox (id, tenant, format, url)
			VALUES (gen_random_uuid(), $2, 'json', 'https://theirs.example/')
			RETURNING id)
		INSERT INTO punctual.notice_states (job_id, recipient_id, resolves)
		SELECT $1, id, true FROM recipient`, job.ID, c.Tenant)
	c.Exec(`INSERT INTO punctual.api_keys (id, tenant, name, prefix, hash, role, created_by)
		VALUES (gen_random_uuid(), $1, 'theirs', 'punctual_theirs', sha256('theirs'), 'admin', 'test')`, c.Tenant)
	c.Exec(`INSERT INTO punctual.grants (schema, tenant, role, created_by)
		VALUES ('theirs', $1, 'theirs', 'test')`, c.Tenant)
	c.Exec(`INSERT INTO punctual.request_rates (tenant, spent_until, granted) VALUES ($1, now(), 1)`, c.Tenant)
	c.Exec(`WITH feed AS (INSERT INTO punctual.change_feeds (tenant) VALUES ($1) RETURNING *)
		INSERT INTO punctual.changes (feed, tenant, runs) SELECT id, tenant, '{}' FROM feed`, c.Tenant)
	c.Exec(`INSERT INTO punctual.tenant_usage (tenant) VALUES ($1)`, c.Tenant)
	c.Exec(`INSERT INTO punctual.tenant_jobs (tenant) VALUES ($1)`, c.Tenant)
	c.Exec(`INSERT INTO punctual.allowances (tenant, replica, slots) VALUES ($1, gen_random_uuid(), 1)`, c.Tenant)
	c.Exec(`WITH r AS (
			INSERT INTO punctual.replicas (id, host, version, queues)
			VALUES (gen_random_uuid(), 'h', 'v', '{}')
			RETURNING id)
		INSERT INTO punctual.holds (replica, tenant, held_by, state, host, path, failures, last_error, since)
		SELECT id, $1, 'breaker a:80', 'open', 'a:80', '', 10, 'refused', now()
		FROM r`, c.Tenant)
	c.Exec(`INSERT INTO punctual.data_keys (id, sealed) VALUES (1, 'sealed')`)
	c.Exec(`INSERT INTO punctual.secrets (id, tenant, name, data_key, ciphertext)
		VALUES (gen_random_uuid(), $1, 'theirs', 1, 'theirs')`, c.Tenant)
	c.Exec(`INSERT INTO punctual.signing_secrets (id, tenant, data_key, ciphertext)
		VALUES (gen_random_uuid(), $1, 1, 'theirs')`, c.Tenant)
	c.Exec(`INSERT INTO punctual.job_secrets (id, tenant, job_id, data_key, ciphertext)
		VALUES (gen_random_uuid(), $1, $2, 1, 'theirs')`, c.Tenant, job.ID)
	c.Exec(`INSERT INTO punctual.links (job_id, position, target_id, run_when) VALUES ($1, 1, $1, 'ended')`, job.ID)
	c.Exec(`INSERT INTO punctual.secret_uses (tenant, name, job_id) VALUES ($1, 'theirs', $2)`, c.Tenant, job.ID)
	c.Exec(`INSERT INTO punctual.limits (tenant, name, max_running) VALUES ($1, 'theirs', 1)`, c.Tenant)
	c.Exec(`INSERT INTO punctual.limit_holders (tenant, name, run_id) VALUES ($1, 'theirs', gen_random_uuid())`, c.Tenant)
	c.Exec(`INSERT INTO punctual.job_limits (job_id, tenant, name) VALUES ($1, $2, 'theirs')`, job.ID, c.Tenant)
	c.Exec(`INSERT INTO punctual.workflows (run_id, tenant) VALUES (gen_random_uuid(), $1)`, c.Tenant)
	c.Exec(`INSERT INTO punctual.hourly_runs (hour, tenant, round, succeeded, dead, cancelled, skipped, unended, lateness)
		VALUES (now(), $1, 1, 1, 0, 0, 0, 0, '{}')`, c.Tenant)
	c.Exec(`INSERT INTO punctual.daily_usage (id, day, tenant, runs, attempts, seconds, bytes)
		VALUES (gen_random_uuid(), now(), $1, 1, 1, 1, 1)`, c.Tenant)
}

// A statement forgets its tenant. It reads and writes no row of another tenant in any table.
//
// Direct and through PgBouncer.
//
//prove:tenants
func TestAStatementWithoutItsTenantSeesAndWritesNothingOfAnother(t *testing.T) {
	t.Parallel()
	direct := pgtest.DSN(t)
	owner := OpenFixture(t, store.Options{DatabaseURL: direct, MaxConns: 4})
	furnish(owner)
	intruder := owner.Intruder()
	for name, dsn := range map[string]string{
		"direct": direct, "pgbouncer": pgtest.PgBouncer(t, pgtest.Server(t), direct),
	} {
		c := OpenFixture(t, store.Options{DatabaseURL: dsn, MaxConns: 4})
		c.Tenant = intruder.Tenant
		tables := guardedTables(c)
		if len(tables) < 16 {
			t.Fatalf("%d tables", len(tables))
		}
		for _, table := range tables {
			t.Run(name+"/"+table, func(t *testing.T) {
				c := c
				c.T = t
				cannotReach(c, table)
			})
		}
	}
}

// cannotReach fails the test if the tenant, which has no rows in the table, can reach another tenant's rows.
func cannotReach(c Fixture, table string) {
	c.T.Helper()
	ctx := c.T.Context()
	all := `SELECT count(*) FROM punctual.` + table
	there := c.Count(all)
	own := 0
	if table == "tenants" {
		there, own = there-1, 1
	}
	if there == 0 {
		c.T.Fatal("there is no row of another tenant: furnish one")
	}
	var seen int
	if err := c.DB.Callers.Reader(c.Tenant).QueryRow(ctx, all).Scan(&seen); err != nil && !Denied(err) {
		c.T.Fatal(err)
	}
	if seen != own {
		c.T.Errorf("a read sees %d rows, %d of its own", seen, own)
	}
	var column, theirs string
	err := c.DB.Callers.QueryRow(ctx, fmt.Sprintf(`SELECT
		(SELECT quote_ident(attname)
			FROM pg_attribute
			WHERE attrelid = 'punctual.%[1]s'::regclass AND attnum > 0 AND attidentity = ''
			ORDER BY attnum
			LIMIT 1),
		(SELECT to_jsonb(x)::text FROM punctual.%[1]s x LIMIT 1)`, table)).Scan(&column, &theirs)
	Must(c.T, err)
	for _, sql := range []string{
		fmt.Sprintf(`UPDATE punctual.%[1]s SET %[2]s = %[2]s`, table, column),
		fmt.Sprintf(`DELETE FROM punctual.%s`, table),
	} {
		err := c.DB.Callers.InTx(ctx, c.Tenant, func(tx *pg.Tx) error {
			done, err := tx.Exec(ctx, sql)
			if err == nil && done.RowsAffected() > 0 {
				c.T.Errorf("%s: %d rows", sql, done.RowsAffected())
			}
			return err
		})
		if err != nil && !Denied(err) {
			c.T.Errorf("%s: %v", sql, err)
		}
	}
	change := `{}`
	if table == "audit_entries" { // a view checks the row only after it was written, so the key must not exist already
		change = `{"id":"` + uuid.NewString() + `"}`
	}
	err = c.DB.Callers.InTx(ctx, c.Tenant, func(tx *pg.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO punctual.%[1]s OVERRIDING SYSTEM VALUE
			SELECT *
			FROM jsonb_populate_record(NULL::punctual.%[1]s, $1::text::jsonb || $2::text::jsonb)`, table), theirs, change)
		return err
	})
	// The first version of an existing job exists already, so writing it again may also violate the key.
	if !Denied(err) && !IsCode(err, "44000") && (table != "job_versions" || !IsCode(err, "23505")) {
		c.T.Errorf("writing a row of another tenant: %v", err)
	}
	if n := c.Count(all); n != there+own {
		c.T.Errorf("%d rows are left of %d", n, there+own)
	}
}

func TestAVersionCannotBeAddedToAnotherTenantsJob(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("theirs")
	other := c.Intruder()
	err := other.DB.Callers.InTx(t.Context(), other.Tenant, func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO punctual.job_versions (job_id, version, state, definition)
			VALUES ($1, 2, 'active', '{}')`, job.ID)
		return err
	})
	if !Denied(err) {
		t.Error(err)
	}
}

// A transaction ends in an error, a panic or a cancel. The connection keeps neither role nor tenant.
//
//prove:tenants
func TestNoTransactionInheritsATenant(t *testing.T) {
	t.Parallel()
	direct := pgtest.DSN(t)
	for name, dsn := range map[string]string{
		"direct": direct, "pgbouncer": pgtest.PgBouncer(t, pgtest.Server(t), direct, "default_pool_size = 1"),
	} {
		t.Run(name, func(t *testing.T) {
			c := OpenFixture(t, store.Options{DatabaseURL: dsn, MaxConns: 1})
			for end, work := range map[string]func(ctx context.Context){
				"a commit": func(ctx context.Context) { _ = c.DB.Callers.InTx(ctx, 1, func(*pg.Tx) error { return nil }) },
				"a rollback": func(ctx context.Context) {
					_ = c.DB.Callers.InTx(ctx, 1, func(*pg.Tx) error { return errors.New("no") })
				},
				"an error of a statement": func(ctx context.Context) {
					_ = c.DB.Callers.InTx(ctx, 1, func(u *pg.Tx) error { return pg.Exec(ctx, u, `SELECT 1 / 0`) })
				},
				"a panic": func(ctx context.Context) {
					defer func() { _ = recover() }()
					_ = c.DB.Callers.InTx(ctx, 1, func(*pg.Tx) error { panic("no") })
				},
				"a context that ended": func(ctx context.Context) {
					ctx, cancel := context.WithCancel(ctx)
					_ = c.DB.Callers.InTx(ctx, 1, func(u *pg.Tx) error {
						cancel()
						return pg.Exec(ctx, u, `SELECT 1`)
					})
				},
				"a read":             func(ctx context.Context) { _, _ = c.Jobs.GetJob(ctx, 1, "nobody") },
				"an error of a read": func(ctx context.Context) { _ = pg.Exec(ctx, c.DB.Callers.Reader(1), `SELECT 1 / 0`) },
				"a read to the first row": func(ctx context.Context) {
					_ = c.DB.Callers.Reader(1).QueryRow(ctx, `SELECT generate_series(1, 1000)`).Scan(nil)
				},
				"a row that cannot be had": func(ctx context.Context) {
					var n []int
					_ = c.DB.Callers.Reader(1).QueryRow(ctx, `SELECT 'x'`).Scan(&n)
				},
				"a snapshot": func(ctx context.Context) {
					_ = c.DB.Callers.ReadOnly(ctx, 1, func(tx pgx.Tx) error { return errors.New("no") })
				},
				"a batch with an error in it": func(ctx context.Context) {
					var b pgx.Batch
					b.Queue(`SELECT 1`)
					b.Queue(`SELECT 1 / 0`)
					_ = c.DB.Callers.Reader(1).SendBatch(ctx, &b).Close()
				},
			} {
				work(t.Context())
				var user, session, tenant string
				err := c.DB.Callers.QueryRow(t.Context(),
					`SELECT current_user, session_user, coalesce(current_setting('punctual.tenant', true), '')`).
					Scan(&user, &session, &tenant)
				if err != nil || user != session || tenant != "" {
					t.Errorf("after %s: user %q, tenant %q, %v", end, user, tenant, err)
				}
			}
		})
	}
}

func TestAReadForATenantIsThatTenants(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	var user string
	var tenant int32
	if err := c.DB.Callers.Reader(7).QueryRow(ctx,
		`SELECT current_user, punctual.acting_tenant()`).Scan(&user, &tenant); err != nil ||
		user != pg.TenantRole || tenant != 7 {
		t.Errorf("%s, %d, %v", user, tenant, err)
	}
	err := c.DB.Callers.InTx(ctx, 7, func(tx *pg.Tx) error {
		return tx.QueryRow(ctx, `SELECT current_user, punctual.acting_tenant()`).Scan(&user, &tenant)
	})
	if err != nil || user != pg.TenantRole || tenant != 7 {
		t.Errorf("%s, %d, %v", user, tenant, err)
	}
}

// Roles belong to the cluster, so this test has a server of its own.
func TestWithoutTheRoleAllElseWorks(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	dsn := pgtest.Database(t, server)
	open := func() (Fixture, *bytes.Buffer) {
		var log bytes.Buffer
		return OpenFixture(t, store.Options{DatabaseURL: dsn, Log: slog.New(slog.NewTextHandler(&log, nil))}), &log
	}
	c, log := open()
	if on, err := c.Backstop(t.Context()); !on || err != nil || log.Len() > 0 {
		t.Fatalf("%v, %v, %s", on, err, log)
	}
	user := c.Text(`SELECT current_user`)
	super := c.Superuser(server)
	change := func(sql string) {
		if _, err := super.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for _, k := range []struct{ name, breaks, says string }{
		{"not granted", `REVOKE punctual_tenant FROM ` + user, "GRANT punctual_tenant TO " + user},
		{
			"beyond row-level security", `ALTER ROLE punctual_tenant BYPASSRLS`,
			"ALTER ROLE punctual_tenant NOSUPERUSER NOBYPASSRLS",
		},
		{"without its privileges", `REVOKE ALL ON SCHEMA punctual FROM punctual_tenant`, "SELECT punctual.guard_tenants()"},
		{
			"without its functions", `REVOKE EXECUTE ON FUNCTION punctual.acting_tenant() FROM PUBLIC, punctual_tenant`,
			"SELECT punctual.guard_tenants()",
		},
		{"gone", `ALTER ROLE punctual_tenant RENAME TO former`, "CREATE ROLE punctual_tenant NOLOGIN"},
	} {
		change(k.breaks)
		c, log := open()
		for range 2 {
			c.Create("while-" + strings.ReplaceAll(k.name, " ", "-") + fmt.Sprint(log.Len()))
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), k.says) {
			t.Errorf("%s: %d warnings: %s", k.name, n, log)
		}
		missing, err := c.DB.Callers.MissingBackstop(t.Context())
		Must(t, err)
		for _, sql := range missing {
			change(sql)
		}
		c, log = open()
		if on, err := c.Backstop(t.Context()); !on || err != nil || log.Len() > 0 {
			t.Fatalf("%s, and mended: %v, %v, %s", k.name, on, err, log)
		}
		c.Create("after-" + strings.ReplaceAll(k.name, " ", "-"))
	}
	change(`CREATE ROLE visitor NOSUPERUSER; GRANT punctual_tenant, punctual_reader TO visitor; SET ROLE visitor`)
	var n int
	if err := super.QueryRow(t.Context(), `SELECT count(*) FROM punctual.jobs`).Scan(&n); err != nil || n == 0 {
		t.Errorf("a member of the role that is itself sees %d jobs, %v", n, err)
	}
	change(`SET ROLE punctual_reader`)
	if err := super.QueryRow(t.Context(), `SELECT count(*) FROM punctual.job_versions`).Scan(&n); err != nil || n == 0 {
		t.Errorf("punctual_reader sees %d versions, %v", n, err)
	}
}

// The test reads as pg_dump does, with row_security off: Postgres then refuses a table of which a policy might hide
// rows.
func TestWhomPunctualConnectsAsCanCopyAllTables(t *testing.T) {
	c := NewFixture(t)
	for _, table := range Column[string](c, `SELECT relname
		FROM pg_catalog.pg_class
		WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p')`) {
		err := c.DB.Callers.InTx(t.Context(), pg.Everybody, func(tx *pg.Tx) error {
			_, err := tx.Exec(t.Context(), `SET LOCAL row_security = off`)
			return errors.Join(err, pg.Exec(t.Context(), tx, `SELECT FROM punctual.`+table+` LIMIT 1`))
		})
		if err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
}

// Whether calls for tenants are served is found out by one, not by looking at privileges alone.
func TestReadinessTriesWhatCallersDo(t *testing.T) {
	t.Parallel()
	c := OpenFixture(t, store.Options{DatabaseURL: pgtest.DSN(t), MaxConns: 4})
	Must(t, c.CheckTenants(t.Context()))
	c.Exec(`REVOKE SELECT ON punctual.job_versions FROM punctual_tenant`)
	var refused *pg.ActingError
	if err := c.CheckTenants(t.Context()); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "permission denied for table job_versions") {
		t.Errorf("%v", err)
	}
}
