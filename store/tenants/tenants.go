package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/changes"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// Brief is what every request needs to know about the tenant that it acts for.
type Brief struct {
	ID                   int32
	Name                 string
	MaxRequestsPerSecond int // 0: no limit
}

// Tenant is an owner of jobs. Null means no limit.
type Tenant struct {
	ID                   int32             `json:"-"`
	Name                 string            `json:"name" doc:"Its name." example:"billing"`
	Weight               int               `json:"weight" doc:"Its relative share of the concurrency while several tenants wait for it." example:"1"`
	MaxJobs              *int              `json:"max_jobs" doc:"The most active and paused jobs that it may have." example:"10000"`
	MaxPendingRuns       *int              `json:"max_pending_runs" doc:"The most dated runs that it may have pending." example:"100000"`
	MaxConcurrentRuns    *int              `json:"max_concurrent_runs" doc:"The most runs of this tenant that all replicas together may send at once." example:"100"`
	MaxRunsPerSecond     *int              `json:"max_runs_per_second" doc:"The most attempts of this tenant that all replicas together may start in a second." example:"50"`
	MaxRequestsPerSecond *int              `json:"max_requests_per_second" doc:"The most API requests of this tenant that all replicas together answer in a second." example:"200"`
	MinInterval          *jobspec.Duration `json:"min_interval" nullable:"true" doc:"Shortest time between two slots of one of its jobs." example:"1m0s"`
	MaxKeyAge            *jobspec.Duration `json:"max_key_age" nullable:"true" doc:"How long a new API key of it may work. Earlier keys stay as they are." example:"2160h0m0s"`
	ChangesKept          *jobspec.Duration `json:"changes_kept" nullable:"true" doc:"How long GET /v1/runs/changes says which of its runs have ended. Null: nothing is recorded." example:"24h0m0s"`
	AllowedTargets       []netip.Prefix    `json:"allowed_targets" doc:"Non-public networks that its jobs may call, in addition to those that the deployment allows all tenants." example:"[\"10.20.0.0/16\"]"`

	Notify []jobspec.Notify `json:"notify" doc:"Recipients of notices about jobs that have no notify of their own."`

	CreatedAt time.Time `json:"created_at" doc:"When it was created."`
	UpdatedAt time.Time `json:"updated_at" doc:"When its settings were last changed."`
}

// DefaultTenant is the name of the tenant that always exists.
const DefaultTenant = "default"

// ErrTenantExists says that another tenant has the name of a new one.
var ErrTenantExists error = &jobspec.Refusal{
	Code: "name_taken", Reason: "the name is taken by another tenant",
	Blames: []jobspec.Problem{{Field: "name", Message: "is taken by another tenant"}},
}

const tenantColumns = `t.id, t.name, t.weight, t.max_jobs, t.max_pending_runs, t.max_concurrent_runs,
	t.max_runs_per_second, t.max_requests_per_second,
	t.min_interval, t.max_key_age, t.changes_kept, t.allowed_targets, t.notify, t.created_at, t.updated_at`

func scanTenant(row pgx.CollectableRow) (Tenant, error) {
	var t Tenant
	var interval, keyAge, kept *time.Duration
	err := row.Scan(&t.ID, &t.Name, &t.Weight, &t.MaxJobs, &t.MaxPendingRuns, &t.MaxConcurrentRuns,
		&t.MaxRunsPerSecond,
		&t.MaxRequestsPerSecond,
		&interval, &keyAge, &kept, &t.AllowedTargets, &t.Notify, &t.CreatedAt, &t.UpdatedAt)
	t.MinInterval = converted(interval, jobspec.DurationOf)
	t.MaxKeyAge = converted(keyAge, jobspec.DurationOf)
	t.ChangesKept = converted(kept, jobspec.DurationOf)
	t.fillLists()
	return t, err
}

// converted converts a value that may be absent.
func converted[A, B any](value *A, convert func(A) B) *B {
	if value == nil {
		return nil
	}
	return new(convert(*value))
}

