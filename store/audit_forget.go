package store

import (
	"context"
	"fmt"
	"time"
)

const (
	// DefaultAuditRetention is how long the audit log is kept unless Options says otherwise.
	DefaultAuditRetention = 365 * 24 * time.Hour
	// LeastAuditRetention is how long the database keeps the audit log at least, whatever retention is asked for.
	LeastAuditRetention = 30 * 24 * time.Hour

	auditBatch = 5000
)

// ForgetAudit removes entries older than the retention from the audit log, in batches, each in a transaction of its
// own.
func (s *Store) ForgetAudit(ctx context.Context) (forgotten int, left bool, err error) {
	forgotten, left, err = repeat(ctx, auditBatch, func(ctx context.Context) (found, gone int, err error) {
		err = s.db.Conns(ctx).QueryRow(ctx, `SELECT punctual.forget_audit_log($1::interval, $2)`,
			s.options.AuditRetention, auditBatch).Scan(&gone)
		return gone, gone, err
	})
	if err != nil {
		return forgotten, false, fmt.Errorf("forgetting old entries of the audit log: %w", err)
	}
	return forgotten, left, nil
}
