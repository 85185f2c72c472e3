package store

import (
	"context"

	"punctual/store/pg"
)

// Writer makes jobs, runs and operations of one tenant: each in a transaction of its own, or all of them together with
// an Idempotency-Key. See Store.For and Store.Idempotent.
type Writer struct {
	store  *Store
	tenant int32
	tx     *pg.Tx // nil: each write has a transaction of its own
}

// For returns a Writer for a tenant, whose writes have transactions of their own.
func (s *Store) For(tenant int32) Writer { return Writer{store: s, tenant: tenant} }

func (w Writer) inTx(ctx context.Context, work func(tx *pg.Tx) error) error {
	if w.tx != nil {
		return work(w.tx)
	}
	return w.store.db.InTx(ctx, w.tenant, work)
}