// fillLists makes empty lists of absent ones, so that JSON shows them as lists.
func (t *Tenant) fillLists() {
	if t.AllowedTargets == nil {
		t.AllowedTargets = []netip.Prefix{}
	}
	if t.Notify == nil {
		t.Notify = []jobspec.Notify{}
	}
}

// args returns the settings of a tenant with filled lists, as arguments of a statement that writes them.
func (t Tenant) args(before ...any) []any {
	var notify *string
	if len(t.Notify) > 0 {
		text, _ := json.Marshal(t.Notify) //nolint:gosec // the names of secrets; and it holds texts only
		notify = new(string(text))
	}
	return append(before, t.Weight, t.MaxJobs, t.MaxConcurrentRuns, t.MaxRunsPerSecond, t.MaxRequestsPerSecond,
		converted(t.MinInterval, jobspec.Duration.Value), converted(t.MaxKeyAge, jobspec.Duration.Value), t.AllowedTargets,
		notify, t.MaxPendingRuns, converted(t.ChangesKept, jobspec.Duration.Value))
}

// selectTenant selects the tenant with a name.
const selectTenant = `
	SELECT ` + tenantColumns + ` FROM punctual.tenants t
	WHERE t.name = $1 AND t.deleted_at IS NULL`

// oneTenant returns the only tenant of a query. The error is ErrNotFound if there is none.
func oneTenant(rows pgx.Rows, name string) (Tenant, error) {
	t, err := pgx.CollectExactlyOneRow(rows, scanTenant)
	return t, pg.Found(err, "tenant %q", name)
}

// FindTenant returns the tenant with a name. The error is ErrNotFound if there is none.
func (s *Tenants) FindTenant(ctx context.Context, name string) (Brief, error) {
	t := Brief{Name: name}
	err := s.db.Callers.QueryRow(ctx, `
		SELECT id, coalesce(max_requests_per_second, 0) FROM punctual.tenants
		WHERE name = $1 AND deleted_at IS NULL`, pg.Prepared{}, name).
		Scan(&t.ID, &t.MaxRequestsPerSecond)
	return t, pg.Found(err, "tenant %q", name)
}

// CreateTenant creates a tenant with the name and the settings of t. The error is ErrTenantExists if another tenant has
// the name.
func (s *Tenants) CreateTenant(ctx context.Context, t Tenant) (Tenant, error) {
	t.fillLists()
	return pg.Do(ctx, s.db.Callers.For(pg.Everybody), func(tx *pg.Tx) (made Tenant, err error) {
		rows := pg.Query(ctx, tx, `
			INSERT INTO punctual.tenants AS t (name, weight, max_jobs, max_concurrent_runs, max_runs_per_second,
				max_requests_per_second, min_interval, max_key_age, allowed_targets, notify, max_pending_runs,
				changes_kept)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::cidr[], $10::text::json, $11, $12)
			RETURNING `+tenantColumns, t.args(t.Name)...)
		made, err = oneTenant(rows, t.Name)
		if dbErr, is := errors.AsType[*pgconn.PgError](err); is && dbErr.ConstraintName == "tenant_name_is_unique" {
			return made, fmt.Errorf("tenant %q: %w", t.Name, ErrTenantExists)
		}
		if err != nil {
			return made, err
		}
		created := audit.Change{Action: audit.TenantCreate, Name: made.Name, After: made.Settings()}
		if err := audit.Write(ctx, tx, made.ID, created); err != nil {
			return made, err
		}
		if err := s.secrets.MakeFirstSigningSecret(ctx, tx, made.ID); err != nil {
			return made, err
		}
		return made, record(ctx, tx, Tenant{}, made)
	})
}

// GetTenant returns the tenant with a name.
func (s *Tenants) GetTenant(ctx context.Context, name string) (Tenant, error) {
	return oneTenant(pg.Query(ctx, s.db.Callers.Reader(pg.Everybody), selectTenant, name), name)
}

// GetTenantByID returns the tenant with an id.
func (s *Tenants) GetTenantByID(ctx context.Context, id int32) (Tenant, error) {
	rows := pg.Query(ctx, s.db.Callers.Reader(pg.Everybody), `
		SELECT `+tenantColumns+` FROM punctual.tenants t WHERE t.id = $1 AND t.deleted_at IS NULL`, id)
	return oneTenant(rows, fmt.Sprint(id))
}

