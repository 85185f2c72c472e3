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
	"punctual/store/seal"
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

// Rows collects entries for one INSERT.
type Rows []entry

type entry struct {
	Change
	id            uuid.UUID
	tenant        int32
	at            time.Time
	before, after *seal.Document
}

// Add adds an entry about a change that a tenant made now.
func (r *Rows) Add(tenant int32, now time.Time, c Change) error {
	before, err := encodeChange(c.Before)
	after, failed := encodeChange(c.After)
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("encoding a change: %w", err)
	}
	*r = append(*r, entry{c, domain.NewRunID(now), tenant, now, before, after})
	return nil
}

var entryColumns = pg.Columns[entry]{
	pg.Col("id", "uuid", func(e entry) uuid.UUID { return e.id }),
	pg.Col("resource_id", "uuid", func(e entry) *uuid.UUID { return pg.OrNull(e.ID) }),
	pg.Col("job_id", "uuid", func(e entry) *uuid.UUID { return pg.OrNull(e.Job) }),
	pg.Col("tenant", "int", func(e entry) int32 { return e.tenant }),
	pg.Col("at", "timestamptz", func(e entry) time.Time { return e.at }),
	pg.Col("action", "text", func(e entry) string { return string(e.Action) }),
	pg.Col("name", "text", func(e entry) *string { return pg.OrNull(e.Name) }),
	pg.Col("before", "json", func(e entry) *seal.Document { return e.before }),
	pg.Col("after", "json", func(e entry) *seal.Document { return e.after }),
}

var insertEntries = `
INSERT INTO punctual.audit_entries (` + entryColumns.Names() + `, actor_kind, actor, address, request_id)
SELECT ` + entryColumns.Each() + `,
       ` + entryColumns.Arg(1) + `::text, ` + entryColumns.Arg(2) + `::text, ` + entryColumns.Arg(3) + `::text::inet,
       ` + entryColumns.Arg(4) + `::text`

// Queue queues the entries. The context names the author.
func (r *Rows) Queue(ctx context.Context, b *pgx.Batch) {
	if len(*r) > 0 {
		b.Queue(insertEntries, pg.Prepared{}.With(append(entryColumns.Args(*r), ActorOf(ctx).Columns()...)...)...)
	}
}

// encodeChange returns the state of a resource as JSON, and nil for nil.
func encodeChange(v any) (*seal.Document, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return new(seal.Document(v)), nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return new(seal.Document(text)), nil
}
