// Package audit is the audit log: who changed what and when, and how it was before and after. It owns the table
// audit_log. A change and its entry are written in one transaction: see [Write] and [Queue]. What an entry shows of a
// resource is decided where the resource is written.
package audit

import (
	"context"
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

const (
	// DefaultRetention is how long entries are kept unless the deployment says otherwise.
	DefaultRetention = 365 * 24 * time.Hour
	// LeastRetention is how long the database keeps entries at least, whatever retention is asked for.
	LeastRetention = 30 * 24 * time.Hour

	forgetBatch = 5000
)

// Forget removes entries older than the retention, in batches, each in a transaction of its own. left is true if there
// are more.
func (l *Log) Forget(ctx context.Context) (forgotten int, left bool, err error) {
	forgotten, left, err = pg.Repeat(ctx, forgetBatch, func(ctx context.Context) (found, gone int, err error) {
		err = l.db.Chores.QueryRow(ctx, `SELECT punctual.forget_audit_log($1::interval, $2)`,
			l.retention, forgetBatch).Scan(&gone)
		return gone, gone, err
	})
	return forgotten, left, pg.Wrap("forgetting old entries of the audit log", err)
}
