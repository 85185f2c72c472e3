package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/days"
	"punctual/store/pg"
)

// finishing is one transaction that ends attempts and leases. It asks its followers what they decide about outcomes and
// what follows from them, and leaves out what waits for another transaction.
type finishing struct {
	outcomes  []domain.Outcome
	released  []uuid.UUID
	earlier   Earlier
	on        days.Day // of the runs that succeeded
	following Following

	decided   decided
	written   map[uuid.UUID]bool
	locked    lockedRows  // outcomes that are not written, by run
	strangers bool        // some are not because of a locked row
	kept      []uuid.UUID // leases that are not ended
	freed     bool        // a run that waited at a gate is due
}

// run makes the transaction. It takes one round trip, unless followers have to read something first, or have to go on
// afterwards. Warily it takes two: it first locks the rows that it will write, in the same order as all others.
func (f *finishing) run(ctx context.Context, s *Claims, pool *pg.Pool, wary bool) error {
	var b pgx.Batch
	busy := strangers{ofJobs: lockedRows{}, ofRuns: lockedRows{}, ofLeases: lockedRows{}}
	if wary {
		s.queueBegin(&b, warily)
		busy.queueLook(&b, f)
	} else {
		s.queueBegin(&b, calmly)
	}
	begun := b.Len()
	f.following.QueueRead(&b, f.outcomes)
	looks := wary || b.Len() > begun
	if !looks && !f.following.Continues(f.outcomes) {
		return f.atOnce(ctx, s, pool)
	}
	return s.onConn(ctx, pool, func(conn *pgx.Conn) error {
		if looks {
			if err := conn.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
			f.decided = decideEnds(f.following, f.outcomes)
			f.setAside(busy)
			b = pgx.Batch{}
		}
		f.queue(&b)
		failpoint.At(failpoint.FinishBegun)
		if err := f.following.Continue(ctx, conn, &b); err != nil {
			return err
		}
		b.Queue(`COMMIT`, pg.Prepared{})
		return conn.SendBatch(ctx, &b).Close()
	})
}

// atOnce makes the transaction in one round trip: a batch without BEGIN is both.
func (f *finishing) atOnce(ctx context.Context, s *Claims, pool *pg.Pool) error {
	var b pgx.Batch
	settings := longer
	if plain(f.outcomes, f.on, f.following) {
		settings += lastingPlan
	}
	b.Queue(settings, pg.Prepared{}, s.patient.statements.milliseconds())
	f.queue(&b)
	failpoint.At(failpoint.FinishBegun)
	return pool.SendBatch(ctx, &b).Close()
}

// plain reports whether outcomes are nothing but successes of one day from which nothing follows, as most are. All that
// is sent for them is a statement for the day and the end of leases.
func plain(outcomes []domain.Outcome, on days.Day, following Following) bool {
	for i := range outcomes {
		o := &outcomes[i]
		if o.Verdict != domain.Succeed || o.Gated || keeps(o) || following.Concerns(o.Job) {
			return false
		}
	}
	return on != days.AnyDay
}

// QueueFinish queues the statements of a finish for those that make no further round trip.
func QueueFinish(
	b *pgx.Batch, outcomes []domain.Outcome, released []uuid.UUID, earlier Earlier, on days.Day, following Following,
) (written map[uuid.UUID]bool) {
	f := finishing{outcomes: outcomes, released: released, earlier: earlier, on: on, following: following}
	f.queue(b)
	following.Leave(b)
	return f.written
}

// queue queues the statements that end attempts: the gates' locks, the outcomes, the gates' release, the end of leases,
// for which it names their earlier runs, and what follows. They come after pg.ByIndex. Once the batch is read, written
// holds the runs that the fence let through, and freed says whether a run that waited at a gate is due.
func (f *finishing) queue(b *pgx.Batch) {
	f.written = make(map[uuid.UUID]bool, len(f.outcomes))
	gated, runs := gatedJobs(f.outcomes)
	if len(gated) > 0 {
		b.Queue(`
			SELECT FROM punctual.exclusive
			WHERE job_id = ANY($1::uuid[])
			ORDER BY job_id
			FOR NO KEY UPDATE`, gated)
	}
	queueReported(b, f.outcomes)
	queueOutcomes(b, f.outcomes, f.on, f.written)
	if len(gated) > 0 {
		f.on.Queue(b, releaseGates, gated, runs).Exec(func(due pgconn.CommandTag) error {
			f.freed = due.RowsAffected() > 0
			return nil
		})
	}
	queueEnd(b, f.released, f.earlier, f.on)
	f.following.QueueEnds(b, f.outcomes, f.on)
}

// setAside sets aside the outcomes and leases that have to wait.
func (f *finishing) setAside(busy strangers) {
	f.locked, f.kept, f.strangers = lockedRows{}, nil, false
	leases := map[uuid.UUID]bool{}
	wait := func(o domain.Outcome, table string) {
		f.locked[o.RunID] = table
		if o.Lease != nil {
			leases[o.Lease.ID] = true
		}
	}
	for _, o := range f.decided.wait {
		wait(o, "reports")
	}
	f.outcomes = make([]domain.Outcome, 0, len(f.decided.write)) // a new array: the caller's outcomes stay as they are
	for _, o := range f.decided.write {
		table, is := busy.of(o)
		if !is {
			f.outcomes = append(f.outcomes, o)
			continue
		}
		f.strangers = true
		wait(o, table)
	}
	var released []uuid.UUID
	for _, id := range f.released {
		_, is := busy.ofLeases[id]
		f.strangers = f.strangers || is
		if is || leases[id] {
			f.kept = append(f.kept, id)
			continue
		}
		released = append(released, id)
	}
	f.released = released
}

// decided are outcomes about which all followers have decided.
type decided struct {
	all   []domain.Outcome // how each attempt has ended
	write []domain.Outcome
	wait  []domain.Outcome
}

// decide has followers decide about outcomes within a transaction.
func decide(
	ctx context.Context, q pg.Batcher, following Following, outcomes []domain.Outcome,
) (d decided, err error) {
	var b pgx.Batch
	if following.QueueRead(&b, outcomes); b.Len() > 0 {
		err = q.SendBatch(ctx, &b).Close()
	}
	if err != nil {
		return d, fmt.Errorf("reading what decides about %d outcomes: %w", len(outcomes), err)
	}
	return decideEnds(following, outcomes), nil
}

func decideEnds(following Following, outcomes []domain.Outcome) (d decided) {
	for _, o := range outcomes {
		o, decision := following.Decide(o)
		d.all = append(d.all, o)
		switch decision {
		case ToWrite:
			d.write = append(d.write, o)
		case MustWait:
			d.wait = append(d.wait, o)
		case IsWritten:
		}
	}
	return d
}

// gatedJobs returns, sorted, the jobs whose gates may be held by runs among the outcomes. It also returns these runs.
func gatedJobs(outcomes []domain.Outcome) (jobs, runs []uuid.UUID) {
	for _, o := range outcomes {
		if o.Gated {
			jobs, runs = append(jobs, o.Job.ID), append(runs, o.RunID)
		}
	}
	slices.SortFunc(jobs, pg.CompareIDs)
	return jobs, runs
}
