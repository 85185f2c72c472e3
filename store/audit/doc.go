// Package audit is the audit log: who changed what and when, and how it was before and after. It owns the table
// audit_log. A change and its entry are written in one transaction: see [Write] and [Queue]. What an entry shows of a
// resource is decided where the resource is written.
package audit

import (
	"time"

	"punctual/store/pg"
)

// Log is the audit log of one database. Safe for concurrent use.
type Log struct {
	db        *pg.DB
	retention time.Duration
}

// New returns the audit log of a database. Entries are kept for retention, which is at least LeastRetention.
func New(db *pg.DB, retention time.Duration) *Log { return &Log{db, retention} }
