package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// A dated run has a row in dated and none in runs. The claim that meets it when it is due takes it from there and makes
// it a run, in its own transaction. From then on it is a run like any other, and the same claim decides about it. Only
// if it does not start at once it gets a row in ready.

// dated are the dated runs that a claim of ready has met. It is a subject.
type dated struct {
	decides
	*lockedRuns
	entered map[uuid.UUID]bool // those that are runs now, also in queues that this claim does not serve
	settled int                // how many are runs now, or set aside
	over    []uuid.UUID        // runs that are too late
}

// enterDated makes runs of dated rows, if their jobs are active. It finds the rows by their addresses. They send the
// current version of their jobs. A run has data of its own only if its caller gave some: without a key of the caller's
// its id is the key.
var enterDated = days.AnyDay.Of(`
WITH gone AS (
    DELETE FROM punctual.dated d
    USING punctual.jobs j
    WHERE d.ctid = ANY($1::tid[]) AND j.id = d.job_id AND j.state = 'active'
    RETURNING d.*, j.version, j.queue),
u AS MATERIALIZED (
    SELECT j.*, ` + laneNow + ` AS place
    FROM (SELECT g.*, g.job_id AS id FROM gone g) j
    LEFT JOIN punctual.schedules s ON s.job_id = j.job_id),
made AS (
    ` + inserting(`id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger, triggered_by`, `
    SELECT run_id, job_id, due_at, due_at, tenant, version, place, 'pending', 'manual', triggered_by
    FROM u
    ORDER BY run_id`) + `),
sends AS (
    INSERT INTO punctual.run_data (run_id, headers, body, key, expires_after, traceparent)
    SELECT run_id, headers, body, key, expires_after, traceparent
    FROM u
    WHERE num_nonnulls(headers, body, expires_after, traceparent) > 0 OR key <> run_id::text)
SELECT run_id, place FROM u`)

// keepDated gives those that do not start in this claim their rows in ready.
const keepDated = `
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
SELECT id, job_id, due_at, tenant, lane
FROM punctual.runs
WHERE id = ANY($1::uuid[])`

// setDatedAside puts dated rows of jobs that are not active out of the way of claims. The lock on the job keeps it from
// being resumed meanwhile, which would look for rows to bring back. Those of a deleted job were committed after its
// delete, so a chore is to remove them.
const setDatedAside = `
WITH away AS MATERIALIZED (
    SELECT j.id, j.tenant, j.state FROM punctual.jobs j WHERE j.id = ANY($2::uuid[]) AND j.state <> 'active'
    ORDER BY j.id FOR SHARE SKIP LOCKED),
gone AS (
    INSERT INTO punctual.dated_work (job_id, tenant) SELECT id, tenant FROM away WHERE state = 'deleted'
    ON CONFLICT (job_id) DO NOTHING)
UPDATE punctual.dated d SET waits = 'aside'
FROM away
WHERE d.ctid = ANY($1::tid[]) AND d.job_id = away.id`

// enter makes runs of the dated runs that the claim has met, before runs are read. Those of paused and of deleted jobs
// it sets aside. A run whose job has moved to another queue waits there.
func (d *dated) enter(ctx context.Context) error {
	var addresses []pgtype.TID
	for _, id := range d.ids {
		if at := d.rows[id].at; at.Valid {
			addresses = append(addresses, at)
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	lanes, err := pg.Map[uuid.UUID, int16](ctx, d.conn, enterDated, addresses)
	if err != nil {
		return fmt.Errorf("entering dated runs: %w", err)
	}
	d.settled = len(lanes)
	if len(lanes) < len(addresses) {
		aside, err := d.conn.Exec(ctx, setDatedAside, addresses, d.jobs())
		if err != nil {
			return fmt.Errorf("setting dated runs aside: %w", err)
		}
		d.settled += int(aside.RowsAffected())
	}
	d.entered = map[uuid.UUID]bool{}
	d.ids = slices.DeleteFunc(d.ids, func(id uuid.UUID) bool {
		lane, entered := lanes[id]
		if entered {
			d.entered[id] = true
		}
		row := d.rows[id]
		return row.at.Valid && (!entered || lane/4 != row.lane/4)
	})
	return nil
}

// days returns an instant of each day on which a dated run was due.
func (d *dated) days() (instants []time.Time) {
	for id, row := range d.rows {
		if row.at.Valid {
			instants = append(instants, domain.IDTime(id))
		}
	}
	return instants
}

// decide ends runs that are too late for their jobs.
func (d *dated) decide(r *waitingRun) verdict {
	if !d.entered[r.RunID] || !r.Job.Misses(r.DueAt, d.now) {
		return goesOn
	}
	d.over = append(d.over, r.RunID)
	d.events = append(d.events, RunEvent{r.Job, jobspec.EventMissed, r.RunID})
	return verdict{fate: leaves}
}

// write gives rows in ready to those that are not among the runs that start, and ends those that are missed.
func (d *dated) write(ctx context.Context, b *pgx.Batch) error {
	var kept []uuid.UUID
	for id := range d.entered {
		if !slices.Contains(d.start, id) {
			kept = append(kept, id)
		}
	}
	if len(d.over) > 0 {
		b.Queue(endMissed, d.over)
	}
	if len(kept) == 0 {
		return nil
	}
	return pg.Wrap("keeping dated runs", pg.Exec(ctx, d.conn, keepDated, kept))
}

const endMissed = `
UPDATE punctual.runs
SET status = 'skipped', reason = 'missed', finished_at = greatest(now(), created_at)
WHERE id = ANY($1::uuid[])`
