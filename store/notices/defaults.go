package notices

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/pg"
)

// Defaults are the default recipients of the tenants that have some.
type Defaults map[int32][]jobspec.Notify

// Of returns the recipients for a job: its own list, even an empty one, or the tenant's.
func (d Defaults) Of(job *domain.Job) []jobspec.Notify {
	if job.Notify != nil {
		return job.Notify
	}
	return d[job.Tenant]
}

// defaultsBelieved is how long the defaults count as current after they were read. A replica's heartbeat reads them
// more often than that, so no write has to wait for them.
const defaultsBelieved = 10 * time.Second

// Book is what a process knows about the defaults: nothing at first. Safe for concurrent use.
type Book struct{ known atomic.Pointer[edition] }

// edition is the defaults as they were at an instant.
type edition struct {
	defaults Defaults
	read     time.Time
}

const selectDefaults = `
SELECT coalesce(json_object_agg(id, notify), '{}')
FROM punctual.tenants
WHERE notify IS NOT NULL AND deleted_at IS NULL`

// Facts implements replicas.Learner: it selects the defaults of all tenants.
func (b *Book) Facts() string { return selectDefaults }

// Learn implements replicas.Learner.
func (b *Book) Learn(raw []byte) error {
	e := edition{read: time.Now()}
	if err := json.Unmarshal(raw, &e.defaults); err != nil {
		return fmt.Errorf("reading the default notify of tenants: %w", err)
	}
	b.known.Store(&e)
	return nil
}

// Forget makes the next call of Follow read the defaults again.
func (b *Book) Forget() { b.known.Store(nil) }

// Follow implements claim.Follower with the defaults, which are at most ten seconds old.
func (b *Book) Follow(ctx context.Context, q pg.Querier, tenant int32) (claim.Following, error) {
	if tenant != pg.Everybody {
		var list []jobspec.Notify
		err := q.QueryRow(ctx, `SELECT notify FROM punctual.tenants WHERE id = $1`, tenant).Scan(&list)
		return &Following{Defaults: Defaults{tenant: list}},
			pg.Wrap(fmt.Sprintf("reading the default notify of tenant %d", tenant), err)
	}
	e := b.known.Load()
	if e == nil || time.Since(e.read) >= defaultsBelieved {
		e = &edition{read: time.Now()}
		if err := q.QueryRow(ctx, selectDefaults).Scan(&e.defaults); err != nil {
			return nil, fmt.Errorf("reading the default notify of tenants: %w", err)
		}
		b.known.Store(e)
	}
	return &Following{Defaults: e.defaults}, nil
}
