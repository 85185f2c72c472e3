package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// verifyLimits finds limits that are not obeyed. A limit that was lowered lets the runs end that hold it, and no other
// run start.
const verifyLimits = `
	SELECT t.name, l.name, h.holders::int, coalesce(l.max_running, 0), h.runs[1:10], w.runs
	FROM punctual.limits l
	JOIN punctual.tenants t ON t.id = l.tenant
	CROSS JOIN LATERAL (
	    SELECT count(*) AS holders, array_agg(h.run_id ORDER BY h.since, h.run_id) AS runs, max(h.since) AS newest
	    FROM punctual.limit_holders h
	    WHERE h.tenant = l.tenant AND h.name = l.name
	      AND h.run_id IN (SELECT punctual.holders_of_limit(l.tenant, l.name))) h
	CROSS JOIN LATERAL (
	    SELECT ARRAY(
	        SELECT y.run_id FROM punctual.ready y
	        WHERE y.tenant = l.tenant AND y.waits = 'limit' AND y.waits_on = l.name
	          AND punctual.frozen_since(l.tenant) IS NULL AND punctual.room_at_limit(l) > 0
	        ORDER BY y.run_id LIMIT 10) AS runs) w
	WHERE ($1 = 0 OR l.tenant = $1)
	  AND (h.holders > l.max_running AND h.newest > l.updated_at OR w.runs <> '{}')
	ORDER BY l.tenant, l.name`

// limitSettles is how long replicas take to set due what a limit has room for: two heartbeats.
const limitSettles = 4 * time.Second

// limits looks twice for limits that are not obeyed, because a run may have ended just now. A limit is of no
// single job.
func (v *verification) limits(ctx context.Context) error {
	if v.options.Job != "" {
		return nil
	}
	_, before, err := v.readLimits(ctx)
	if err != nil || len(before) == 0 {
		return err
	}
	select {
	case <-time.After(min(limitSettles, v.options.Grace)):
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller says of what
	}
	found, keys, err := v.readLimits(ctx)
	if err != nil {
		return err
	}
	for i, one := range found {
		if slices.Contains(before, keys[i]) {
			v.report(one)
		}
	}
	return v.failed
}

// readLimits returns what is wrong with limits, each with its key, and the keys.
func (v *verification) readLimits(ctx context.Context) (found []Violation, keys []string, err error) {
	rows := pg.Query(ctx, v.history.db, verifyLimits, v.tenant)
	var tenant, name string
	var holders, most int
	var held, waiting []uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &holders, &most, &held, &waiting}, func() error {
		one := Violation{Kind: ViolationLimit, Tenant: tenant, Runs: held}
		one.Detail = fmt.Sprintf("limit %q has %d holders, and allows %d", name, holders, most)
		if len(waiting) > 0 {
			one.Runs, one.Detail = waiting, fmt.Sprintf("limit %q has room, and these runs wait at it all the same", name)
		}
		found, keys = append(found, one), append(keys, fmt.Sprint(tenant, "/", name, "/", len(waiting) > 0))
		return nil
	})
	return found, keys, pg.Wrap("reading limits", err)
}
