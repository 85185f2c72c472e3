package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// gate is the locked gate of a job whose runs must not overlap.
type gate struct {
	active  uuid.UUID // uuid.Nil: free
	waiting uuid.UUID // uuid.Nil: none
}

// queueGates locks the gates of jobs and reads them; with passOver a gate that somebody else has locked is
// left out.
// It must come in a statement after the one that locked the jobs' schedules or ready rows: within that
// one it would read a stale snapshot, and a forbidden job would run twice.
func queueGates(b *pgx.Batch, jobs []uuid.UUID, gates map[uuid.UUID]gate, locked string) {
	b.Queue(`SELECT job_id, coalesce(active_run, '00000000-0000-0000-0000-000000000000'), coalesce(waiting_run, '00000000-0000-0000-0000-000000000000') FROM punctual.exclusive
	          WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE`+locked, prepared{}, jobs).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var job uuid.UUID
				var g gate
				if err := rows.Scan(&job, &g.active, &g.waiting); err != nil {
					return err
				}
				gates[job] = g
			}
			return rows.Err()
		})
}

// mendGates makes the gates of jobs that should have one and were not found, so that a job whose gate was lost, in a
// restore or by hand, does not stay due for ever. Those that are only locked by others are there, and must not be
// inserted: that would wait for whoever updates them, against the lock order.
func mendGates(ctx context.Context, conn batcher, jobs map[jobVersion]*scheduler.Job, found map[uuid.UUID]gate) error {
	var missing []uuid.UUID
	for _, job := range jobs {
		if _, ok := found[job.ID]; !ok && job.ConcurrencyPolicy != scheduler.PolicyAllow {
			missing = append(missing, job.ID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.SortFunc(missing, compareIDs)
	var b pgx.Batch
	b.Queue(`INSERT INTO punctual.exclusive (job_id) SELECT id FROM (
			SELECT j.id FROM punctual.jobs j WHERE j.id = ANY($1::uuid[])
			AND NOT EXISTS (SELECT FROM punctual.exclusive x WHERE x.job_id = j.id) ORDER BY j.id FOR KEY SHARE SKIP LOCKED) j
		ON CONFLICT DO NOTHING`, slices.Compact(missing))
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("mending gates: %w", err)
	}
	return nil
}

// freeEndedGates clears, in memory, the runs of gates that are final or missing: they count as none.
func freeEndedGates(ctx context.Context, conn querier, gates map[uuid.UUID]gate) error {
	var named []uuid.UUID
	for _, g := range gates {
		for _, id := range []uuid.UUID{g.active, g.waiting} {
			if id != uuid.Nil {
				named = append(named, id)
			}
		}
	}
	if len(named) == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, `SELECT id, status FROM punctual.runs WHERE id = ANY($1::uuid[])`, named)
	if err != nil {
		return fmt.Errorf("reading the runs of gates: %w", err)
	}
	alive := map[uuid.UUID]bool{}
	var id uuid.UUID
	var status scheduler.Status
	if _, err := pgx.ForEachRow(rows, []any{&id, &status}, func() error {
		alive[id] = !status.Final()
		return nil
	}); err != nil {
		return fmt.Errorf("reading the runs of gates: %w", err)
	}
	for job, g := range gates {
		if !alive[g.active] {
			g.active = uuid.Nil
		}
		if !alive[g.waiting] {
			g.waiting = uuid.Nil
		}
		gates[job] = g
	}
	return nil
}

// queueTakeGates makes runs the active ones of their jobs. The caller holds the gates.
func queueTakeGates(b *pgx.Batch, jobs, runs []uuid.UUID) {
	b.Queue(`UPDATE punctual.exclusive e SET active_run = u.run_id, waiting_run = nullif(e.waiting_run, u.run_id)
	           FROM unnest($1::uuid[], $2::uuid[]) AS u(job_id, run_id) WHERE e.job_id = u.job_id`, jobs, runs)
}

// queueWait makes runs the waiting ones of their jobs. The caller holds the gates.
func queueWait(b *pgx.Batch, jobs, runs []uuid.UUID) {
	b.Queue(`UPDATE punctual.exclusive e SET waiting_run = u.run_id
	           FROM unnest($1::uuid[], $2::uuid[]) AS u(job_id, run_id) WHERE e.job_id = u.job_id`, jobs, runs)
}