// ListTenants returns up to limit tenants, sorted by name, from the first one after a given name.
func (s *Tenants) ListTenants(
	ctx context.Context, after string, limit int,
) (tenants []Tenant, more bool, err error) {
	tenants, err = pg.All(ctx, s.db.Callers.Reader(pg.Everybody), scanTenant, `
		SELECT `+tenantColumns+` FROM punctual.tenants t
		WHERE t.deleted_at IS NULL AND t.name COLLATE "C" > $1
		ORDER BY t.name COLLATE "C" LIMIT $2`, after, limit+1)
	return tenants[:min(limit, len(tenants))], len(tenants) > limit, pg.Wrap("listing tenants", err)
}

// EditTenant changes the settings of a tenant as edit does.
func (s *Tenants) EditTenant(ctx context.Context, name string, edit func(*Tenant) error) (Tenant, error) {
	var t Tenant
	err := s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) (err error) {
		if t, err = oneTenant(pg.Query(ctx, tx, selectTenant+` FOR NO KEY UPDATE`, name), name); err != nil {
			return err
		}
		before := t
		if err := edit(&t); err != nil {
			return err
		}
		if err := s.secrets.KnowsSecrets(ctx, tx, t.ID, t.Notify); err != nil {
			return err
		}
		t.fillLists()
		if reflect.DeepEqual(before, t) {
			return nil
		}
		rows := pg.Query(ctx, tx, `
			UPDATE punctual.tenants t
			SET weight = $2, max_jobs = $3, max_concurrent_runs = $4, max_runs_per_second = $5,
				max_requests_per_second = $6, min_interval = $7, max_key_age = $8, allowed_targets = $9::cidr[],
				notify = $10::text::json, max_pending_runs = $11, changes_kept = $12, updated_at = now()
			WHERE t.id = $1
			RETURNING `+tenantColumns, t.args(before.ID)...)
		if t, err = oneTenant(rows, name); err != nil {
			return err
		}
		if err := audit.Write(ctx, tx, t.ID, audit.Change{
			Action: audit.TenantUpdate, Name: name, Before: before.Settings(), After: t.Settings(),
		}); err != nil {
			return err
		}
		return record(ctx, tx, before, t)
	})
	s.defaults.Forget()
	return t, err
}

// record begins or ends the feed of a tenant whose settings have changed. It comes last in its transaction: from here
// on no run can be written.
func record(ctx context.Context, tx *pg.Tx, before, now Tenant) error {
	switch {
	case before.ChangesKept == nil && now.ChangesKept != nil:
		return changes.Begin(ctx, tx, now.ID)
	case before.ChangesKept != nil && now.ChangesKept == nil:
		return changes.End(ctx, tx, now.ID)
	}
	return nil
}

// LiveJobs counts the jobs that count towards a tenant's max_jobs: those that are not completed. It begins at schedules
// if they are few, as most one-shots have no row there any more.
const LiveJobs = `
	SELECT count(*) FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id
	WHERE j.tenant = $1 AND j.named AND s.completed_at IS NULL`

// countJobs is LiveJobs up to a bound.
const countJobs = `
	SELECT count(*) FROM (
	    SELECT FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id
	    WHERE j.tenant = $1 AND j.named AND s.completed_at IS NULL
	    LIMIT $2) n`

// CountJobs returns how many active and paused jobs a tenant has. It counts up to the tenant's max_jobs, and to 10,000
// at least: a tenant may have a million.
func (s *Tenants) CountJobs(ctx context.Context, t Tenant) (int, error) {
	most := pg.DepthCap
	if t.MaxJobs != nil {
		most = max(most, *t.MaxJobs)
	}
	var n int
	err := s.db.Callers.Reader(t.ID).QueryRow(ctx, countJobs, t.ID, most).Scan(&n)
	return n, pg.Wrap(fmt.Sprintf("counting the jobs of tenant %q", t.Name), err)
}

