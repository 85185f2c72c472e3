package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Change is an entry in the making. Before and After are the state of the resource before and after the change, to be
// encoded as JSON: nil where there is none, and never with a secret in them.
type Change struct {
	Action        Action
	ID            uuid.UUID // of the changed resource; uuid.Nil: it has none
	Job           uuid.UUID // the job that the entry is about; uuid.Nil: no single job
	Name          string
	Before, After any
}

// Write writes changes to the audit log in the transaction q that makes them, so that there is no change without its
// entry and no entry without its change. The context names the author (WithActor). Write is for rare changes, as it
// reads the database's clock first. A caller that knows that clock queues the entries with its own statements: see
// Queue.
func Write(ctx context.Context, q pg.Querier, tenant int32, changes ...Change) error {
	now, err := pg.Clock(ctx, q)
	if err != nil {
		return err
	}
	var b pgx.Batch
	if err := Queue(ctx, &b, tenant, now, changes...); err != nil {
		return err
	}
	return pg.Wrap("writing the audit log", q.SendBatch(ctx, &b).Close())
}

// Queue queues the entries that Write writes, in one statement for any number of changes. now is the database's
// clock.
func Queue(ctx context.Context, b *pgx.Batch, tenant int32, now time.Time, changes ...Change) error {
	var rows Rows
	for _, c := range changes {
		if err := rows.Add(tenant, now, c); err != nil {
			return err
		}
	}
	rows.Queue(ctx, b)
	return nil
}

// Rows collects entries, column by column, for one INSERT.
type Rows struct {
	ids           []uuid.UUID
	resources     []*uuid.UUID
	jobs          []*uuid.UUID
	tenants       []int32
	at            []time.Time
	actions       []string
	names         []*string
	before, after []*string
}

// Add adds an entry about a change that a tenant made now.
func (r *Rows) Add(tenant int32, now time.Time, c Change) error {
	before, err := encodeChange(c.Before)
	after, failed := encodeChange(c.After)
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	r.ids = append(r.ids, domain.NewRunID(now))
	r.resources, r.jobs = append(r.resources, pg.OrNull(c.ID)), append(r.jobs, pg.OrNull(c.Job))
	r.tenants, r.at = append(r.tenants, tenant), append(r.at, now)
	r.actions, r.names = append(r.actions, string(c.Action)), append(r.names, pg.OrNull(c.Name))
	r.before, r.after = append(r.before, before), append(r.after, after)
	return nil
}

const insertEntries = `
INSERT INTO punctual.audit_entries (
    id, resource_id, job_id, tenant, at, action, name, before, after, actor_kind, actor, address, request_id)
SELECT unnest($1::uuid[]), unnest($2::uuid[]), unnest($3::uuid[]), unnest($4::int[]), unnest($5::timestamptz[]),
       unnest($6::text[]), unnest($7::text[]), unnest($8::json[]), unnest($9::json[]),
       $10::text, $11::text, $12::text::inet, $13::text`

// Queue queues the entries. The context names the author.
func (r *Rows) Queue(ctx context.Context, b *pgx.Batch) {
	if len(r.ids) == 0 {
		return
	}
	b.Queue(insertEntries, append([]any{
		pg.Prepared{}, r.ids, r.resources, r.jobs, r.tenants, r.at, r.actions, r.names, r.before, r.after,
	}, ActorOf(ctx).Columns()...)...)
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
