package freeze

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/audit"
	"punctual/store/pg"
)

// Deployment names all tenants together, in place of one tenant.
const Deployment = pg.Everybody

// State tells whether the deployment and one of its tenants are frozen.
type State struct {
	Deployment *scheduler.Freeze // nil: the deployment is not frozen
	Tenant     *scheduler.Freeze // nil: the tenant is not frozen, or the question was about no tenant
	InFlight   int               // runs being sent, of the tenant or of all tenants; counted up to DepthCap
}

// Columns are the columns of the deployment. A tenant is only ever frozen on request.
const (
	Columns             = `frozen_at, coalesce(frozen_by, ''), coalesce(frozen_note, ''), coalesce(frozen_reason, '')`
	tenantFreezeColumns = `frozen_at, coalesce(frozen_by, ''), coalesce(frozen_note, ''), 'asked'`
)

// Row scans these columns.
type Row struct {
	since *time.Time
	scheduler.Freeze
}

// Targets returns where to scan Columns to.
func (f *Row) Targets() []any { return []any{&f.since, &f.By, &f.Note, &f.Reason} }

// InForce returns the freeze, or nil if there is none.
func (f *Row) InForce() *scheduler.Freeze {
	if f.since == nil {
		return nil
	}
	f.Since = *f.since
	return &f.Freeze
}

// Freeze freezes a tenant, or the Deployment: from then on no replica claims anything of it. Freeze returns when the
// claims under way have ended, with the number of runs in flight, which go on. Freezing again changes nothing.
func (s *Switch) Freeze(ctx context.Context, tenant int32, note string) (State, error) {
	err := s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		by := audit.ActorOf(ctx).Words()
		if tenant == Deployment {
			d, err := lockDeployment(ctx, tx)
			if err != nil {
				return err
			}
			return d.freeze(ctx, tx, scheduler.Freeze{By: by, Note: note, Reason: scheduler.FrozenAsked})
		}
		return freezeTenant(ctx, tx, tenant, by, note)
	})
	if err != nil {
		return State{}, fmt.Errorf("freezing: %w", err)
	}
	if err := s.awaitClaims(ctx); err != nil {
		return State{}, err
	}
	return s.FreezeState(ctx, tenant)
}

// Unfreeze ends a freeze. To unfreeze the Deployment also makes this database the one that runs are dispatched from.
// Replicas learn of it within a second.
func (s *Switch) Unfreeze(ctx context.Context, tenant int32, note string) (State, error) {
	err := s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if tenant != Deployment {
			return unfreezeTenant(ctx, tx, tenant, note)
		}
		d, err := lockDeployment(ctx, tx)
		if err != nil {
			return err
		}
		return d.unfreeze(ctx, tx, audit.DeploymentUnfreeze, note)
	})
	if err != nil {
		return State{}, fmt.Errorf("unfreezing: %w", err)
	}
	return s.FreezeState(ctx, tenant)
}

// selectInFlight counts, among the claims' runs, the runs in flight of a tenant or of all tenants.
const selectInFlight = `
SELECT count(*) FROM (
    SELECT FROM punctual.runs_of(ARRAY(SELECT unnest(c.run_ids) FROM punctual.claims c LIMIT $3::bigint)) r
    WHERE r.status = 'running' AND r.accepted_at IS NULL AND ($1 = -1 OR r.tenant = $1)
    LIMIT $2::bigint) n`

// FreezeState tells whether a tenant, or the Deployment, is frozen.
func (s *Switch) FreezeState(ctx context.Context, tenant int32) (State, error) {
	var state State
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	f := queueFreezes(&b, tenant)
	b.Queue(selectInFlight, tenant, pg.DepthCap, pg.MostInFlight).QueryRow(pg.IntoPlaces(&state.InFlight))
	if err := s.db.Callers.SendBatch(ctx, &b).Close(); err != nil {
		return state, fmt.Errorf("reading what is frozen: %w", err)
	}
	state.Deployment = f.Deployment
	if own, is := f.Tenants[tenant]; is {
		state.Tenant = &own
	}
	return state, nil
}

// Freezes are the freezes in force.
type Freezes struct {
	Deployment *scheduler.Freeze // nil: the deployment is not frozen
	Tenants    map[int32]scheduler.Freeze
	Names      map[int32]string // names of the frozen tenants
}

// Of returns the freeze that stops a tenant, and whether it is the deployment's or the tenant's. It returns nil and an
// empty string if the tenant is not frozen.
func (f Freezes) Of(tenant int32) (freeze *scheduler.Freeze, whose string) {
	if f.Deployment != nil {
		return f.Deployment, "deployment"
	}
	if own, is := f.Tenants[tenant]; is {
		return &own, "tenant"
	}
	return nil, ""
}

// Freezes returns the freezes in force: those of at most DepthCap tenants.
func (s *Switch) Freezes(ctx context.Context) (Freezes, error) {
	return Read(ctx, s.db.Runs, 0) // Runs, as the readiness check needs it
}

// Read reads the freezes of one tenant, or with 0 of all tenants.
func Read(ctx context.Context, q pg.Batcher, tenant int32) (Freezes, error) {
	var b pgx.Batch
	f := queueFreezes(&b, tenant)
	err := q.SendBatch(ctx, &b).Close()
	return *f, pg.Wrap("reading what is frozen", err)
}