// DeleteTenant deletes a tenant, revokes its keys and grants, and deletes its secrets. It returns what is left of the
// schemas of its grants, as Revoke does. The error is ErrState if the tenant has active or paused jobs. Its history
// stays until the end of its retention. Its name can be used again.
func (s *Tenants) DeleteTenant(ctx context.Context, name string) (left []string, err error) {
	if name == DefaultTenant {
		return nil, fmt.Errorf("tenant %q always exists and cannot be deleted: %w", name, pg.ErrState)
	}
	// The grants first, in a transaction of their own: a role with a grant may hold a transaction open, for which the
	// deletion would wait.
	var ended []endedGrant
	err = s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t, err := mayDelete(ctx, tx, name, ` FOR NO KEY UPDATE`)
		if err == nil {
			ended, err = endGrants(ctx, tx, t, nil)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	left = s.dropSchemas(ctx, ended)
	return left, s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		// The lock waits for transactions that write jobs or keys of the tenant, and makes later ones wait.
		t, err := mayDelete(ctx, tx, name, ` FOR UPDATE`)
		if err != nil {
			return err
		}
		if err := deleteTenant(ctx, tx, t.ID); err != nil {
			return err
		}
		if err := changes.End(ctx, tx, t.ID); err != nil {
			return err
		}
		return audit.Write(ctx, tx, t.ID, audit.Change{Action: audit.TenantDelete, Name: name, Before: t.Settings()})
	})
}

// mayDelete locks a tenant, and returns ErrState if it has active or paused jobs.
func mayDelete(ctx context.Context, tx *pg.Tx, name, lock string) (Tenant, error) {
	t, err := oneTenant(pg.Query(ctx, tx, selectTenant+lock, name), name)
	if err != nil {
		return t, err
	}
	var jobs int
	if err := tx.QueryRow(ctx, LiveJobs, t.ID).Scan(&jobs); err != nil {
		return t, fmt.Errorf("counting the jobs of tenant %q: %w", name, err)
	}
	if jobs > 0 {
		return t, fmt.Errorf("tenant %q has %d active or paused jobs; delete them first: %w", name, jobs, pg.ErrState)
	}
	return t, nil
}

// KeepTenant keeps a tenant from being deleted until the transaction ends. The error is ErrNotFound if the tenant was
// deleted already, and its keys still work for a moment.
func KeepTenant(ctx context.Context, tx *pg.Tx, id int32) error {
	var b pgx.Batch
	QueueKeep(&b, id)
	return tx.SendBatch(ctx, &b).Close()
}

// QueueKeep queues what KeepTenant does. Its error is the batch's.
func QueueKeep(b *pgx.Batch, id int32) {
	b.Queue(`SELECT id FROM punctual.tenants WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE`, pg.Prepared{}, id).
		QueryRow(func(row pgx.Row) error {
			err := row.Scan(&id)
			return pg.Found(err, "tenant %d", id)
		})
}

func deleteTenant(ctx context.Context, tx *pg.Tx, id int32) error {
	var b pgx.Batch
	b.Queue(`UPDATE punctual.tenants SET deleted_at = now(), updated_at = now() WHERE id = $1`, id)
	b.Queue(`UPDATE punctual.api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant = $1`, id)
	b.Queue(`DELETE FROM punctual.request_rates WHERE tenant = $1`, id)
	secrets.QueueForget(&b)
	return pg.Wrap(fmt.Sprintf("deleting tenant %d", id), tx.SendBatch(ctx, &b).Close())
}

// TenantID returns the id of a tenant by its name. The error is ErrNotFound if there is none.
func (s *Tenants) TenantID(ctx context.Context, name string) (int32, error) {
	t, err := s.FindTenant(ctx, name)
	return t.ID, err
}

// Names returns the names of tenants by their ids.
func (s *Tenants) Names(ctx context.Context, ids []int32) (map[int32]string, error) {
	names, err := pg.Map[int32, string](ctx, s.db.Chores, `
		SELECT id, name FROM punctual.tenants WHERE id = ANY($1::int[])`, ids)
	return names, pg.Wrap("reading the names of tenants", err)
}
