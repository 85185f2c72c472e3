package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// waryFinish writes outcomes and ends leases, except those with a row that another transaction has locked.
type waryFinish struct {
	outcomes  []domain.Outcome
	released  []uuid.UUID
	earlier   Earlier
	following Following

	written map[uuid.UUID]bool
	locked  lockedRows  // outcomes that are not written, by run
	kept    []uuid.UUID // leases that are not ended
}

// run is one transaction of two round trips. It first locks the rows that it will write, in the same order as all
// others.
func (f *waryFinish) run(ctx context.Context, s *Claims) error {
	return s.onConn(ctx, func(conn *pgx.Conn) error {
		if err := f.look(ctx, s, conn); err != nil {
			return err
		}
		var b pgx.Batch
		f.written = QueueFinish(&b, f.outcomes, f.released, f.earlier, AnyDay, f.following)
		b.Queue(`COMMIT`, pg.Prepared{})
		return conn.SendBatch(ctx, &b).Close()
	})
}

// look locks the rows, and sets aside the outcomes and leases of which a row is locked already.
func (f *waryFinish) look(ctx context.Context, s *Claims, conn pg.Batcher) error {
	var runs, told []uuid.UUID
	for _, o := range f.outcomes {
		runs = append(runs, o.RunID)
		if f.following.Concerns(o.Job) {
			told = append(told, o.Job.ID)
		}
	}
	gated, _ := gatedJobs(f.outcomes)
	ofJobs, ofRuns, ofLeases := lockedRows{}, lockedRows{}, lockedRows{}
	var b pgx.Batch
	s.idling.queueBegin(&b, warily)
	ofJobs.queue(&b, "exclusive", gated)
	ofJobs.queueBehind(&b, gated)
	ofRuns.queue(&b, "runs", runs)
	ofRuns.queue(&b, "run_data", runs)
	ofLeases.queue(&b, "claims", f.released)
	ofJobs.queue(&b, "jobs", told) // for the row that is inserted in notified
	ofJobs.queue(&b, "notified", told)
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	f.locked = lockedRows{}
	leases := map[uuid.UUID]bool{}
	free := make([]domain.Outcome, 0, len(f.outcomes)) // a new array: the caller's outcomes stay as they are
	for _, o := range f.outcomes {
		table, is := ofRuns[o.RunID]
		if !is {
			table, is = ofJobs[o.Job.ID]
		}
		if !is {
			free = append(free, o)
			continue
		}
		f.locked[o.RunID] = table
		if o.Lease != nil {
			leases[o.Lease.ID] = true
		}
	}
	f.outcomes = free
	var released []uuid.UUID
	for _, id := range f.released {
		if _, is := ofLeases[id]; is || leases[id] {
			f.kept = append(f.kept, id)
			continue
		}
		released = append(released, id)
	}
	f.released = released
	return nil
}
