package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/audit"
	"punctual/store/pg"
)

// unit is one transaction of writes, for one tenant. An Idempotent write opens it and passes it on in the context, so
// that the writes inside are committed together with its key.
type unit struct {
	pgx.Tx
	store  *Store
	tenant int32 // pg.Everybody: a transaction of the scheduler's loops
	due    bool  // something was written that is due at once or very soon

	audited audit.Rows // entries about jobs that were saved but not sent yet
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
	err := s.db.InTx(ctx, tenant, func(tx pgx.Tx) error {
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

// reader returns a pg.Querier that reads for a tenant.
func (s *Store) reader(ctx context.Context, tenant int32) pg.Querier {
	if u := s.unit(ctx); u != nil && u.tenant == tenant {
		return u
	}
	return s.db.Reader(ctx, tenant)
}
