// Package tenants keeps tenants, their limits and their API keys. It owns the tables tenants, api_keys and
// request_rates.
package tenants

import (
	"github.com/google/uuid"

	"punctual/store/notices"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// Tenants are the tenants of a deployment. Safe for concurrent use.
type Tenants struct {
	db       *pg.DB
	defaults *notices.Book
	secrets  *secrets.Secrets
	used     usedKeys
}

// New returns the tenants of a database. Their default recipients are read through defaults.
func New(db *pg.DB, defaults *notices.Book, s *secrets.Secrets) *Tenants {
	return &Tenants{db: db, defaults: defaults, secrets: s, used: usedKeys{ids: map[uuid.UUID]bool{}}}
}
