package claim

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// absence is how long no replica may have renewed before the replicas, or the database, count as having been away:
// three heartbeats, as punctual.all_away has it.
const absence = 6 * time.Second

// presence says since when targets could be heard without a break.
type presence struct {
	since time.Time
	away  bool // no replica has renewed for a while, and none has noted that yet
}

// readPresence reads presence if any target seems to be silent.
func (c *readyClaim) readPresence(ctx context.Context) error {
	if !slices.ContainsFunc(c.waiting, func(w waitingRun) bool { return w.overdue }) {
		return nil
	}
	err := c.conn.QueryRow(ctx, `
		SELECT greatest(back_at, 'epoch'), punctual.all_away()
		FROM punctual.deployment`).Scan(&c.present.since, &c.present.away)
	return pg.Wrap("reading since when targets can be heard", err)
}

// overdue ends the attempt of a target that has missed its deadline, unless no replica could hear it.
func (c *readyClaim) overdue(w waitingRun, job *domain.Job) {
	if c.present.away && job.Approval == nil {
		c.putOff(w.RunID, absence)
		return
	}
	if heard := job.CallbackDeadline(w.started, c.present.since); heard.After(c.now) && job.Approval == nil {
		c.putOff(w.RunID, heard.Sub(c.now))
		return
	}
	w.Job = job
	c.ended = append(c.ended, w.kept.Of(domain.JudgeSilent(w.Assignment, w.losses, w.started, c.now)))
}
