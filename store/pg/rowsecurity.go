package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Everybody stands in place of a tenant for work that is done for all tenants alike: the scheduler's loops, and
// targets that present a run token. It is not zero, so that a forgotten tenant has access to nothing.
const Everybody int32 = -1

// TenantRole is the database role that reads and writes for a tenant: see the migrations.
const TenantRole = "punctual_tenant"

// actFor makes the rest of a transaction act for a tenant: it sees only the tenant's rows, whatever its statements ask
// for.
const actFor = `SELECT set_config('role', '` + TenantRole + `', true), set_config('punctual.tenant', $1, true), ` +
	`set_config('row_security', 'on', true)`

// Begin begins a transaction that writes. What one statement has locked, the next must see as it is then, and SKIP
// LOCKED must not fail for a row that has just changed.
const Begin = `BEGIN ISOLATION LEVEL READ COMMITTED`

// begin begins every transaction, in one round trip. A replica that hangs inside a transaction loses it after 5 s:
// otherwise its row locks would keep other replicas from its jobs for as long as it lives.
const (
	begin    = Begin + `; ` + mayHang + `; ` + Uncompiled
	mayHang  = `SET LOCAL idle_in_transaction_session_timeout = '5s'`
	mayPause = `SET LOCAL idle_in_transaction_session_timeout = 0`
)

// beginFor returns the statements that begin a transaction which acts for a tenant. If the database refuses the role,
// the transaction is aborted from its beginning.
func (p *Pool) beginFor(ctx context.Context, begin string, tenant int32) (string, error) {
	if tenant == Everybody {
		return begin, nil
	}
	on, err := p.Backstop(ctx)
	if err != nil || !on {
		return begin, err
	}
	return begin + `; ` + strings.Replace(actFor, "$1", `'`+strconv.Itoa(int(tenant))+`'`, 1), nil
}

// backstop is whether the database lets this user act as TenantRole. It is known once the database was asked.
type backstop struct {
	asked sync.Mutex
	known atomic.Pointer[bool]
}

// Backstop reports whether row-level security backs up the statements' own filters by tenant. If it does not, Backstop
// logs once what an operator has to do.
func (p *Pool) Backstop(ctx context.Context) (bool, error) {
	if on := p.db.backstop.known.Load(); on != nil {
		return *on, nil
	}
	p.db.backstop.asked.Lock()
	defer p.db.backstop.asked.Unlock()
	if on := p.db.backstop.known.Load(); on != nil {
		return *on, nil
	}
	missing, err := p.MissingBackstop(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for the role %s: %w", TenantRole, err)
	}
	if len(missing) > 0 {
		p.db.config.Log.Warn(
			"row-level security is not in force: only the filters of the statements keep tenants apart. To put it in force, run these statements as a superuser, then restart",
			"statements", strings.Join(missing, "; "))
	}
	on := len(missing) == 0
	if on {
		if err := p.warnOfStrangers(ctx); err != nil {
			return false, err
		}
	}
	p.db.backstop.known.Store(&on)
	return on, nil
}

// MissingBackstop returns the statements that would make row-level security work. It returns none if it works.
func (p *Pool) MissingBackstop(ctx context.Context) ([]string, error) {
	var user string
	var exists, mighty, member, guarded bool
	err := p.QueryRow(ctx, `
		SELECT quote_ident(current_user), r.oid IS NOT NULL, coalesce(r.rolsuper OR r.rolbypassrls, false),
		       coalesce(pg_has_role(r.oid,
		           CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END), false),
		       coalesce(has_schema_privilege(r.oid, 'punctual', 'USAGE')
		           AND has_table_privilege(r.oid, 'punctual.audit_entries', 'INSERT')
		           AND has_table_privilege(r.oid, 'punctual.jobs', 'INSERT')
		           AND (SELECT bool_and(has_function_privilege(r.oid, p.oid, 'EXECUTE')) FROM pg_catalog.pg_proc p
		                WHERE p.oid = ANY(punctual.functions_of_tenants()))
		           AND (SELECT relrowsecurity FROM pg_catalog.pg_class WHERE oid = 'punctual.jobs'::regclass), false)
		FROM (VALUES ('`+TenantRole+`')) AS wanted(name) LEFT JOIN pg_catalog.pg_roles r ON r.rolname = wanted.name`).
		Scan(&user, &exists, &mighty, &member, &guarded)
	if err != nil {
		return nil, err
	}
	var missing []string
	if !exists {
		missing = append(missing, "CREATE ROLE "+TenantRole+" NOLOGIN")
	}
	if mighty {
		missing = append(missing, "ALTER ROLE "+TenantRole+" NOSUPERUSER NOBYPASSRLS")
	}
	if !member {
		missing = append(missing, "GRANT "+TenantRole+" TO "+user)
	}
	if !guarded {
		missing = append(missing, "SELECT punctual.guard_tenants()")
	}
	return missing, nil
}

// ActingError says that the database refuses what is done for tenants.
type ActingError struct{ err error }

func (e *ActingError) Error() string {
	text := e.err.Error()
	if refused, is := errors.AsType[*pgconn.PgError](e.err); is {
		text = refused.Message
	}
	return "the database refuses to act for tenants: " + text
}

// Unwrap returns the database's error.
func (e *ActingError) Unwrap() error { return e.err }

// actingProbe reads as calls for tenants do, through each kind of policy, and finds nothing.
const actingProbe = `
SELECT count(*) FROM (
    SELECT FROM punctual.jobs WHERE id = $1::uuid
    UNION ALL SELECT FROM punctual.job_versions WHERE job_id = $1::uuid
    UNION ALL SELECT FROM punctual.cancels WHERE run_id = $1::uuid) nothing`

// CheckTenants tries the way that calls for a tenant take, and returns an *ActingError if the database refuses it. An
// error of another kind says nothing about that way.
func (p *Pool) CheckTenants(ctx context.Context) error {
	const nobody int32 = 0
	var n int
	err := p.Reader(nobody).QueryRow(ctx, actingProbe, Prepared{}, uuid.Nil).Scan(&n)
	if class := Code(err); strings.HasPrefix(class, "42") {
		return &ActingError{err}
	}
	return Wrap("acting for a tenant", err)
}

// tenantReader queries for a tenant, each time in a transaction of its own, which costs no extra round trip.
type tenantReader struct {
	pool   *Pool
	conns  Batcher // of the pool, or of the standby
	tenant int32
}

// SendBatch implements Querier. If the database refuses the role, the rest of the batch is not executed.
func (r tenantReader) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	on, err := r.pool.Backstop(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	all := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 1+b.Len())}
	settings := uncompiledToo
	if r.pool.db.config.Replica {
		settings += `, ` + limitLocksToo
	}
	if on {
		all.Queue(actFor+`, `+settings, Prepared{}, strconv.Itoa(int(r.tenant)))
	} else {
		all.Queue(`SELECT `+settings, Prepared{})
	}
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := r.conns.SendBatch(ctx, &all)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return pgx.FailedBatchResults(b, err)
	}
	return results
}

// Query implements Querier.
func (r tenantReader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results := r.send(ctx, sql, args)
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return rows, err
	}
	return &batchRows{Rows: rows, results: results}, nil
}

// QueryRow implements Querier.
func (r tenantReader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	results := r.send(ctx, sql, args)
	return batchRow{results.QueryRow(), results}
}

// send sends one statement.
func (r tenantReader) send(ctx context.Context, sql string, args []any) pgx.BatchResults {
	var b pgx.Batch
	b.Queue(sql, args...)
	return r.SendBatch(ctx, &b)
}
