package store

import (
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// Writer makes jobs, runs and operations of one tenant: each in a transaction of its own, or all of them together with
// an Idempotency-Key. See Store.For and Store.Idempotent.
type Writer struct {
	jobs.Writer
	letters.Operator
}

// For returns a Writer for a tenant, whose writes have transactions of their own.
func (s *Store) For(tenant int32) Writer { return s.writer(pg.Writes{DB: s.db, Tenant: tenant}) }

func (s *Store) writer(w pg.Writes) Writer { return Writer{s.Writer(w), s.Operator(w)} }