// queueFreezes queues the statements of Read. The freezes are there once the batch is read.
func queueFreezes(b *pgx.Batch, tenant int32) *Freezes {
	f := &Freezes{Tenants: map[int32]scheduler.Freeze{}, Names: map[int32]string{}}
	b.Queue(`SELECT `+Columns+` FROM punctual.deployment`, pg.Prepared{}).QueryRow(func(row pgx.Row) error {
		var deployment Row
		err := row.Scan(deployment.Targets()...)
		f.Deployment = deployment.InForce()
		return err
	})
	b.Queue(`
		SELECT id, name, `+tenantFreezeColumns+`
		FROM punctual.tenants
		WHERE frozen_at IS NOT NULL AND ($1 = 0 OR id = $1)
		LIMIT $2`, pg.Prepared{}, tenant, pg.DepthCap).
		Query(func(rows pgx.Rows) error {
			var id int32
			var name string
			var row Row
			return pg.Each(rows, append([]any{&id, &name}, row.Targets()...), func() {
				f.Tenants[id], f.Names[id] = *row.InForce(), name
			})
		})
	return f
}

// freezeShot is a freeze as the audit log shows it.
type freezeShot struct {
	Frozen bool                   `json:"frozen"`
	Since  *time.Time             `json:"since,omitempty"`
	By     string                 `json:"by,omitempty"`
	Note   string                 `json:"note,omitempty"`
	Reason scheduler.FreezeReason `json:"reason,omitempty"`

	Database string `json:"database,omitempty"`
	System   string `json:"system_identifier,omitempty"`
}

func shotOfFreeze(f *scheduler.Freeze) freezeShot {
	if f == nil {
		return freezeShot{}
	}
	return freezeShot{Frozen: true, Since: &f.Since, By: f.By, Note: f.Note, Reason: f.Reason}
}

func freezeTenant(ctx context.Context, tx *pg.Tx, id int32, by, note string) error {
	name, was, err := lockTenantFreeze(ctx, tx, id)
	if err != nil || was != nil {
		return err
	}
	is := scheduler.Freeze{By: by, Note: note, Reason: scheduler.FrozenAsked}
	err = tx.QueryRow(ctx, `
		UPDATE punctual.tenants
		SET frozen_at = now(), frozen_by = $2, frozen_note = $3
		WHERE id = $1
		RETURNING frozen_at`, id, by, pg.OrNull(note)).Scan(&is.Since)
	if err != nil {
		return fmt.Errorf("tenant %q: %w", name, err)
	}
	return audit.Write(ctx, tx, id, audit.Change{
		Action: audit.TenantFreeze, Name: name, Before: shotOfFreeze(nil), After: shotOfFreeze(&is),
	})
}

func unfreezeTenant(ctx context.Context, tx *pg.Tx, id int32, note string) error {
	name, was, err := lockTenantFreeze(ctx, tx, id)
	if err != nil || was == nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE punctual.tenants
		SET frozen_at = NULL, frozen_by = NULL, frozen_note = NULL
		WHERE id = $1`, id); err != nil {
		return fmt.Errorf("tenant %q: %w", name, err)
	}
	tx.Wake()
	return audit.Write(ctx, tx, id, audit.Change{
		Action: audit.TenantUnfreeze, Name: name, Before: shotOfFreeze(was), After: freezeShot{Note: note},
	})
}

func lockTenantFreeze(ctx context.Context, tx *pg.Tx, id int32) (name string, was *scheduler.Freeze, err error) {
	var row Row
	err = tx.QueryRow(ctx, `
		SELECT name, `+tenantFreezeColumns+`
		FROM punctual.tenants
		WHERE id = $1 AND deleted_at IS NULL
		FOR NO KEY UPDATE`, id).
		Scan(append([]any{&name}, row.Targets()...)...)
	return name, row.InForce(), pg.Found(err, "tenant %d", id)
}

// claimsEnd bounds the wait for claims under way. A claim takes milliseconds, and Postgres soon ends one that stays
// idle: see patient.
const claimsEnd = 8 * time.Second

// selectClaiming finds the transactions that claim. A claim holds this lock on one of the tables, and hardly any other
// transaction does for longer than a moment.
const selectClaiming = `
SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}')
FROM pg_catalog.pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND relation IN ('punctual.schedules'::regclass, 'punctual.ready'::regclass, 'punctual.outbox'::regclass)
  AND mode = 'RowShareLock'
  AND granted
  AND ($1::text[] IS NULL OR virtualtransaction = ANY($1))`

// awaitClaims waits until the claims have ended that are under way now. Such a claim may have found nothing frozen.
func (s *Switch) awaitClaims(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimsEnd)
	defer cancel()
	var before []string // nil: every claim there is
	for {
		if err := s.db.Callers.QueryRow(ctx, selectClaiming, before).Scan(&before); err != nil && ctx.Err() == nil {
			return fmt.Errorf(
				"frozen, but the claims under way could not be waited for: what is in flight may be more for a moment: %w", err)
		}
		if len(before) == 0 && ctx.Err() == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			s.options.Log.Warn("frozen, and a claim that was under way has not ended: it may still start runs",
				"claims", len(before))
			return nil
		}
	}
}
