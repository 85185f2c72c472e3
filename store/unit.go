package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// unit is one transaction of writes, for one tenant. An Idempotent write opens it and passes it on in the context, so
// that the writes inside are committed together with its key.
type unit struct {
	pgx.Tx
	store  *Store
	tenant int32 // everybody: a transaction of the scheduler's loops
	due    bool  // something was written that is due at once or very soon

	audited auditRows // entries about jobs that were saved but not sent yet
}

type unitKey struct{}

// soon is how near a next slot must be for the tick loop to be woken: the loop looks about once a second anyway.
const soon = 1500 * time.Millisecond

// join runs work for a tenant in the unit that the context carries, or in a new one. After the commit it wakes the tick
// loop if there is something for the loop.
func (s *Store) join(ctx context.Context, tenant int32, work func(ctx context.Context, u *unit) error) error {
	if u := s.unit(ctx); u != nil {
		if u.tenant != tenant {
			return fmt.Errorf("a write for tenant %d in a transaction for tenant %d", tenant, u.tenant)
		}
		return work(ctx, u)
	}
	u := &unit{store: s, tenant: tenant}
	err := s.inTx(ctx, tenant, func(tx pgx.Tx) error {
		u.Tx = tx
		return work(context.WithValue(ctx, unitKey{}, u), u)
	})
	if err == nil && u.due {
		s.signal()
	}
	return err
}

func (s *Store) unit(ctx context.Context) *unit {
	if u, ok := ctx.Value(unitKey{}).(*unit); ok && u.store == s {
		return u
	}
	return nil
}

// querier is what reads need: the pool, or the transaction whose own writes the reads must see.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	batcher
}

// batcher is what reads of several statements need.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// reader returns a querier that reads for a tenant.
func (s *Store) reader(ctx context.Context, tenant int32) querier {
	if u := s.unit(ctx); u != nil && u.tenant == tenant {
		return u
	}
	if tenant == everybody {
		return s.conns(ctx)
	}
	return tenantReader{s, tenant}
}

// utc converts instants to UTC, except nil ones: pgx returns them in the zone of the process.
func utc(instants ...*time.Time) {
	for _, t := range instants {
		if t != nil {
			*t = t.UTC()
		}
	}
}
