package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// Action is the action of an entry of the audit log: the kind of resource, a dot, a verb. The list is closed. A new
// action must be added to the constraint of punctual.audit_log as well.
type Action string

// The actions.
const (
	ActionJobCreate           Action = "job.create"
	ActionJobUpdate           Action = "job.update" // also a rename
	ActionJobPause            Action = "job.pause"
	ActionJobResume           Action = "job.resume"
	ActionJobDelete           Action = "job.delete"
	ActionJobBackfill         Action = "job.backfill"
	ActionRunTrigger          Action = "run.trigger"
	ActionRunCancel           Action = "run.cancel"
	ActionDeadLetterReplay    Action = "dead_letter.replay"
	ActionDeadLetterResolve   Action = "dead_letter.resolve"
	ActionOperationCreate     Action = "operation.create"
	ActionOperationCancel     Action = "operation.cancel"
	ActionKeyCreate           Action = "api_key.create"
	ActionKeyRevoke           Action = "api_key.revoke"
	ActionTenantCreate        Action = "tenant.create"
	ActionTenantUpdate        Action = "tenant.update"
	ActionTenantDelete        Action = "tenant.delete"
	ActionSecretPut           Action = "secret.put"
	ActionSecretDelete        Action = "secret.delete"
	ActionSecretRotate        Action = "secret.rotate"
	ActionSigningSecretCreate Action = "signing_secret.create"
	ActionSigningSecretDelete Action = "signing_secret.delete"
	ActionDeploymentFreeze    Action = "deployment.freeze"
	ActionDeploymentUnfreeze  Action = "deployment.unfreeze"
	ActionDeploymentAdopt     Action = "deployment.adopt" // runs are now dispatched from another database
	ActionTenantFreeze        Action = "tenant.freeze"
	ActionTenantUnfreeze      Action = "tenant.unfreeze"
	ActionBreakerReset        Action = "breaker.reset"
)

// Actions lists every action.
var Actions = []Action{
	ActionJobCreate, ActionJobUpdate, ActionJobPause, ActionJobResume, ActionJobDelete, ActionJobBackfill,
	ActionRunTrigger, ActionRunCancel,
	ActionDeadLetterReplay, ActionDeadLetterResolve, ActionOperationCreate, ActionOperationCancel,
	ActionKeyCreate, ActionKeyRevoke,
	ActionTenantCreate, ActionTenantUpdate, ActionTenantDelete, ActionSecretPut, ActionSecretDelete, ActionSecretRotate,
	ActionSigningSecretCreate, ActionSigningSecretDelete,
	ActionDeploymentFreeze, ActionDeploymentUnfreeze, ActionDeploymentAdopt, ActionTenantFreeze, ActionTenantUnfreeze,
	ActionBreakerReset,
}

// Resource returns the kind of resource that the action changes.
func (a Action) Resource() string {
	resource, _, _ := strings.Cut(string(a), ".")
	return resource
}

// change is an entry of the audit log in the making. before and after are the state of the resource before and after
// the change, to be encoded as JSON: nil where there is none, and never with a secret in them.
type change struct {
	action        Action
	id            uuid.UUID // of the changed resource; uuid.Nil: it has none
	job           uuid.UUID // the job that the entry is about; uuid.Nil: no single job
	name          string
	before, after any
}

// audit writes changes to the audit log in the transaction q that makes them, so that there is no change without its
// entry and no entry without its change. The context names the author (WithActor). audit is for rare changes, as it
// reads the database's clock first. A caller that knows that clock queues the entries with its own statements: see
// queueAudit.
func audit(ctx context.Context, q pg.Querier, tenant int32, changes ...change) error {
	var now time.Time
	if err := q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return fmt.Errorf("reading the database's clock: %w", err)
	}
	var b pgx.Batch
	if err := queueAudit(ctx, &b, tenant, now, changes...); err != nil {
		return err
	}
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	return nil
}

// queueAudit queues the entries that audit writes, in one statement for any number of changes. now is the database's
// clock.
func queueAudit(ctx context.Context, b *pgx.Batch, tenant int32, now time.Time, changes ...change) error {
	var rows auditRows
	for _, c := range changes {
		if err := rows.add(tenant, now, c); err != nil {
			return err
		}
	}
	rows.queue(ctx, b)
	return nil
}

// auditRows collects entries, column by column, for one INSERT.
type auditRows struct {
	ids           []uuid.UUID
	resources     []*uuid.UUID
	jobs          []*uuid.UUID
	tenants       []int32
	at            []time.Time
	actions       []string
	names         []*string
	before, after []*string
}

func (r *auditRows) add(tenant int32, now time.Time, c change) error {
	before, err := encodeChange(c.before)
	if err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	after, err := encodeChange(c.after)
	if err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	r.ids = append(r.ids, scheduler.NewRunID(now))
	r.resources, r.jobs = append(r.resources, idOrNull(c.id)), append(r.jobs, idOrNull(c.job))
	r.tenants, r.at = append(r.tenants, tenant), append(r.at, now)
	r.actions, r.names = append(r.actions, string(c.action)), append(r.names, pg.OrNull(c.name))
	r.before, r.after = append(r.before, before), append(r.after, after)
	return nil
}

const insertAudit = `
INSERT INTO punctual.audit_entries (
    id, resource_id, job_id, tenant, at, action, name, before, after, actor_kind, actor, address, request_id)
SELECT u.id, u.resource, u.job, u.tenant, u.at, u.action, u.name, u.before::json, u.after::json,
       $10::text, $11::text, $12::text::inet, $13::text
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::timestamptz[],
            $6::text[], $7::text[], $8::text[], $9::text[])
     AS u(id, resource, job, tenant, at, action, name, before, after)`

func (r *auditRows) queue(ctx context.Context, b *pgx.Batch) {
	if len(r.ids) == 0 {
		return
	}
	b.Queue(insertAudit, append([]any{
		r.ids, r.resources, r.jobs, r.tenants, r.at, r.actions, r.names, r.before, r.after,
	}, actor(ctx).columns()...)...)
}

// columns returns the actor's columns in insertAudit: its kind, its name, its address and the request's id.
func (a Actor) columns() []any {
	var address *string
	if a.Address.IsValid() {
		address = new(a.Address.WithZone("").String())
	}
	return []any{string(a.Kind), pg.OrNull(a.Name), address, pg.OrNull(a.RequestID)}
}

// encodeChange returns the state of a resource as JSON, and nil for nil.
func encodeChange(v any) (*string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return new(string(v)), nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return new(string(text)), nil
}

func idOrNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
