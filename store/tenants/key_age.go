package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// DefaultKeyAge is how long a key works that is made without an end of its own, unless max_key_age is less.
const DefaultKeyAge = 365 * 24 * time.Hour

// tooLong blames a field by which a new key would work for longer than the deployment or its tenant allows.
func tooLong(field string, most time.Duration) error {
	return jobspec.Blame(field, "is more than %s, the longest that a new key of this tenant may work (max_key_age)",
		jobspec.Short(most))
}

// expiry returns when a new key expires, by the database's clock. Nil: never.
func (s *Tenants) expiry(ctx context.Context, tx *pg.Tx, tenant int32, n NewKey) (*time.Time, error) {
	var now time.Time
	var most *time.Duration
	err := tx.QueryRow(ctx, `
		SELECT now(), least(max_key_age, nullif($2::interval, '0')) FROM punctual.tenants WHERE id = $1`,
		tenant, s.maxKeyAge).Scan(&now, &most)
	if err != nil {
		return nil, pg.Found(err, "tenant %d", tenant)
	}
	field, at := "expires_in", now.Add(n.Lifetime)
	switch {
	case n.ExpiresAt != nil && !n.ExpiresAt.After(now):
		return nil, jobspec.Blame("expires_at", "is in the past")
	case n.ExpiresAt != nil:
		field, at = "expires_at", *n.ExpiresAt
	case n.Never && most == nil:
		return nil, nil
	case n.Never:
		return nil, tooLong(field, *most)
	case n.Lifetime > 0:
	case most != nil:
		at = now.Add(min(DefaultKeyAge, *most))
	default:
		at = now.Add(DefaultKeyAge)
	}
	if most != nil && at.After(now.Add(*most)) {
		return nil, tooLong(field, *most)
	}
	return &at, nil
}

// A key expires soon in its last 30 days, or in the last third of a shorter life. Nobody is warned of keys that were
// made for a week or less: programs make those anew. The first condition is the index's.
const (
	warned   = `k.revoked_at IS NULL AND k.expires_at - k.created_at > interval '7 days'`
	soon     = `(` + warned + ` AND k.expires_at > now() AND k.expires_at - now() < ` + soonSpan + `)`
	soonSpan = `least(interval '30 days', (k.expires_at - k.created_at) / 3)`
)

// KeyExpiry is when the next key of a tenant expires.
type KeyExpiry struct {
	Tenant string
	At     time.Time
}

// mostExpiries bounds how many keys a look at the next expiries reads.
const mostExpiries = 1000

// NextKeyExpiries returns for each tenant when the next of its keys expires. It looks at the 1,000 keys that expire
// next.
func (s *Tenants) NextKeyExpiries(ctx context.Context) ([]KeyExpiry, error) {
	next, err := pg.All(ctx, s.db.Chores, pgx.RowToStructByPos[KeyExpiry], `
		SELECT t.name, min(k.expires_at)
		FROM (SELECT k.tenant, k.expires_at FROM punctual.api_keys k
		      WHERE `+warned+` AND k.expires_at > now() ORDER BY k.expires_at LIMIT $1) k
		JOIN punctual.tenants t ON t.id = k.tenant
		GROUP BY t.name`, mostExpiries)
	return next, pg.Wrap("looking for keys that expire", err)
}

// warnEvery is how often a replica logs the keys that expire soon.
const warnEvery = 24 * time.Hour

// mostWarned bounds how many keys are logged at a time.
const mostWarned = 100

// WarnOfKeys logs which keys expire soon, once a day.
func (s *Tenants) WarnOfKeys(ctx context.Context) error {
	if before := s.warned.Load(); before != nil && time.Since(*before) < warnEvery {
		return nil
	}
	keys, err := pg.All(ctx, s.db.Chores, scanKey, selectKeys+`
		WHERE `+soon+` AND k.expires_at < now() + interval '30 days' ORDER BY k.expires_at LIMIT $1`, mostWarned)
	if err != nil {
		return fmt.Errorf("looking for keys that expire soon: %w", err)
	}
	s.warned.Store(new(time.Now()))
	for _, k := range keys {
		s.log.Warn("an API key expires soon: make another, give it to whoever uses this one, and revoke this one",
			"tenant", k.Tenant, "name", k.Name, "prefix", k.Prefix, "expires_at", k.ExpiresAt, "last_used_at", k.LastUsedAt)
	}
	return nil
}
