package replicas

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/store/audit"
	"punctual/store/pg"
)

// A hold that an operator asked to reset becomes an order. So does the hold of a host that another replica has reached.
// The replica ($10) follows the columns of its holds.
var reportHolds = `
WITH told AS (
    SELECT * FROM ` + holdColumns.Unnest("u") + `),
orders AS (
    SELECT h.tenant, h.host, h.path, h.state = 'hanging' AS hanging, true AS reset
    FROM punctual.holds h
    WHERE h.replica = $10 AND h.reset_at IS NOT NULL
    UNION
    SELECT t.tenant, t.host, t.path, false, false
    FROM told t
    WHERE t.state = 'open' AND EXISTS (
        SELECT FROM punctual.holds o
        WHERE o.tenant = t.tenant AND o.held_by = t.held_by AND o.replica <> $10 AND o.state = 'recovering')),
gone AS (
    DELETE FROM punctual.holds h WHERE h.replica = $10
       AND NOT EXISTS (SELECT FROM told t WHERE t.tenant = h.tenant AND t.held_by = h.held_by)),
written AS (
    INSERT INTO punctual.holds AS h (replica, tenant, held_by, state, host, path, failures, last_error, since, probe_at)
    SELECT r.id, t.tenant, t.held_by, t.state, t.host, t.path, t.failures, t.last_error,
           now() - t.since, now() + t.probe_in
    FROM told t
    JOIN punctual.replicas r ON r.id = $10
    JOIN punctual.tenants o ON o.id = t.tenant
    ON CONFLICT (replica, tenant, held_by) DO UPDATE
    SET state = excluded.state, failures = excluded.failures, last_error = excluded.last_error,
        since = least(h.since, excluded.since), probe_at = excluded.probe_at, reset_at = NULL)
SELECT tenant, host, path, hanging, reset FROM orders`

var holdColumns = pg.Columns[admit.HoldState]{
	pg.Col("tenant", "int", func(h admit.HoldState) int32 { return h.Tenant }),
	pg.Col("held_by", "text", func(h admit.HoldState) string { return pg.Storable(h.By) }),
	pg.Col("state", "text", func(h admit.HoldState) string { return h.State }),
	pg.Col("host", "text", func(h admit.HoldState) string { return pg.Storable(h.Host) }),
	pg.Col("path", "text", func(h admit.HoldState) string { return pg.Storable(h.Path) }),
	pg.Col("failures", "int", func(h admit.HoldState) int32 { return int32(h.Failures) }),
	pg.Col("last_error", "text", func(h admit.HoldState) string { return pg.Storable(h.LastError) }),
	pg.Col("since", "interval", func(h admit.HoldState) time.Duration { return h.For }),
	pg.Col("probe_in", "interval", func(h admit.HoldState) *time.Duration { return pg.OrNull(max(h.ProbeIn, 0)) }),
}

// ReportHolds implements scheduler.Store.
func (s *Replicas) ReportHolds(
	ctx context.Context, replica uuid.UUID, states []admit.HoldState,
) ([]admit.HoldOrder, error) {
	orders, err := pg.All(ctx, s.db.Chores, pgx.RowToStructByPos[admit.HoldOrder], reportHolds,
		append(holdColumns.Args(states), replica)...)
	if err != nil {
		return nil, s.db.TookWrite(fmt.Errorf("writing what holds runs back: %w", err))
	}
	return orders, s.ReleaseHeld(ctx)
}

// ResetHolds asks all replicas to release the runs of a tenant that they hold back for a host. An empty host means
// every host. It returns how many holds that affects; the replicas release the runs within two seconds.
func (s *Replicas) ResetHolds(ctx context.Context, tenant int32, host string) (n int, err error) {
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE punctual.holds SET reset_at = now() WHERE tenant = $1 AND ($2 = '' OR host = $2)`, tenant, host)
		if err != nil {
			return fmt.Errorf("resetting what holds runs back: %w", err)
		}
		n = int(tag.RowsAffected())
		tx.Ask(scheduler.ChoreHolds)
		return audit.Write(ctx, tx, tenant, audit.Change{Action: audit.BreakerReset, Name: cmp.Or(host, "every host")})
	})
	return n, err
}
