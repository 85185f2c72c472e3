package claim

import "github.com/jackc/pgx/v5"

// othersLocks are what other transactions have locked of that which the claim would write. It is a subject.
type othersLocks struct {
	decides
	*lockedRuns
}

// queue locks the rows that a wary claim may write, after the gates, and finds those that others have locked.
func (l *othersLocks) queue(b *pgx.Batch) {
	if l.wary {
		jobs := l.jobs()
		l.busy.queue(b, "runs", l.ids)
		l.busy.queue(b, "jobs", jobs)
		l.busy.queue(b, "notified", jobs)
	}
}

// decide puts a run off if another transaction has locked its row. It also puts off a run whose attempt has to be ended
// if the job's row in jobs or notified is locked.
func (l *othersLocks) decide(r *waitingRun) verdict {
	_, run := l.busy[r.RunID]
	_, job := l.busy[r.key.Job]
	if !run && (!r.overdue || !job) {
		return goesOn
	}
	l.claims.wary.ready.found()
	return again(gateRetry)
}
