package freeze

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Look is the set of tenants that a claim must leave alone. The claim reads it after taking its locks, in the round
// trip that takes them. A claim that finds nothing frozen holds locks on the tables from before the freeze was
// committed, so awaitClaims sees it. A claim that begins after that, on any replica, finds the freeze.
type Look struct {
	All     bool    // the deployment is frozen, or this is a copy of the database that runs were dispatched from
	Tenants []int32 // the frozen ones, sorted
}

// SelectFrozen selects what a Look holds.
const SelectFrozen = `
SELECT d.frozen_at IS NOT NULL OR punctual.is_copy(d.database_name, d.system_identifier),
       ARRAY(SELECT t.id FROM punctual.tenants t WHERE t.frozen_at IS NOT NULL ORDER BY t.id)
FROM punctual.deployment d`

// Queue queues the statement that reads a Look.
func (f *Look) Queue(b *pgx.Batch) {
	b.Queue(SelectFrozen, pg.Prepared{}).QueryRow(pg.IntoPlaces(&f.All, &f.Tenants))
}

// Leave reports whether a tenant is frozen, and notes it in the batch.
func (f *Look) Leave(batch *domain.Batch, tenant int32) bool {
	if _, is := slices.BinarySearch(f.Tenants, tenant); !is {
		return false
	}
	if !slices.Contains(batch.Frozen, tenant) {
		batch.Frozen = append(batch.Frozen, tenant)
	}
	return true
}
