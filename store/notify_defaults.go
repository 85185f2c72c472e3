package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// notifyDefaults are the default recipients of the tenants that have some.
type notifyDefaults map[int32][]scheduler.Notify

// of returns the recipients for a job: its own list, even an empty one, or the tenant's.
func (d notifyDefaults) of(job *scheduler.Job) []scheduler.Notify {
	if job.Notify != nil {
		return job.Notify
	}
	return d[job.Tenant]
}

// defaultsBelieved is how long the defaults count as current after they were read. A replica's heartbeat reads them
// more often than that, so no write has to wait for them.
const defaultsBelieved = 10 * time.Second

// defaultsBook is what a process knows about the defaults.
type defaultsBook struct {
	mu       sync.Mutex
	defaults notifyDefaults
	read     time.Time
}

const selectDefaults = `
SELECT coalesce(json_object_agg(id, notify), '{}')
FROM punctual.tenants
WHERE notify IS NOT NULL AND deleted_at IS NULL`

// keep stores the defaults that were read.
func (b *defaultsBook) keep(raw []byte) error {
	var lists map[int32]json.RawMessage
	if err := json.Unmarshal(raw, &lists); err != nil {
		return fmt.Errorf("reading the default notify of tenants: %w", err)
	}
	defaults := notifyDefaults{}
	for tenant, text := range lists {
		list, err := readNotify(text)
		if err != nil {
			return fmt.Errorf("reading the default notify of tenant %d: %w", tenant, err)
		}
		defaults[tenant] = list
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defaults, b.read = defaults, time.Now()
	return nil
}

// forget makes the next call of notifyDefaults read the defaults again.
func (b *defaultsBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = time.Time{}
}

// notifyDefaults returns the defaults, at most ten seconds old. Call it before a transaction begins, because it may
// need a connection of its own.
func (s *Store) notifyDefaults(ctx context.Context) (notifyDefaults, error) {
	s.defaults.mu.Lock()
	known, fresh := s.defaults.defaults, time.Since(s.defaults.read) < defaultsBelieved
	s.defaults.mu.Unlock()
	if fresh {
		return known, nil
	}
	var raw []byte
	if err := s.db.Conns(ctx).QueryRow(ctx, selectDefaults).Scan(&raw); err != nil {
		return nil, fmt.Errorf("reading the default notify of tenants: %w", err)
	}
	if err := s.defaults.keep(raw); err != nil {
		return nil, err
	}
	s.defaults.mu.Lock()
	defer s.defaults.mu.Unlock()
	return s.defaults.defaults, nil
}

// defaultOf returns the default of one tenant, within a transaction.
func defaultOf(ctx context.Context, tx pgx.Tx, tenant int32) (notifyDefaults, error) {
	var raw []byte
	if err := tx.QueryRow(ctx, `SELECT notify FROM punctual.tenants WHERE id = $1`, tenant).Scan(&raw); err != nil {
		return nil, fmt.Errorf("reading the default notify of tenant %d: %w", tenant, err)
	}
	list, err := readNotify(raw)
	return notifyDefaults{tenant: list}, err
}

// knowsSecrets returns an *UnknownSecretError if a list names a secret that its tenant does not have.
func (u *unit) knowsSecrets(ctx context.Context, tenant int32, list []scheduler.Notify) error {
	f, err := u.store.readSecretFacts(ctx, u, tenant, scheduler.Definition{Notify: list})
	if err != nil {
		return err
	}
	for field, name := range (scheduler.Definition{Notify: list}).SecretNames() {
		if !f.names[name] {
			return &UnknownSecretError{Field: field, Name: name}
		}
	}
	return nil
}

// readNotify decodes a stored list; nil if there is none.
func readNotify(raw []byte) (list []scheduler.Notify, err error) {
	if raw == nil {
		return nil, nil
	}
	return list, json.Unmarshal(raw, &list)
}
