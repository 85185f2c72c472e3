package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// absence is for how long no replica has renewed when they, or the database, count as having been away: three
// heartbeats.
const absence = 6 * time.Second

// nobody is whether no replica has renewed for a while. (One that renewed in the future did so before the
// clock was stepped back.)
const nobody = `NOT EXISTS (SELECT FROM punctual.replicas WHERE renewed_at > now() - interval '6 s' AND renewed_at <= now())`

// noteAbsence notes, in the statement with which a replica renews or registers, that nobody had for a while:
// what targets said meanwhile could not be heard. Its name there is back. Somebody may have locked the row: no heartbeat
// waits for that. Until it is noted, the heartbeats say that they renewed long ago (renewedAt), so that nobody counts as back.
const (
	noteAbsence = `UPDATE punctual.deployment d SET back_at = now()
		FROM (SELECT singleton FROM punctual.deployment WHERE ` + nobody + ` FOR NO KEY UPDATE SKIP LOCKED) free WHERE d.singleton = free.singleton RETURNING true`
	renewedAt = `CASE WHEN ` + nobody + ` AND NOT EXISTS (SELECT FROM back) THEN now() - interval '6 s' ELSE now() END`
)

// presence tells since when targets could be heard without a break.
type presence struct {
	since time.Time
	away  bool // nobody has renewed for a while, and nobody has noted it yet
}

// readPresence reads it where there are targets that seem to be silent.
func (c *readyClaim) readPresence(ctx context.Context) error {
	if !slices.ContainsFunc(c.waiting, func(w waitingRun) bool { return w.overdue }) {
		return nil
	}
	err := c.conn.QueryRow(ctx, `SELECT greatest(back_at, 'epoch'), `+nobody+` FROM punctual.deployment`).Scan(&c.present.since, &c.present.away)
	if err != nil {
		return fmt.Errorf("reading since when targets can be heard: %w", err)
	}
	return nil
}

// overdue ends the attempt of a target that has passed its deadline, unless it could not be heard.
func (c *readyClaim) overdue(w waitingRun, job *scheduler.Job, waits map[uuid.UUID]bool) {
	if c.present.away {
		c.putOff(w.RunID, absence, waits)
		return
	}
	if heard := job.CallbackDeadline(w.started, c.present.since); heard.After(c.now) {
		c.putOff(w.RunID, heard.Sub(c.now), waits)
		return
	}
	w.Job = job
	c.ended = append(c.ended, w.kept.of(scheduler.JudgeSilent(w.Assignment, w.losses, w.started, c.now)))
}
