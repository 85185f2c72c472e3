package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/seal"
)

// readWaiting reads the runs of locked rows of ready. A run that ended while it waited, because its job was deleted,
// is not found and only loses its row in ready. A run whose target works on has passed its deadline. A run that was
// claimed before may have come back to ready while its job was being deleted, and a run may have been caused meanwhile.
// The delete has then not seen it, so only for such a run the job's state is looked up. Bodies are read as many as fit
// into mostBodies.
var readWaiting = `
SELECT ` + runPlaces.Selected() + `,
       coalesce(e.name, ''), CASE WHEN ` + fits + ` THEN e.body END, d.headers, CASE WHEN ` + fits + ` THEN d.body END,
       NOT ` + fits + `, coalesce(d.template, false), d.webhook_id, coalesce(d.idempotency_key, ''),
       coalesce(d.expires_after, '0'), r.caused_by, ` + ofTrace + `,
       r.accepted_at IS NOT NULL AND r.status = 'running',
       CASE WHEN r.status = 'running' THEN (
           SELECT count(*)
           FROM (SELECT a.outcome, a.reason FROM {attempts} a
                 WHERE a.run_id = r.id{prune a} ORDER BY a.fence DESC LIMIT 2) last
           WHERE last.outcome = 'lost' AND last.reason = 'silent') ELSE 0 END,
       CASE WHEN (r.claimed_at IS NOT NULL OR r.caused_by IS NOT NULL) AND r.status <> 'running'
            THEN coalesce((SELECT j.state = 'deleted' FROM punctual.jobs j WHERE j.id = r.job_id), true)
            ELSE false END,
       r.claimed_at IS NULL, r.started_at IS NULL,
       r.trigger = 'manual' AND r.rerun_of IS NULL AND r.created_at > r.due_at,
       ` + KeptColumns + `
FROM {runs} r
LEFT JOIN {run_data} d ON d.run_id = r.id{prune d}
LEFT JOIN punctual.events e ON e.id = r.caused_by
WHERE r.id = {ids}
  AND (r.status IN ('pending', 'retrying') OR (r.status = 'running' AND r.accepted_at IS NOT NULL))
ORDER BY r.id`

// mostBodies is how many bytes of bodies one claim reads. A run whose body would be more stays due for the next one.
const (
	mostBodies = 4 << 20
	bodies     = `sum(coalesce(octet_length(d.body), 0) + coalesce(octet_length(e.body), 0)) OVER (ORDER BY r.id)`
)

var fits = fmt.Sprintf(`(%s <= %d)`, bodies, mostBodies)

// waitingRun is a run in ready.
type waitingRun struct {
	runRow
	policy  jobspec.ConcurrencyPolicy // decides whether it overlaps; empty: that is decided, or it waits for its turn
	losses  int                       // attempts in a row, just before this one, that ended by silence: up to two
	overdue bool                      // the target works on, and has passed its deadline
	deleted bool                      // the run's job is deleted
	fresh   bool                      // it was never claimed before
	unsent  bool                      // no attempt of it was ever sent
	dated   bool                      // it was dated: it became a run once it was due
	heavy   bool                      // its body is not read, because those before it come to mostBodies
	kept    KeptResponse
}

// queueRuns reads the runs.
func (c *contents) queueRuns(b *pgx.Batch) {
	days.Common(c.ids...).Queue(b, readWaiting, c.ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r, err := c.scan(rows)
			if err != nil {
				return err
			}
			c.runs = append(c.runs, r)
		}
		return rows.Err()
	})
}

func (c *contents) scan(row pgx.Rows) (*waitingRun, error) {
	var r waitingRun
	var headers seal.JSON
	var plain bool
	if err := row.Scan(append(r.places(
		&r.Event, (*seal.Bytes)(&r.EventBody), seal.Noting(&headers, &plain), seal.Noting((*seal.Bytes)(&r.Body), &plain),
		&r.heavy, &r.Template, &r.WebhookID, &r.IdempotencyKey, &r.ExpiresAfter, &r.CausedBy, &r.TraceParent,
		&r.overdue, &r.losses, &r.deleted, &r.fresh, &r.unsent, &r.dated,
	), r.kept.Into()...)...); err != nil {
		return nil, err
	}
	r.Step = r.key.Step
	if plain && !r.heavy && c.claims.db.Seals() {
		c.unsealed = append(c.unsealed, unsealed{r.RunID, r.Body, headers})
	}
	if headers != nil {
		if err := json.Unmarshal(headers, &r.Headers); err != nil {
			return nil, fmt.Errorf("reading the headers of run %s: %w", r.RunID, err)
		}
	}
	if !r.overdue {
		r.Attempt, r.AcceptedAt = r.Attempt+1, time.Time{}
	}
	return &r, nil
}

// readDefinitions gives the runs their jobs, as their definitions say. They have none if this binary cannot read it.
func (c *waitingClaim) readDefinitions(ctx context.Context) (err error) {
	versions := definitions.Of(c.runs, func(r *waitingRun) (definitions.Version, int32) { return r.key, r.tenant })
	if c.found, err = c.claims.definitions.Read(ctx, c.conn, versions); err != nil {
		return err
	}
	for _, r := range c.runs {
		r.Job = c.found.Job(r.key)
	}
	return c.claims.loadTokenKey(ctx, c.conn, c.found.Jobs)
}
