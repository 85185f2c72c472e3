package runs

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/trace"
	"punctual/store/pg"
	"punctual/store/seal"
)

var _ trace.Runs = (*Runs)(nil)

// selectEnded reads runs that have ended, with what their traces link to: the run or event that caused them, the run of
// their workflow, and the run that they repeat.
const selectEnded = `
SELECT r.id, coalesce(r.fence, 0), j.name, t.name, coalesce(r.step, ''), r.trigger, r.status, coalesce(r.reason, ''),
       coalesce(r.error, ''), r.attempt, r.due_at, r.created_at, r.finished_at, coalesce(d.traceparent, ''),
       d.key IS NOT NULL, array_remove(ARRAY[r.caused_by, r.parent_run, r.replay_of, r.rerun_of], NULL)
FROM punctual.runs_of($1::uuid[]) r
JOIN punctual.jobs j ON j.id = r.job_id
JOIN punctual.tenants t ON t.id = r.tenant
LEFT JOIN punctual.run_data d ON d.run_id = r.id AND d.run_id = ANY($1::uuid[])
WHERE r.status IN ('succeeded', 'dead', 'cancelled')`

// selectTraceParents reads the trace contexts of runs and events: of a run the one that it continues.
const selectTraceParents = `
SELECT d.run_id, false, d.traceparent FROM punctual.run_data d
WHERE d.run_id = ANY($1::uuid[]) AND d.key IS NULL AND d.traceparent IS NOT NULL
UNION ALL
SELECT e.id, true, coalesce(e.traceparent, '') FROM punctual.events e WHERE e.id = ANY($1::uuid[])`

// Ended implements trace.Runs.
func (s *Runs) Ended(ctx context.Context, ids []uuid.UUID) ([]trace.Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	q := s.db.Chores
	var origins [][]uuid.UUID
	var all []uuid.UUID
	var links []uuid.UUID
	ended, err := pgx.CollectRows(pg.Query(ctx, q, selectEnded, ids), func(row pgx.CollectableRow) (trace.Run, error) {
		var r trace.Run
		var dated bool
		err := row.Scan(&r.ID, &r.Fence, &r.Job, &r.Tenant, &r.Step, &r.Trigger, &r.Status, &r.Reason,
			(*seal.Shown)(&r.Error), &r.Attempts, &r.DueAt, &r.CreatedAt, &r.FinishedAt, &r.TraceParent, &dated, &links)
		if dated && r.TraceParent != "" {
			r.Links, r.TraceParent = []trace.Link{{TraceParent: r.TraceParent}}, ""
		}
		origins, all = append(origins, links), append(all, links...)
		links = nil
		return r, err
	})
	if err != nil || len(all) == 0 {
		return ended, pg.Wrap("reading runs that have ended", err)
	}
	parents, events := map[uuid.UUID]string{}, map[uuid.UUID]bool{}
	rows := pg.Query(ctx, q, selectTraceParents, all)
	if err := pg.Each3(rows, func(id uuid.UUID, event bool, parent string) {
		parents[id], events[id] = parent, event
	}); err != nil {
		return nil, pg.Wrap("reading trace contexts", err)
	}
	for i, of := range origins {
		for _, id := range of {
			switch {
			case !events[id]:
				ended[i].Links = append(ended[i].Links, trace.Link{Run: id, TraceParent: parents[id]})
			case parents[id] != "":
				ended[i].Links = append(ended[i].Links, trace.Link{TraceParent: parents[id]})
			}
		}
	}
	return ended, nil
}
