package overview

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/archive"
	"punctual/store/pg"
)

// Figures are what needs attention now, and how the last 24 hours went.
type Figures struct {
	AsOf        time.Time        `json:"as_of" doc:"When this was read, by the database's clock. The last 24 hours are as of their counted_at."`
	Overdue     Overdue          `json:"overdue" doc:"Slots and runs that should have begun. GET /v1/jobs?overdue=true lists the jobs, GET /v1/queues says what they wait for."`
	Events      Pending          `json:"events" doc:"Events that have not come to all their subscribers."`
	DeadLetters OpenLetters      `json:"dead_letters" doc:"Runs that exhausted their attempts, until they are replayed or resolved."`
	Failing     Failing          `json:"failing" doc:"Jobs that fail: an open dead letter, or a run that is retried, is newer than the last success."`
	SetAside    int              `json:"set_aside" maximum:"1000" doc:"Items that fail by themselves and were set aside, so that they keep nothing else waiting. GET /v1/set-aside lists them with their reasons. 1000: 1,000 or more." example:"0"`
	Archive     *archive.Backlog `json:"archive" doc:"The days of runs that wait to be archived before they are dropped, of all tenants. Null: days are not archived."`
	Day         DayOfRuns        `json:"last_24h" doc:"The results of the runs of the last 24 hours: of the present hour and the 23 before it."`
}

// Overview returns the overview of a tenant. What it reads is bounded, whatever the tenant has: index entries up to the
// bounds of each figure, and counts that are made beforehand.
func (b *Board) Overview(ctx context.Context, tenant int32) (f Figures, err error) {
	t, err := b.troubles.renew(ctx, tenant, b.findFailing)
	if err != nil {
		return f, err
	}
	f.DeadLetters = t.letters
	f.Failing.Count, f.Failing.More = len(t.failing), t.more
	var batch pgx.Batch
	batch.Queue(`SELECT now()`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.AsOf) })
	queueOverdue(&batch, &f.Overdue, tenant)
	queueEvents(&batch, &f.Events, tenant)
	queueFailing(&batch, &f.Failing, tenant, t.failing)
	queueDay(&batch, &f.Day, tenant)
	batch.Queue(`SELECT count(*) FROM (SELECT FROM punctual.set_aside WHERE tenant = $1 LIMIT 1000) n`, tenant).
		QueryRow(pg.IntoPlaces(&f.SetAside))
	var waiting archive.Backlog
	archive.Queue(&batch, &waiting)
	q := b.db.Callers.Reader(tenant)
	if err := q.SendBatch(ctx, &batch).Close(); err != nil {
		return f, fmt.Errorf("reading the overview: %w", err)
	}
	if waiting.On {
		f.Archive = &waiting
	}
	return f, b.countInARow(ctx, q, tenant, f.Failing.Jobs, f.AsOf)
}
