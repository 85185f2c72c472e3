package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Cause is why a slot was missed, or a run was late.
type Cause struct {
	Kind  string     `json:"kind" enum:"frozen,limit,queue_unserved,database_away,no_replica" doc:"frozen: the tenant or the deployment was frozen. limit: the tenant was at one of its limits. queue_unserved: no live replica served the queue. database_away: no replica could reach the database. no_replica: no replica was alive. Of several causes: the one that took the largest part of the wait." example:"frozen"`
	Since time.Time  `json:"since" doc:"When it began."`
	Until *time.Time `json:"until" doc:"When it ended. Null: it lasts."`
	Text  string     `json:"text" doc:"The cause in words." example:"the tenant was frozen from 2026-12-01T00:31:00Z to 2026-12-01T00:33:12Z by alice (database maintenance)"`
}

// CauseOf returns why a slot that was due at an instant was taken only when a run or recorded skip of a tenant was
// made. It is nil if nothing on record explains it.
func CauseOf(ctx context.Context, q pg.Querier, tenant int32, run uuid.UUID, due time.Time) (*Cause, error) {
	c, err := pg.One(ctx, q, pgx.RowToAddrOfStructByPos[Cause], `
		SELECT c.cause, c.since, c.until, c.detail
		FROM punctual.runs r
		CROSS JOIN LATERAL punctual.held_up_by(r.tenant, (r.lane / 4)::smallint, $3, r.created_at) c
		WHERE r.id = $1 AND r.tenant = $2`, run, tenant, due)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nothing on record explains it
	}
	if err == nil {
		pg.UTC(&c.Since, c.Until)
	}
	return c, pg.Wrap(fmt.Sprintf("reading why run %s was made late", run), err)
}

// RunCause returns the cause of a run that is late or a recorded skip that was missed. It is nil for all others.
func (s *Runs) RunCause(ctx context.Context, tenant int32, r *Run) (*Cause, error) {
	if !r.TooLate() {
		return nil, nil //nolint:nilnil // it was in time
	}
	return CauseOf(ctx, s.db.Conns(ctx), tenant, r.ID, r.DueAt)
}
