package aside

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// SetAside is an item that is set aside, as callers see it.
type SetAside struct {
	Kind    Kind       `json:"kind" enum:"slot,run,outcome,workflow,event,operation,pause,dated,notice,recipient" doc:"The kind of the item. slot: the claim of the job's next slot. run: the claim of a waiting run. outcome: writing how an attempt ended. workflow: what follows in a workflow. event: creating the runs of an event. operation: work on many runs or jobs. pause: ending a pause. dated: fitting dated runs to a changed job. notice: collecting what to report about a job. recipient: composing a message to one." example:"outcome"`
	ID      uuid.UUID  `json:"id" format:"uuid" doc:"The job of a slot, pause, dated or notice; the run of a run, outcome or workflow; else the event, operation or recipient." example:"019ae0f2-7b3c-7d21-8e55-2f6a9c0d1e47"`
	Tenant  *string    `json:"tenant" doc:"Whose it is. Null: that could not be read." example:"default"`
	JobID   *uuid.UUID `json:"job_id" format:"uuid" doc:"The job it belongs to. Null: none, or that could not be read." example:"019ad5c0-8f53-7cde-b2a4-6f1e0c9d3b78"`
	Job     *string    `json:"job" doc:"The name of that job." example:"daily-invoice-gen"`
	Reason  string     `json:"reason" doc:"Why it failed the last time." example:"ERROR: permission denied for table runs_20261201 (SQLSTATE 42501)"`
	Tries   int        `json:"tries" doc:"How often it has failed by itself." example:"3"`
	Since   time.Time  `json:"since" doc:"When it was set aside."`
	TriedAt time.Time  `json:"tried_at" doc:"When it was last tried."`
	RetryAt time.Time  `json:"retry_at" doc:"When it is tried again."`
}

const selectShown = `
SELECT a.kind, a.item, t.name, a.job_id, j.name, a.reason, a.tries, a.since, a.tried_at, a.retry_at
FROM punctual.set_aside a
LEFT JOIN punctual.tenants t ON t.id = a.tenant
LEFT JOIN punctual.jobs j ON j.id = a.job_id`

// Read returns an item that is set aside.
func Read(ctx context.Context, q pg.Querier, kind Kind, id uuid.UUID) (SetAside, error) {
	shown, err := pg.One(ctx, q, pgx.RowToStructByPos[SetAside], selectShown+` WHERE a.kind = $1 AND a.item = $2`,
		string(kind), id)
	return shown, pg.Wrap("reading what is set aside", err)
}

// List returns what is set aside of a tenant, or of pg.Everybody, the oldest first.
func (a *Aside) List(ctx context.Context, tenant int32) ([]SetAside, error) {
	q := a.db.Callers.Reader(tenant)
	all, err := pg.All(ctx, q, pgx.RowToStructByPos[SetAside],
		selectShown+` WHERE a.tenant = $1 OR $1 = $2 ORDER BY a.since, a.item LIMIT 1000`, tenant, pg.Everybody)
	return all, pg.Wrap("reading what is set aside", err)
}

// Counts returns how many items of each kind are set aside, of all tenants.
func (a *Aside) Counts(ctx context.Context) (map[Kind]int, error) {
	counts, err := pg.Map[Kind, int](ctx, a.db.Chores, `SELECT kind, count(*) FROM punctual.set_aside GROUP BY kind`)
	return counts, pg.Wrap("counting what is set aside", err)
}

// Retry has an item tried again at once. It returns the item, and pg.ErrNotFound if it is not set aside.
func Retry(ctx context.Context, tx *pg.Tx, kind Kind, id uuid.UUID) (Item, error) {
	tx.Ask(Chore)
	if err := pg.Exec(ctx, tx, `UPDATE punctual.set_aside SET retry_at = now() WHERE kind = $1 AND item = $2`,
		string(kind), id); err != nil {
		return Item{}, err
	}
	return Get(ctx, tx, kind, id)
}

// Drop forgets an item: it is tried no more.
func Drop(ctx context.Context, tx *pg.Tx, kind Kind, id uuid.UUID) error {
	return pg.Exec(ctx, tx, `DELETE FROM punctual.set_aside WHERE kind = $1 AND item = $2`, string(kind), id)
}

// Get returns an item, and pg.ErrNotFound if it is not set aside.
func Get(ctx context.Context, q pg.Querier, kind Kind, id uuid.UUID) (Item, error) {
	item, err := pg.One(ctx, q, pgx.RowToStructByPos[Item], `
		SELECT kind, item, tenant, coalesce(job_id, '00000000-0000-0000-0000-000000000000')
		FROM punctual.set_aside WHERE kind = $1 AND item = $2`, string(kind), id)
	return item, pg.Found(err, "%s %s among what is set aside", kind, id)
}
