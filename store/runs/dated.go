package runs

import (
	"context"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/seal"
)

// A dated run that is pending has a row in dated and none in runs. It is shown as its claim would make it now. It is
// found by the instant with which its id begins, along the index of due rows: an index of ids would be written for each
// dated run, and serve only this.
const selectDated = `
	SELECT d.run_id, d.job_id, j.name, t.name, q.name, d.due_at, d.created_at, d.triggered_by, j.version, d.key,
	       d.headers, d.body,
	       w.kind, w.waits_on, w.waits_for
	FROM punctual.dated d
	JOIN punctual.jobs j ON j.id = d.job_id AND j.state <> 'deleted'
	JOIN punctual.tenants t ON t.id = d.tenant
	JOIN punctual.queues q ON q.id = j.queue
	LEFT JOIN punctual.tenant_usage u ON u.tenant = d.tenant
	LEFT JOIN LATERAL punctual.waits_for(
	    punctual.is_served(q.name), q.name,
	    CASE WHEN j.state = 'paused' THEN 'paused'
	         WHEN punctual.frozen_since(d.tenant) IS NOT NULL THEN 'frozen' ELSE 'turn' END,
	    NULL, punctual.held_by(u.held_by, u.held_at), d.tenant, d.due_at) w ON d.due_at <= now()
	WHERE d.tenant = $1 AND d.run_id = $2 AND d.due_at >= $3 AND d.due_at < $3 + interval '1 ms'
	  AND (d.waits = 'aside' OR d.waits <> 'aside' AND d.lane = ANY (ARRAY(
	           SELECT (q.id * 4 + p)::smallint FROM punctual.queues q, generate_series(0, 2) p)))`

func readDated(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Run, Data, error) {
	var own Data
	var kind, on, what *string
	r := Run{Trigger: domain.TriggerManual, Status: domain.StatusPending, dated: true}
	err := q.QueryRow(ctx, selectDated, tenant, id, domain.IDTime(id)).Scan(&r.ID, &r.JobID, &r.Job, &r.Tenant, &r.Queue,
		&r.DueAt, &r.CreatedAt, &r.TriggeredBy, &r.JobVersion, &r.Key, (*seal.JSON)(&own.Headers),
		(*seal.Bytes)(&own.Body), &kind, &on, &what)
	if err != nil {
		return r, own, pg.Found(err, "run %s", id)
	}
	r.ScheduledFor = r.DueAt
	if kind != nil {
		r.WaitingFor = &WaitingFor{Kind: domain.Wait(*kind), On: on, What: *what, Since: r.DueAt}
	}
	one := []Run{r}
	err = fillMaxAttempts(ctx, q, one)
	return one[0], own, err
}

// cancelDated removes a pending dated run, and returns it as cancelled. ok is false if it is not pending any more.
func cancelDated(ctx context.Context, tx *pg.Tx, tenant int32, r Run) (_ Run, ok bool, err error) {
	var now time.Time
	err = tx.QueryRow(ctx, `
		DELETE FROM punctual.dated d WHERE d.tenant = $1 AND d.job_id = $2 AND d.key = $3 AND d.run_id = $4
		RETURNING clock_timestamp()`, tenant, r.JobID, *r.Key, r.ID).Scan(&now)
	if ok, err = pg.Some(err); !ok {
		return r, false, pg.Wrap("cancelling dated run "+r.ID.String(), err)
	}
	r.Status, r.Reason, r.FinishedAt, r.WaitingFor = domain.StatusCancelled, new(domain.ReasonCancelled), &now, nil
	return r, true, audit.Write(ctx, tx, tenant, audit.Change{
		Action: audit.RunCancel, ID: r.ID, Job: r.JobID, Name: r.Job, Before: DatedShot{*r.Key, r.DueAt.UTC()},
	})
}

// DatedShot is a pending dated run as the audit log shows it.
type DatedShot struct {
	Key   string    `json:"key"`
	DueAt time.Time `json:"due_at"`
}
