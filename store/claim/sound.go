package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/aside"
)

// sounding are statements that write nothing, and fail all the same if claims and finishes cannot write at all: the
// role has lost a right, or a table is gone. Postgres looks at rights before it looks for rows.
var sounding = []string{
	`INSERT INTO punctual.claims (id, replica, run_ids) SELECT id, replica, run_ids FROM punctual.claims WHERE false`,
	`INSERT INTO punctual.runs SELECT * FROM punctual.runs WHERE false`,
	`UPDATE punctual.runs SET status = status WHERE false`,
	`UPDATE punctual.schedules SET enabled = enabled WHERE false`,
	`INSERT INTO punctual.ready SELECT * FROM punctual.ready WHERE false`,
	`DELETE FROM punctual.ready WHERE false`,
	`DELETE FROM punctual.claims WHERE false`,
	`UPDATE punctual.exclusive SET active_run = active_run WHERE false`,
	`INSERT INTO punctual.attempts SELECT * FROM punctual.attempts WHERE false`,
	`INSERT INTO punctual.dead_letters SELECT * FROM punctual.dead_letters WHERE false`,
	`INSERT INTO punctual.run_data SELECT * FROM punctual.run_data WHERE false`,
}

// putAside sets an item aside that fails alone, unless the deployment is at fault: then every item fails. It reports
// whether the item is set aside.
func (s *Claims) putAside(ctx context.Context, item aside.Item, reason error) bool {
	if !s.isSound(ctx) {
		return false
	}
	return s.aside.Put(ctx, item, reason)
}

// isSound reports whether claims and finishes can write at all.
func (s *Claims) isSound(ctx context.Context) bool { return s.isSoundWithin(ctx, 2*time.Second) }

// isSoundAtOnce reports whether they can although all of a batch takes too long: then the machine is not slow.
func (s *Claims) isSoundAtOnce(ctx context.Context) bool {
	return s.isSoundWithin(ctx, 100*time.Millisecond)
}

func (s *Claims) isSoundWithin(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var b pgx.Batch
	for _, statement := range sounding {
		b.Queue(statement)
	}
	return s.db.Runs.SendBatch(ctx, &b).Close() == nil
}
