package claim

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
)

// subject is one thing that decides about the runs of a claim of ready. All subjects read, in their order, and the
// claim then asks them about one run after another, in the same order: see claim/doc.go. Each knows the lockedRuns.
type subject interface {
	// read reads what the subject decides by. The runs are read by then, and their gates are locked.
	read(ctx context.Context) error
	// decide says what becomes of a run. The first verdict that is not goesOn stands, and no later subject is asked.
	decide(r *waitingRun) verdict
	// take notes that all subjects have let a run start.
	take(r *waitingRun)
	// write queues what the subject has decided. It sends by itself what takes round trips of its own.
	write(ctx context.Context, b *pgx.Batch) error
}

// decides is a subject that only decides. Those that do part of the rest embed it.
type decides struct{}

func (decides) read(context.Context) error              { return nil }
func (decides) take(*waitingRun)                        {}
func (decides) write(context.Context, *pgx.Batch) error { return nil }

// verdict is what becomes of a run, and of its row in ready.
type verdict struct {
	fate
	in   time.Duration // comesAgain: when
	wait domain.Wait   // waits: what for
	on   string        // waits: for which limit; empty: for none
}

type fate int

const (
	goes       fate = iota // the next subject is asked, and after the last one the run starts
	leaves                 // the row goes: the run has ended, or is ended by the subject
	stays                  // the row stays as it is, and due
	comesAgain             // the run is looked at again later
	waits                  // the run waits for something else than its turn
)

var goesOn = verdict{fate: goes}

// again has a run looked at again later.
func again(in time.Duration) verdict { return verdict{fate: comesAgain, in: in} }

// lockedRuns are the runs of a claim of ready: what all its subjects know.
type lockedRuns struct {
	claims    *Claims
	claim     scheduler.Claim
	following Following
	wary      bool
	conn      *pgx.Conn
	now       time.Time
	rows      map[uuid.UUID]readyRow // the locked rows, but for those of frozen tenants, by run
	ids       []uuid.UUID            // their runs, sorted
	runs      []*waitingRun          // those of them that can still be sent
	found     definitions.Found
	busy      lockedRows // rows that others have locked: of runs, and of jobs (in jobs or notified)

	start  []uuid.UUID // runs that start
	events []RunEvent
	more   bool // there may be more overdue attempts, or runs that are due
}

// jobs returns the jobs of the locked rows, one for each row.
func (l *lockedRuns) jobs() []uuid.UUID {
	jobs := make([]uuid.UUID, len(l.ids))
	for i, id := range l.ids {
		jobs[i] = l.rows[id].job
	}
	return jobs
}

// drops tells that work which somebody has asked for is skipped because of other runs of its job. Slots are no such
// work.
func (l *lockedRuns) drops(r *waitingRun) {
	if r.Trigger != domain.TriggerSchedule {
		l.events = append(l.events, RunEvent{r.Job, jobspec.EventDropped, r.RunID})
	}
}

// whose are the runs that have an event. They are never nil, which is null in SQL.
func (l *lockedRuns) whose(event jobspec.Event) []uuid.UUID {
	runs := []uuid.UUID{}
	for _, e := range l.events {
		if e.Event == event {
			runs = append(runs, e.Run)
		}
	}
	return runs
}
