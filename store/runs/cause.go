package runs

import (
	"context"
	"time"

	"github.com/google/uuid"

	"punctual/store/pg"
)

// Cause is why a slot was missed, or a run was late.
type Cause struct {
	Kind  string     `json:"kind" enum:"frozen,limit,queue_unserved,database_away,no_replica" doc:"frozen: the tenant or the deployment was frozen. limit: the tenant was at one of its limits. queue_unserved: no live replica served the queue. database_away: no replica could reach the database. no_replica: no replica was alive. Of several causes: the one that took the largest part of the wait." example:"frozen"`
	Since time.Time  `json:"since" doc:"When it began."`
	Until *time.Time `json:"until" doc:"When it ended. Null: it lasts."`
	Text  string     `json:"text" doc:"The cause in words." example:"the tenant was frozen from 2026-12-01T00:31:00Z to 2026-12-01T00:33:12Z by alice (database maintenance)"`
}

// causesOf returns, by run, why slots that were due at some instants were taken only when the runs or recorded skips of
// a tenant were made. What nothing on record explains is left out. It is one statement for any number of runs.
func causesOf(
	ctx context.Context, q pg.Querier, tenant int32, ids []uuid.UUID, due []time.Time,
) (map[uuid.UUID]*Cause, error) {
	causes := map[uuid.UUID]*Cause{}
	var id uuid.UUID
	var c Cause
	err := pg.Each(pg.Query(ctx, q, `
		SELECT r.id, c.cause, c.since, c.until, c.detail
		FROM punctual.runs_of($2::uuid[]) r
		JOIN unnest($2::uuid[], $3::timestamptz[]) AS u(id, due) ON u.id = r.id
		CROSS JOIN LATERAL punctual.held_up_by(r.tenant, (r.lane / 4)::smallint, u.due, r.created_at) c
		WHERE r.tenant = $1`, tenant, ids, due), []any{&id, &c.Kind, &c.Since, &c.Until, &c.Text}, func() {
		causes[id], c = new(c), Cause{}
	})
	return causes, pg.Wrap("reading why runs were made late", err)
}

// CauseOf returns why a slot that was due at an instant was taken only when a run or recorded skip of a tenant was
// made. It is nil if nothing on record explains it.
func CauseOf(ctx context.Context, q pg.Querier, tenant int32, run uuid.UUID, due time.Time) (*Cause, error) {
	causes, err := causesOf(ctx, q, tenant, []uuid.UUID{run}, []time.Time{due})
	return causes[run], err
}

// FillCauses sets the cause of each run that is late and of each recorded skip that was missed.
func (s *Runs) FillCauses(ctx context.Context, tenant int32, list []Run) error {
	var ids []uuid.UUID
	var due []time.Time
	for _, r := range list {
		if r.TooLate() {
			ids, due = append(ids, r.ID), append(due, r.DueAt)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	causes, err := causesOf(ctx, s.db.Callers, tenant, ids, due)
	for i := range list {
		list[i].Cause = causes[list[i].ID]
	}
	return err
}
