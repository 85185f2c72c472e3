package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/pg"
)

// lookingFinish looks before it writes outcomes and ends leases: for what targets have reported, and warily for rows
// that other transactions have locked. It leaves out what waits for such a transaction.
type lookingFinish struct {
	outcomes  []domain.Outcome
	released  []uuid.UUID
	earlier   Earlier
	following Following
	on        Day // of the runs that succeeded
	arbiter   arbiter

	written   map[uuid.UUID]bool
	locked    lockedRows  // outcomes that are not written, by run
	strangers bool        // some are not because of a locked row
	kept      []uuid.UUID // leases that are not ended
	freed     bool        // a run that waited at a gate is due
	advanced  advanced    // what became of workflows
}

// run is one transaction of two round trips. Warily it first locks the rows that it will write, in the same order as
// all others.
func (f *lookingFinish) run(ctx context.Context, s *Claims, pool *pg.Pool, wary bool) error {
	return s.onConn(ctx, pool, func(conn *pgx.Conn) error {
		if err := f.look(ctx, s, conn, wary); err != nil {
			return err
		}
		var b pgx.Batch
		f.written = f.queue(&b)
		failpoint.At(failpoint.FinishBegun)
		if concerned := workflowsOf(f.outcomes); len(concerned.runs) > 0 {
			if f.on == AnyDay { // or the table of a day is missing
				concerned.on = AnyDay
			}
			concerned.queueLock(&b)
			var err error
			if f.advanced, err = s.advance(ctx, conn, &b, concerned); err != nil {
				return err
			}
			b = pgx.Batch{}
		}
		b.Queue(`COMMIT`, pg.Prepared{})
		return conn.SendBatch(ctx, &b).Close()
	})
}

// look locks the rows, has the arbiter decide, and sets aside the outcomes and leases that have to wait.
func (f *lookingFinish) look(ctx context.Context, s *Claims, conn pg.Batcher, wary bool) error {
	ofJobs, ofRuns, ofLeases := lockedRows{}, lockedRows{}, lockedRows{}
	var b pgx.Batch
	if wary {
		s.queueBegin(&b, warily)
		f.queueLook(&b, ofJobs, ofRuns, ofLeases)
	} else {
		s.queueBegin(&b, calmly)
	}
	f.arbiter.queue(&b)
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	f.setAside(ofJobs, ofRuns, ofLeases)
	return nil
}

// queueLook queues the search for locked rows.
func (f *lookingFinish) queueLook(b *pgx.Batch, ofJobs, ofRuns, ofLeases lockedRows) {
	var runs, told []uuid.UUID
	for _, o := range f.outcomes {
		runs = append(runs, o.RunID)
		if f.following.Concerns(o.Job) {
			told = append(told, o.Job.ID)
		}
	}
	gated, _ := gatedJobs(f.outcomes)
	ofJobs.queue(b, "exclusive", gated)
	ofJobs.queueBehind(b, gated)
	ofRuns.queue(b, "runs", runs)
	ofRuns.queue(b, "run_data", runs)
	ofLeases.queue(b, "claims", f.released)
	ofJobs.queue(b, "jobs", told) // for the row that is inserted in notified
	ofJobs.queue(b, "notified", told)
}

func (f *lookingFinish) setAside(ofJobs, ofRuns, ofLeases lockedRows) {
	settled, open := f.arbiter.settle(f.outcomes)
	f.locked = lockedRows{}
	leases := map[uuid.UUID]bool{}
	wait := func(o domain.Outcome, table string) {
		f.locked[o.RunID] = table
		if o.Lease != nil {
			leases[o.Lease.ID] = true
		}
	}
	for _, o := range open {
		wait(o, "reports")
	}
	free := make([]domain.Outcome, 0, len(settled)) // a new array: the caller's outcomes stay as they are
	for _, o := range settled {
		table, is := ofRuns[o.RunID]
		if !is {
			table, is = ofJobs[o.Job.ID]
		}
		if !is {
			free = append(free, o)
			continue
		}
		f.strangers = true
		wait(o, table)
	}
	f.outcomes = free
	var released []uuid.UUID
	for _, id := range f.released {
		_, is := ofLeases[id]
		f.strangers = f.strangers || is
		if is || leases[id] {
			f.kept = append(f.kept, id)
			continue
		}
		released = append(released, id)
	}
	f.released = released
}
