package claim

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/failpoint"
	"punctual/store/days"
)

// edges are the runs among $1 that this transaction has ended, each with the other jobs that its end triggers, by the
// definition that it ran with. A run's xmin is the transaction's own id: an outcome may be written twice, and a run
// that another transaction has ended has triggered them there. A replay triggers like the run that it repeats. A rerun
// and a backfill do so only if that was asked for. Rows are looked up one by one (OFFSET 0): the plan lasts, and the
// tables grow.
const edges = `
WITH ended AS MATERIALIZED (
    SELECT r.id, r.job_id, r.job_version, r.tenant, r.lane, r.status, r.reason, r.finished_at, d.result, d.result_note
    FROM {runs} r
    LEFT JOIN {run_data} d ON d.run_id = r.id{prune d}
    WHERE r.id = {ids} AND r.xmin = pg_current_xact_id()::xid
      AND r.step IS NULL AND r.status IN ('succeeded', 'dead', 'cancelled')
      AND (r.rerun_of IS NULL AND r.trigger <> 'backfill' OR coalesce(d.chains, false))),
edges AS MATERIALIZED (
    SELECT e.*, punctual.chained_run(e.id, (l ->> 'job')::uuid, e.finished_at) AS run, (l ->> 'job')::uuid AS target
    FROM ended e
    CROSS JOIN LATERAL (SELECT v.definition -> 'then' AS links FROM punctual.job_versions v
                        WHERE v.job_id = e.job_id AND v.version = e.job_version OFFSET 0) v
    CROSS JOIN LATERAL json_array_elements(v.links) l
    WHERE CASE coalesce(l ->> 'when', 'succeeded') WHEN 'succeeded' THEN e.status = 'succeeded'
                                                   WHEN 'failed' THEN e.status = 'dead'
                                                   ELSE true END)`

// enterChained makes the runs. It takes no lock of another job, neither of its gate nor of its row: their claim decides
// whether they overlap other runs, and looks again whether the job was deleted meanwhile. A run that cannot start is
// recorded as skipped.
var enterChained = edges + `,
` + Entering(`id, job_id, caused_by, scheduled_for, due_at, tenant, job_version, lane, trigger,
                               status, reason, finished_at`, `
    SELECT e.run, e.target, e.id, e.finished_at, e.finished_at, e.tenant, coalesce(j.version, 0),
           coalesce(`+laneNow+`, e.lane),
           'chain', CASE WHEN k.reason IS NULL THEN 'pending' ELSE 'skipped' END, k.reason,
           CASE WHEN k.reason IS NOT NULL THEN now() END
    FROM edges e
    LEFT JOIN LATERAL (SELECT * FROM punctual.jobs j
                       WHERE j.id = e.target AND j.tenant = e.tenant AND j.state <> 'deleted' OFFSET 0) j ON true
    LEFT JOIN LATERAL (SELECT s.lane FROM punctual.schedules s WHERE s.job_id = j.id OFFSET 0) s ON true
    CROSS JOIN LATERAL (
        SELECT CASE WHEN j.id IS NULL THEN 'job_deleted'
                    WHEN j.state = 'paused' AND coalesce(j.paused_until > now(), true) THEN 'paused' END AS reason) k
    ORDER BY e.run`) + `
RETURNING 1`

// enterUpstream gives the runs their bodies: what has ended, beside the members of the job's own body. A body of
// another kind is sent as it is, and so is a request of a method that has none. Next to the job's own members, in which
// there may be placeholders, braces that came with a result are escaped, however they were written. If a part is
// sealed, the parts are kept, and whoever reads the body puts it together: see package seal.
const enterUpstream = edges + `
INSERT INTO {run_data} (run_id, body, template)
SELECT r.id, convert_to(b.body, 'UTF8'), b.template
FROM edges e
CROSS JOIN LATERAL (SELECT r.* FROM {runs of e.run} r WHERE r.id = e.run OFFSET 0) r
CROSS JOIN LATERAL (SELECT v.definition FROM punctual.job_versions v
                    WHERE v.job_id = r.job_id AND v.version = r.job_version OFFSET 0) v
CROSS JOIN LATERAL (
    SELECT v.definition #> '{target,body}' AS own, coalesce(v.definition #>> '{target,method}', 'POST') AS method,
           (SELECT json_object_agg(m.key, m.value)
            FROM json_each(json_build_object(
                'run', e.id, 'job', (SELECT j.name FROM punctual.jobs j WHERE j.id = e.job_id),
                'status', e.status, 'reason', e.reason, 'result', e.result,
                'result_note', e.result_note)) m
            WHERE m.key <> 'result_note' OR e.result_note IS NOT NULL) AS upstream) d
CROSS JOIN LATERAL (
    SELECT coalesce(punctual.payload_type(d.own) = 'object', false) AS merges,
           coalesce(punctual.payload_type(d.own), 'null') = 'null' AND d.method NOT IN ('GET', 'HEAD') AS alone) k
CROSS JOIN LATERAL (
    SELECT CASE WHEN k.merges THEN true END AS template,
           CASE WHEN NOT k.merges AND NOT k.alone THEN NULL
                WHEN punctual.is_sealed(d.own) OR punctual.is_sealed(e.result)
                THEN 'punctual-sealed-m:' || json_build_object('own', d.own, 'upstream', d.upstream)
                WHEN k.alone THEN json_build_object('upstream', d.upstream)::text
                ELSE (SELECT json_object_agg(m.key, m.value)
                      FROM (SELECT o.key, o.value FROM json_each(d.own) o WHERE o.key <> 'upstream'
                            UNION ALL SELECT 'upstream', punctual.escaped_braces(d.upstream)) m)::text END AS body) b
WHERE r.status = 'pending' AND b.body IS NOT NULL
ON CONFLICT DO NOTHING`

// QueueChained makes the runs that the ends of runs trigger, of those that this transaction has ended. It comes after
// the statements that end them. The runs that have ended, and those that they trigger, are of the given day. Once the
// batch is read, made is set if a run may be claimed.
func QueueChained(b *pgx.Batch, ended []uuid.UUID, on days.Day, made *bool) {
	on.Queue(b, enterChained, ended).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			*made = true
		}
		if *made {
			failpoint.At(failpoint.ChainWritten)
		}
		return rows.Err()
	})
	on.Queue(b, enterUpstream, ended)
}
