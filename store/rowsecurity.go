package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// everybody, in place of a tenant, stands for work that is done for all tenants alike: the scheduler's loops, and
// targets that present a run token. It is not zero, so that a forgotten tenant has access to nothing.
const everybody int32 = -1

// tenantRole is the database role that reads and writes for a tenant: see the migrations.
const tenantRole = "punctual_tenant"

// actFor makes the rest of a transaction act for a tenant: it sees only the tenant's rows, whatever its statements ask
// for.
const actFor = `SELECT set_config('role', '` + tenantRole + `', true), set_config('punctual.tenant', $1, true)`

// begin begins every transaction, in one round trip. A replica that hangs inside a transaction loses it after 5 s:
// otherwise its row locks would keep other replicas from its jobs for as long as it lives.
const begin = `BEGIN; SET LOCAL idle_in_transaction_session_timeout = '5s'; ` + uncompiled

// beginFor returns the statements that begin a transaction which acts for a tenant. If the database refuses the role,
// the transaction is aborted from its beginning.
func (s *Store) beginFor(ctx context.Context, begin string, tenant int32) (string, error) {
	if tenant == everybody {
		return begin, nil
	}
	on, err := s.Backstop(ctx)
	if err != nil || !on {
		return begin, err
	}
	return begin + `; ` + strings.Replace(actFor, "$1", `'`+strconv.Itoa(int(tenant))+`'`, 1), nil
}

// backstop is whether the database lets this user act as tenantRole. It is known once the database was asked.
type backstop struct {
	asked sync.Mutex
	known atomic.Pointer[bool]
}

// Backstop reports whether row-level security backs up the statements' own filters by tenant. If it does not, Backstop
// logs once what an operator has to do.
func (s *Store) Backstop(ctx context.Context) (bool, error) {
	if on := s.backstop.known.Load(); on != nil {
		return *on, nil
	}
	s.backstop.asked.Lock()
	defer s.backstop.asked.Unlock()
	if on := s.backstop.known.Load(); on != nil {
		return *on, nil
	}
	missing, err := s.missingBackstop(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for the role %s: %w", tenantRole, err)
	}
	if len(missing) > 0 {
		s.options.Log.Warn(
			"row-level security is not in force: what keeps tenants apart is the filters of the statements alone. A superuser makes it so with these statements; then restart",
			"statements", strings.Join(missing, "; "))
	}
	on := len(missing) == 0
	if on {
		if err := s.warnOfStrangers(ctx); err != nil {
			return false, err
		}
	}
	s.backstop.known.Store(&on)
	return on, nil
}

// missingBackstop returns the statements that would make row-level security work. It returns none if it works.
func (s *Store) missingBackstop(ctx context.Context) ([]string, error) {
	var user string
	var exists, mighty, member, guarded bool
	err := s.conns(ctx).QueryRow(ctx, `
		SELECT quote_ident(current_user), r.oid IS NOT NULL, coalesce(r.rolsuper OR r.rolbypassrls, false),
		       coalesce(pg_has_role(r.oid,
		           CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END), false),
		       coalesce(has_schema_privilege(r.oid, 'punctual', 'USAGE')
		           AND has_table_privilege(r.oid, 'punctual.audit_entries', 'INSERT')
		           AND has_table_privilege(r.oid, 'punctual.jobs', 'INSERT')
		           AND (SELECT relrowsecurity FROM pg_catalog.pg_class WHERE oid = 'punctual.jobs'::regclass), false)
		FROM (VALUES ('`+tenantRole+`')) AS wanted(name) LEFT JOIN pg_catalog.pg_roles r ON r.rolname = wanted.name`).
		Scan(&user, &exists, &mighty, &member, &guarded)
	if err != nil {
		return nil, err
	}
	var missing []string
	if !exists {
		missing = append(missing, "CREATE ROLE "+tenantRole+" NOLOGIN")
	}
	if mighty {
		missing = append(missing, "ALTER ROLE "+tenantRole+" NOSUPERUSER NOBYPASSRLS")
	}
	if !member {
		missing = append(missing, "GRANT "+tenantRole+" TO "+user)
	}
	if !guarded {
		missing = append(missing, "SELECT punctual.guard_tenants()")
	}
	return missing, nil
}

// tenantReader queries the pool for a tenant, each time in a transaction of its own, which costs no extra round trip.
type tenantReader struct {
	store  *Store
	tenant int32
}

// SendBatch implements querier. If the database refuses the role, the rest of the batch is not executed.
func (r tenantReader) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	on, err := r.store.Backstop(ctx)
	if err != nil {
		return refusedBatch{err: err}
	}
	all := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 1+b.Len())}
	settings := uncompiledToo
	if r.store.options.Replica {
		settings += `, ` + limitLocksToo
	}
	if on {
		all.Queue(actFor+`, `+settings, prepared{}, strconv.Itoa(int(r.tenant)))
	} else {
		all.Queue(`SELECT `+settings, prepared{})
	}
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := r.store.conns(ctx).SendBatch(ctx, &all)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return refusedBatch{err: err}
	}
	return results
}

// Query implements querier.
func (r tenantReader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var b pgx.Batch
	b.Queue(sql, args...)
	results := r.SendBatch(ctx, &b)
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return rows, err
	}
	return &batchRows{Rows: rows, results: results}, nil
}

// QueryRow implements querier.
func (r tenantReader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := r.Query(ctx, sql, args...)
	return firstRow{rows, err}
}
