package pg

import "context"

// Writes opens the transactions for one tenant's writes: one for each write, or one that is given for all of them.
type Writes struct {
	DB     *DB
	Tenant int32
	Tx     *Tx // nil: each write has a transaction of its own
}

// InTx runs work in a transaction.
func (w Writes) InTx(ctx context.Context, work func(tx *Tx) error) error {
	if w.Tx != nil {
		return work(w.Tx)
	}
	return w.DB.InTx(ctx, w.Tenant, work)
}
