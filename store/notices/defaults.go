package notices

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/pg"
)

// Defaults are the default recipients of the tenants that have some.
type Defaults map[int32][]domain.Notify

// Of returns the recipients for a job: its own list, even an empty one, or the tenant's.
func (d Defaults) Of(job *domain.Job) []domain.Notify {
	if job.Notify != nil {
		return job.Notify
	}
	return d[job.Tenant]
}

// defaultsBelieved is how long the defaults count as current after they were read. A replica's heartbeat reads them
// more often than that, so no write has to wait for them.
const defaultsBelieved = 10 * time.Second

// Book is what a process knows about the defaults: nothing at first. Safe for concurrent use.
type Book struct {
	mu       sync.Mutex
	defaults Defaults
	read     time.Time
}

const selectDefaults = `
SELECT coalesce(json_object_agg(id, notify), '{}')
FROM punctual.tenants
WHERE notify IS NOT NULL AND deleted_at IS NULL`

// Facts implements claim.Follower: it selects the defaults of all tenants.
func (b *Book) Facts() string { return selectDefaults }

// Learn implements claim.Follower.
func (b *Book) Learn(raw []byte) error {
	var lists map[int32]json.RawMessage
	if err := json.Unmarshal(raw, &lists); err != nil {
		return fmt.Errorf("reading the default notify of tenants: %w", err)
	}
	defaults := Defaults{}
	for tenant, text := range lists {
		list, err := ReadList(text)
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

// Forget makes the next call of Follow read the defaults again.
func (b *Book) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = time.Time{}
}

// Follow implements claim.Follower with the defaults, which are at most ten seconds old.
func (b *Book) Follow(ctx context.Context, q pg.Querier) (claim.Following, error) {
	b.mu.Lock()
	known, fresh := b.defaults, time.Since(b.read) < defaultsBelieved
	b.mu.Unlock()
	if fresh {
		return &Following{Defaults: known}, nil
	}
	var raw []byte
	if err := q.QueryRow(ctx, selectDefaults).Scan(&raw); err != nil {
		return nil, fmt.Errorf("reading the default notify of tenants: %w", err)
	}
	if err := b.Learn(raw); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return &Following{Defaults: b.defaults}, nil
}

// FollowWithin implements claim.Follower.
func (b *Book) FollowWithin(ctx context.Context, q pg.Querier, tenant int32) (claim.Following, error) {
	var raw []byte
	if err := q.QueryRow(ctx, `SELECT notify FROM punctual.tenants WHERE id = $1`, tenant).Scan(&raw); err != nil {
		return nil, fmt.Errorf("reading the default notify of tenant %d: %w", tenant, err)
	}
	list, err := ReadList(raw)
	return &Following{Defaults: Defaults{tenant: list}}, err
}

// ReadList decodes a stored list; nil if there is none.
func ReadList(raw []byte) (list []domain.Notify, err error) {
	if raw == nil {
		return nil, nil
	}
	return list, json.Unmarshal(raw, &list)
}

// listOf returns the recipients of a job: its own list, or the tenant's as stored.
func listOf(job *domain.Job, stored []byte) ([]domain.Notify, error) {
	if job.Notify != nil {
		return job.Notify, nil
	}
	return ReadList(stored)
}
