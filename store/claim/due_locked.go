package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// leaveLocked drops the slots of jobs whose gate names a run that another transaction has locked, in runs or in ready:
// the slot may have to cancel that run. The slots stay due.
func (c *dueClaim) leaveLocked(ctx context.Context) error {
	var named []uuid.UUID
	for _, g := range c.gates {
		for _, id := range []uuid.UUID{g.active, g.Waiting} {
			if id != uuid.Nil {
				named = append(named, id)
			}
		}
	}
	busy := lockedRows{}
	var b pgx.Batch
	busy.queue(&b, "ready", named)
	busy.queue(&b, "runs", named)
	if b.Len() == 0 {
		return nil
	}
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	rows := c.rows[:0]
	for _, r := range c.rows {
		g := c.gates[r.key.Job]
		_, active := busy[g.active]
		_, waiting := busy[g.Waiting]
		if active || waiting {
			c.claims.wary.due.found()
			continue
		}
		rows = append(rows, r)
	}
	c.rows = rows
	return nil
}
