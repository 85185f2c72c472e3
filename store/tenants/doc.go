// Package tenants keeps tenants, their limits and their API keys. It owns the tables tenants, api_keys and
// request_rates.
package tenants

import (
	"log/slog"
	"sync/atomic"
	"time"

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

	log       *slog.Logger
	maxKeyAge time.Duration             // of new keys of any tenant; 0: no limit
	warned    atomic.Pointer[time.Time] // when the keys that expire soon were last logged
}

// New returns the tenants of a database. Their default recipients are read through defaults. A new key works no longer
// than maxKeyAge; 0: as long as its tenant allows.
func New(
	db *pg.DB, defaults *notices.Book, s *secrets.Secrets, maxKeyAge time.Duration, log *slog.Logger,
) *Tenants {
	return &Tenants{
		db: db, defaults: defaults, secrets: s, used: usedKeys{ids: map[uuid.UUID]bool{}}, log: log, maxKeyAge: maxKeyAge,
	}
}
