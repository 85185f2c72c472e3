package store

import (
	"context"
	"fmt"
	"time"
)

const (
	// DefaultAuditRetention is how long the audit log is kept where Options does not say.
	DefaultAuditRetention = 365 * 24 * time.Hour
	// LeastAuditRetention is what the database keeps of it whatever is asked for.
	LeastAuditRetention = 30 * 24 * time.Hour

	auditBatch = 5000
)

// ForgetAudit removes what is older than the retention from the audit log, in batches, each a transaction of its own.
func (s *Store) ForgetAudit(ctx context.Context) error {
	for begun := time.Now(); time.Since(begun) < tidyFor; {
		var forgotten int
		err := s.conns(ctx).QueryRow(ctx, `SELECT punctual.forget_audit_log($1::interval, $2)`, s.options.AuditRetention, auditBatch).Scan(&forgotten)
		if err != nil {
			return fmt.Errorf("forgetting old entries of the audit log: %w", err)
		}
		if forgotten < auditBatch {
			return nil
		}
	}
	return nil
}
