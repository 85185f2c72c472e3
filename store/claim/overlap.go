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

// overlaps are what becomes of runs that overlap others, and of these others. It is a subject.
type overlaps struct {
	decides
	*lockedRuns
	gates             *gates
	replaced, expired []uuid.UUID
	skipped           []blocked
	behind            []jobRun // those that now wait at their gates
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

// read finds the runs about which no claim has decided yet, and looks for locked rows of those that may have to make
// way for them. It waits for no lock, because other claims may wait for rows that this one holds.
func (o *overlaps) read(ctx context.Context) error {
	var named []uuid.UUID
	for _, r := range o.runs {
		g := o.gates.of[r.key.Job]
		if r.Job == nil || r.Job.ConcurrencyPolicy == jobspec.PolicyAllow || !g.gated || g.busy || r.RunID == g.active ||
			r.RunID == g.Waiting || r.Fence != 0 || r.Job.ConcurrencyPolicy == jobspec.PolicyQueue ||
			r.Trigger == domain.TriggerCatchup || r.Trigger.Ordered() ||
			r.dated && r.Job.ConcurrencyPolicy != jobspec.PolicyReplace { // it was accepted: it waits for its turn
			continue
		}
		r.policy = r.Job.ConcurrencyPolicy
		if r.policy == jobspec.PolicyReplace {
			named = append(named, g.Holders()...)
		}
		if g.Waiting != uuid.Nil && (r.policy == jobspec.PolicyReplace || g.waitsFor.expired) {
			named = append(named, g.Waiting)
		}
	}
	if len(named) == 0 {
		return nil
	}
	var b pgx.Batch
	o.busy.queue(&b, "ready", named)
	o.busy.queue(&b, "runs", named)
	return pg.Wrap("looking for locked runs", o.conn.SendBatch(ctx, &b).Close())
}

// decide decides about a run as domain.Decide does about a slot, by the policy of the version that it sends. Of runs
// that replace each other the newest stays, whichever is claimed first.
func (o *overlaps) decide(r *waitingRun) verdict {
	if r.policy == "" {
		return goesOn
	}
	g := o.gates.of[r.key.Job]
	is := g.Facts().Overlap(r.policy)
	for _, run := range slices.Concat(is.Cancel, is.Expired) {
		if _, busy := o.busy[run]; busy {
			return again(gateRetry / 10) // the end of a run holds its row for milliseconds
		}
	}
	if slices.ContainsFunc(is.Cancel, func(run uuid.UUID) bool { return pg.CompareIDs(run, r.RunID) > 0 }) {
		o.replaced = append(o.replaced, r.RunID)
		return verdict{fate: leaves}
	}
	o.replaced, o.expired = append(o.replaced, is.Cancel...), append(o.expired, is.Expired...)
	if len(is.Cancel)+len(is.Expired) > 0 {
		g.Waiting = uuid.Nil
		o.gates.of[r.key.Job] = g
	}
	switch {
	case is.Blocker != uuid.Nil:
		o.drops(r)
		o.skipped = append(o.skipped, blocked{r.RunID, is.Blocker})
		return verdict{fate: leaves}
	case !is.Waits:
		return goesOn
	}
	o.waitsNext(r)
	if len(is.Cancel) > 0 { // the gate may be free at once: the next claim sees
		return verdict{fate: stays}
	}
	return verdict{fate: waits, wait: domain.WaitGate}
}

// waitsNext makes a run about which the policy decides the waiting run of its job. The policy then decides about
// further runs as if it waited at the gate, even if the gate has let it in and a limit keeps it from starting.
func (o *overlaps) waitsNext(r *waitingRun) {
	if r.policy == "" {
		return
	}
	g := o.gates.of[r.key.Job]
	g.Waiting, g.waitsFor = r.RunID, waitingFacts{}
	o.gates.of[r.key.Job] = g
	o.behind = append(o.behind, jobRun{r.key.Job, r.RunID})
}

// write ends the runs that make way, and queues what else was decided.
func (o *overlaps) write(ctx context.Context, b *pgx.Batch) error {
	if err := makeWay(ctx, o.conn, o.replaced, o.expired); err != nil {
		return err
	}
	if len(o.skipped) > 0 {
		b.Queue(skipBlocked, blockedRuns.Args(o.skipped)...)
	}
	queueWait(b, o.behind)
	return nil
}

var skipBlocked = `
UPDATE punctual.runs r
SET status = 'skipped', reason = 'overlap', blocked_by = u.blocker, finished_at = greatest(now(), r.created_at)
FROM ` + blockedRuns.Unnest("u") + `
WHERE r.id = ANY($1::uuid[]) AND r.id = u.id AND r.status = 'pending'`
