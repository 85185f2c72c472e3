package claim

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
)

// strangers are the rows of a finish that other transactions have locked.
type strangers struct{ ofJobs, ofRuns, ofLeases lockedRows }

// queueLook queues the search for them.
func (s strangers) queueLook(b *pgx.Batch, f *finishing) {
	var runs, told []uuid.UUID
	for _, o := range f.outcomes {
		runs = append(runs, o.RunID)
		if f.following.Concerns(o.Job) {
			told = append(told, o.Job.ID)
		}
	}
	gated, _ := gatedJobs(f.outcomes)
	s.ofJobs.queue(b, "exclusive", gated)
	s.ofJobs.queueBehind(b, gated)
	s.ofRuns.queue(b, "runs", runs)
	s.ofRuns.queue(b, "run_data", runs)
	s.ofLeases.queue(b, "claims", f.released)
	s.ofJobs.queue(b, "jobs", told) // for the row that is inserted in notified
	s.ofJobs.queue(b, "notified", told)
}

// of returns the table of a locked row that an outcome needs.
func (s strangers) of(o domain.Outcome) (table string, is bool) {
	if table, is = s.ofRuns[o.RunID]; !is {
		table, is = s.ofJobs[o.Job.ID]
	}
	return table, is
}
