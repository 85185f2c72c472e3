package archive

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Backlog is of the days that are past their retention, and stay until they are archived.
type Backlog struct {
	On       bool          `json:"-"` // days are archived
	For      time.Duration `json:"-"` // how long the first of them has waited
	Days     int           `json:"waiting_days" doc:"How many days wait." example:"0"`
	Oldest   *string       `json:"oldest" format:"date" doc:"The oldest of them. Null: none waits." example:"2026-09-01"`
	Since    *time.Time    `json:"waiting_since" doc:"Since when the first of them has waited."`
	Failures int           `json:"failures" doc:"How often the command has failed in a row for one of them; the most of them." example:"0"`
}

const selectWaiting = `
SELECT (SELECT archive_command IS NOT NULL FROM punctual.deployment), count(*)::int, min(day)::text, min(waiting_since),
       coalesce(extract(epoch FROM now() - min(waiting_since)), 0)::float8, coalesce(max(failures), 0)
FROM punctual.archives WHERE archived_at IS NULL`

// Queue queues the reading of the days that wait.
func Queue(b *pgx.Batch, w *Backlog) { b.Queue(selectWaiting).QueryRow(w.scan) }

// Waiting returns the days that wait.
func (a *Archives) Waiting(ctx context.Context) (w Backlog, err error) {
	err = w.scan(a.db.Chores.QueryRow(ctx, selectWaiting))
	return w, pg.Wrap("reading which days wait to be archived", err)
}

func (w *Backlog) scan(row pgx.Row) error {
	var seconds float64
	err := row.Scan(&w.On, &w.Days, &w.Oldest, &w.Since, &seconds, &w.Failures)
	w.For = time.Duration(seconds * float64(time.Second))
	return err
}
