// Package freeze stops claims: for a tenant or for the whole deployment, on request or because the database turns out
// to be a copy of the one that runs were dispatched from. It owns the table deployment's freeze and identity, and the
// freezes of tenants.
//
// Start with freeze.go; look.go is what a claim asks, and identity.go recognises a restored database.
package freeze

import (
	"log/slog"

	"punctual/store/pg"
)

// Options says how to treat a database that runs were not dispatched from.
type Options struct {
	Log   *slog.Logger
	Adopt bool // dispatch runs from this database; otherwise it is frozen
}

// Switch freezes and unfreezes. Safe for concurrent use.
type Switch struct {
	db      *pg.DB
	options Options
}

// New returns a Switch for a database.
func New(db *pg.DB, o Options) *Switch { return &Switch{db: db, options: o} }

// Adopts reports whether a database that runs were not dispatched from is adopted.
func (s *Switch) Adopts() bool { return s.options.Adopt }
