package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Facing returns which runs are in the way of a new run of a job: those at its gate, and those in ready about which no
// claim has decided. Under forbid, all that wait in ready are in its way. It locks nothing, so all may have changed
// when the new run is claimed. Only the claim decides.
func (s *Claims) Facing(
	ctx context.Context, tx *pg.Tx, job uuid.UUID, policy jobspec.ConcurrencyPolicy, now time.Time,
) (domain.Gate, error) {
	if policy == jobspec.PolicyAllow {
		return domain.Gate{}, nil
	}
	gates := map[uuid.UUID]Gate{}
	var waiting []uuid.UUID
	var b pgx.Batch
	b.Queue(readGates, []uuid.UUID{job}).Query(collectGates(gates))
	b.Queue(`
		SELECT r.id
		FROM punctual.runs_of(ARRAY(SELECT run_id FROM punctual.ready WHERE job_id = $1)) r
		WHERE r.status IN ('pending', 'retrying') AND r.step IS NULL -- its workflow has the gate
		  AND ($2 OR r.fence IS NULL AND r.trigger NOT IN ('catchup', 'backfill', 'replay'))
		ORDER BY r.id
		LIMIT 3`, job, policy == jobspec.PolicyForbid).Query(pg.Into(&waiting, pgx.RowTo[uuid.UUID]))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return domain.Gate{}, fmt.Errorf("reading what runs of job %s face: %w", job, err)
	}
	if err := s.freeEndedGates(ctx, tx, gates, now); err != nil {
		return domain.Gate{}, err
	}
	g, known := gates[job].Facts(), gates[job].Waiting
	if g.WaitingExpired {
		g.Waiting, g.WaitingExpired = uuid.Nil, false
	}
	for _, run := range waiting {
		switch {
		case run == known || slices.Contains(g.Active, run):
		case len(g.Active) == 0:
			g.Active = []uuid.UUID{run}
		case g.Waiting == uuid.Nil:
			g.Waiting = run
		}
	}
	return g, nil
}

// overlaps is what a claim of ready runs has decided about runs that overlap others.
type overlaps struct {
	replaced, expired []uuid.UUID
	skipped           []blocked
	beyond            []uuid.UUID // runs that are more than may wait
	behind            []jobRun    // those that now wait at their gates
}

// blocked is a run that is skipped because of another one.
type blocked struct{ run, by uuid.UUID }

var blockedRuns = pg.Columns[blocked]{
	pg.Col("id", "uuid", func(r blocked) uuid.UUID { return r.run }),
	pg.Col("blocker", "uuid", func(r blocked) uuid.UUID { return r.by }),
}

// over reports whether a run has ended because of another run that was decided about before it.
func (o *overlaps) over(run uuid.UUID) bool {
	return slices.Contains(o.replaced, run) || slices.Contains(o.expired, run)
}

// findUndecided finds the runs about which no claim has decided yet, and looks for locked rows of those that may have
// to make way for them. It waits for no lock, because other claims may wait for rows that this one holds.
func (c *readyClaim) findUndecided(ctx context.Context) error {
	var named []uuid.UUID
	for i := range c.waiting {
		w := &c.waiting[i]
		g, job := c.gates[w.key.Job], c.found.Job(w.key)
		if job == nil || job.ConcurrencyPolicy == jobspec.PolicyAllow || !g.gated || g.busy || w.RunID == g.active ||
			w.RunID == g.Waiting || w.Fence != 0 || job.ConcurrencyPolicy == jobspec.PolicyQueue ||
			w.Trigger == domain.TriggerCatchup || w.Trigger.Ordered() ||
			w.dated && job.ConcurrencyPolicy != jobspec.PolicyReplace { // it was accepted: it waits for its turn
			continue
		}
		w.policy = job.ConcurrencyPolicy
		if w.policy == jobspec.PolicyReplace {
			named = append(named, g.Holders()...)
		}
		if g.Waiting != uuid.Nil && (w.policy == jobspec.PolicyReplace || g.waitsFor.expired) {
			named = append(named, g.Waiting)
		}
	}
	if len(named) == 0 {
		return nil
	}
	var b pgx.Batch
	c.busy.queue(&b, "ready", named)
	c.busy.queue(&b, "runs", named)
	return pg.Wrap("looking for locked runs", c.conn.SendBatch(ctx, &b).Close())
}

// admit decides about a run as domain.Decide does about a slot, by the policy of the version that it sends. It reports
// whether the run may start. Of runs that replace each other the newest stays, whichever is claimed first.
func (c *readyClaim) admit(w waitingRun, g *Gate) bool {
	o, d := g.Facts().Overlap(w.policy), &c.overlaps
	for _, run := range slices.Concat(o.Cancel, o.Expired) {
		if _, busy := c.busy[run]; busy {
			c.putOff(w.RunID, gateRetry/10) // the end of a run holds its row for milliseconds
			return false
		}
	}
	if slices.ContainsFunc(o.Cancel, func(run uuid.UUID) bool { return pg.CompareIDs(run, w.RunID) > 0 }) {
		d.replaced = append(d.replaced, w.RunID)
		return false
	}
	d.replaced, d.expired = append(d.replaced, o.Cancel...), append(d.expired, o.Expired...)
	if len(o.Cancel)+len(o.Expired) > 0 {
		g.Waiting = uuid.Nil
	}
	switch {
	case o.Blocker != uuid.Nil:
		c.drops(w)
		d.skipped = append(d.skipped, blocked{w.RunID, o.Blocker})
	case o.Waits:
		d.behind = append(d.behind, jobRun{w.key.Job, w.RunID})
		g.Waiting, g.waitsFor = w.RunID, waitingFacts{}
		c.stay(w.RunID)
		if len(o.Cancel) == 0 { // else the gate may be free at once: the next claim sees
			c.park(w.RunID, domain.WaitGate, "")
		}
	}
	c.gates[w.key.Job] = *g
	return o.Blocker == uuid.Nil && !o.Waits
}

// drops tells that work which somebody has asked for is skipped because of other runs of its job. Slots are no such
// work.
func (c *readyClaim) drops(w waitingRun) {
	if w.Trigger != domain.TriggerSchedule {
		c.events = append(c.events, RunEvent{c.found.Job(w.key), jobspec.EventDropped, w.RunID})
		c.batch.Dropped++
	}
}

// write ends the runs that make way, and queues what else was decided.
func (o *overlaps) write(ctx context.Context, q pg.Querier, b *pgx.Batch) error {
	if err := makeWay(ctx, q, o.replaced, o.expired); err != nil {
		return err
	}
	if len(o.skipped) > 0 {
		b.Queue(`
			UPDATE punctual.runs r
			SET status = 'skipped', reason = 'overlap', blocked_by = u.blocker, finished_at = greatest(now(), r.created_at)
			FROM `+blockedRuns.Unnest("u")+`
			WHERE r.id = ANY($1::uuid[]) AND r.id = u.id AND r.status = 'pending'`, blockedRuns.Args(o.skipped)...)
	}
	if len(o.beyond) > 0 {
		b.Queue(`
			UPDATE punctual.runs
			SET status = 'skipped', reason = 'limit', finished_at = greatest(now(), created_at)
			WHERE id = ANY($1::uuid[]) AND status = 'pending'`, o.beyond)
	}
	queueWait(b, o.behind)
	return nil
}
