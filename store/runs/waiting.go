package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// WaitingFor says what a due run waits for. The words are those of punctual.wait_in_words.
type WaitingFor struct {
	Kind  domain.Wait `json:"kind" enum:"host,hanging,gate,limit,tenant,slots,queue,frozen,paused,steps,person,aside" doc:"host: it cannot be reached. hanging: its requests time out. gate: another run of the job is active, or comes first. limit: one that jobs share. tenant: one of its tenant. slots: the concurrency of its queue. queue: no replica serves it. frozen: its tenant. paused: its job. steps: those that have not ended. person: an approval. aside: it fails by itself." example:"host"`
	On    *string     `json:"on" doc:"The name of the host, of the path, of the limit or of the queue, or the reason for which it is set aside. Null: a kind without a name." example:"billing.internal:443"`
	What  string      `json:"what" doc:"The same in words." example:"breaker billing.internal:443"`
	Since time.Time   `json:"since" doc:"Since when it has waited for this."`
	Until *time.Time  `json:"until" doc:"The latest instant until which it waits for its host. Then it is dead, with the reason unreachable or timeout. Of a workflow: until when its steps must have ended. Of approval: then it is dead, approval_expired. Null: it waits without a bound."`
}

// RunWaitsFor returns what a tenant's run waits for. It is nil if the run waits for nothing: it is being sent, it has
// ended, or it is not due yet.
func (s *Runs) RunWaitsFor(ctx context.Context, tenant int32, run uuid.UUID) (*WaitingFor, error) {
	return WaitsFor(ctx, s.db.Callers, tenant, run)
}

// WaitsFor is RunWaitsFor on a given connection.
func WaitsFor(ctx context.Context, q pg.Querier, tenant int32, run uuid.UUID) (*WaitingFor, error) {
	w, err := pg.One(ctx, q, pgx.RowToAddrOfStructByPos[WaitingFor], `
		SELECT * FROM (SELECT 'aside', a.reason, punctual.wait_in_words('aside', a.reason, a.tenant), a.since,
		                      NULL::timestamptz
		               FROM punctual.set_aside a
		               WHERE a.item = $1 AND a.tenant = $2 AND a.kind IN ('outcome', 'workflow')
		UNION ALL
		SELECT w.kind, w.waits_on, w.waits_for, w.since, w.until
		FROM punctual.ready y
		JOIN punctual.queues q ON q.id = y.lane / 4
		CROSS JOIN LATERAL punctual.wait_of(y, q.name, punctual.is_served(q.name)) w
		WHERE y.run_id = $1 AND y.tenant = $2 AND w.waits_for IS NOT NULL) w LIMIT 1`, run, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // it waits for nothing
	}
	return w, pg.Wrap(fmt.Sprintf("reading what run %s waits for", run), err)
}
