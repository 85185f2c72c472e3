package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// KeepChanges sets how long the changes of the tenant are kept; 0: none are recorded.
func (c Fixture) KeepChanges(kept time.Duration) {
	c.T.Helper()
	_, err := c.Tenants.EditTenant(c.T.Context(), c.TenantName(), func(t *tenants.Tenant) error {
		if t.ChangesKept = nil; kept > 0 {
			t.ChangesKept = new(jobspec.DurationOf(kept))
		}
		return nil
	})
	Must(c.T, err)
}

// Changed returns what follows a cursor, and the cursor of what comes next. It waits until no transaction that is older
// is open, also not in other databases of the cluster.
func (c Fixture) Changed(after string) (ended []uuid.UUID, next string) {
	c.T.Helper()
	c.Until("older transactions to end", `SELECT coalesce(max(xid) < pg_snapshot_xmin(pg_current_snapshot()), true)
		FROM punctual.changes`)
	return c.ChangedNow(after)
}

// ChangedNow is changed for what may be read now, in pages that end within rows of changes.
func (c Fixture) ChangedNow(after string) (ended []uuid.UUID, next string) {
	c.T.Helper()
	for more := true; more; {
		page, err := c.Changes.Read(c.T.Context(), c.Tenant, after, 7)
		Must(c.T, err)
		ended, after, more = append(ended, page.Runs...), page.Next, page.More
	}
	return ended, after
}

// WantRecorded fails the test unless the feed has all runs of the tenant that have ended, and no others.
func (c Fixture) WantRecorded() {
	c.T.Helper()
	feed, _ := c.Changed("")
	want, err := pg.All(c.T.Context(), c.DB.Callers, pgx.RowTo[uuid.UUID], `
		SELECT id FROM punctual.runs WHERE tenant = $1 AND status IN ('succeeded', 'dead', 'skipped', 'cancelled')
		ORDER BY id`, c.Tenant)
	Must(c.T, err)
	slices.SortFunc(feed, pg.CompareIDs)
	if feed = slices.Compact(feed); !slices.Equal(feed, want) {
		c.T.Errorf("the feed has %v; runs that have ended: %v", feed, want)
	}
}
