package events

import (
	"cmp"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// selectTurns reads the events ($1, at least one of each tenant) that have waited longest for their turn, without some
// ($2).
const selectTurns = `
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM punctual.events WHERE turn_at <= now() AND id <> ALL($2::uuid[]) ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT n.tenant
    FROM tenants t, LATERAL (
        SELECT e.tenant FROM punctual.events e
        WHERE e.tenant > t.tenant AND e.turn_at <= now() AND e.id <> ALL($2::uuid[])
        ORDER BY e.tenant LIMIT 1) n)
SELECT t.tenant, e.id
FROM tenants t, LATERAL (
    SELECT e.id, e.turn_at FROM punctual.events e
    WHERE e.tenant = t.tenant AND e.turn_at <= now() AND e.id <> ALL($2::uuid[])
    ORDER BY e.turn_at LIMIT greatest(1, $1 / (SELECT count(*) FROM tenants))) e
ORDER BY e.turn_at`

// turn is an event that may have the next batch.
type turn struct {
	Tenant int32
	Event  uuid.UUID
}

// turns has tenants take turns, however many events one of them has emitted. Each replica keeps its own. Safe for
// concurrent use.
type turns struct {
	mu   sync.Mutex
	had  map[int32]int // tenants that had a turn, each when: a later one is greater
	last int
}

// order puts first what belongs to tenants that have had no turn for longest. It forgets tenants that have nothing to
// do.
func (t *turns) order(found []turn) []turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	had := map[int32]int{}
	for _, f := range found {
		had[f.Tenant] = t.had[f.Tenant]
	}
	t.had = had
	slices.SortStableFunc(found, func(a, b turn) int { return cmp.Compare(had[a.Tenant], had[b.Tenant]) })
	return found
}

// took notes that a tenant has had its turn.
func (t *turns) took(tenant int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.had[tenant] = t.last
}
