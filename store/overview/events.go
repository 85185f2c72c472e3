package overview

import (
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Pending are events that have not come to all their subscribers.
type Pending struct {
	Pending int        `json:"pending" maximum:"10000" doc:"How many there are. 10000: 10,000 or more." example:"0"`
	Oldest  *time.Time `json:"oldest_at" doc:"When the oldest of them was emitted. Null: there is none."`
}

func queueEvents(b *pgx.Batch, p *Pending, tenant int32) {
	b.Queue(`
		SELECT count(*)::int, min(emitted_at)
		FROM (SELECT e.emitted_at FROM punctual.events e WHERE e.turn_at IS NOT NULL AND e.tenant = $1 LIMIT $2) e`,
		tenant, pg.DepthCap).QueryRow(func(row pgx.Row) error {
		return row.Scan(&p.Pending, &p.Oldest)
	})
}
