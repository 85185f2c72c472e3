package claim

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// deadlines end attempts that have passed their deadlines: of targets that work on, of people who are to decide, and of
// workflows. No claim has such runs together with others. It is a subject.
type deadlines struct {
	decides // no run that has passed its deadline starts
	*lockedRuns
	present   presence
	workflows map[uuid.UUID]domain.Outcome // what becomes of those whose runs are due, by run
	overtime  []uuid.UUID                  // workflows whose time is up, and that may still clean up
	ended     []domain.Outcome
}

// absence is how long no replica may have renewed before the replicas, or the database, count as having been away:
// three heartbeats, as punctual.all_away has it.
const absence = 6 * time.Second

// presence says since when targets could be heard without a break.
type presence struct {
	since time.Time
	away  bool // no replica has renewed for a while, and none has noted that yet
}

// read reads what becomes of the workflows whose runs are due, and presence if any target seems to be silent.
func (d *deadlines) read(ctx context.Context) error {
	var workflows []domain.Outcome
	overdue := false
	for _, r := range d.runs {
		if overdue = overdue || r.overdue; r.overdue && r.Job != nil && r.Job.IsWorkflow() {
			workflows = append(workflows, domain.Outcome{Assignment: r.Assignment, StartedAt: r.started})
		}
	}
	if !overdue {
		return nil
	}
	if len(workflows) > 0 {
		var err error
		if d.workflows, err = d.claims.overdue(ctx, d.conn, workflows, d.now); err != nil {
			return err
		}
	}
	err := d.conn.QueryRow(ctx, `
		SELECT greatest(back_at, 'epoch'), punctual.all_away()
		FROM punctual.deployment`).Scan(&d.present.since, &d.present.away)
	return pg.Wrap("reading since when targets can be heard", err)
}

// decide ends the attempt of a run that has passed its deadline. That of a target goes on if no replica could hear it.
func (d *deadlines) decide(r *waitingRun) verdict {
	switch {
	case !r.overdue:
		return goesOn
	case r.Job.IsWorkflow():
		return d.ofWorkflow(r)
	case r.Job.Approval != nil:
	case d.present.away:
		return again(absence)
	default:
		if heard := r.Job.CallbackDeadline(r.started, d.present.since); heard.After(d.now) {
			return again(heard.Sub(d.now))
		}
	}
	return d.end(r.kept.Of(domain.JudgeSilent(r.Assignment, r.losses, r.started, d.now)))
}

func (d *deadlines) end(o domain.Outcome) verdict {
	d.ended = append(d.ended, o)
	return verdict{fate: leaves}
}

// ofWorkflow ends the run of a workflow that is due, or lets it go on.
func (d *deadlines) ofWorkflow(r *waitingRun) verdict {
	o := d.workflows[r.RunID]
	if o.Assignment = r.Assignment; o.Verdict != domain.Await { // by now it is known whether the run has a gate
		return d.end(o)
	}
	if o.Reason == domain.ReasonTimeout {
		d.overtime = append(d.overtime, o.RunID)
	}
	return again(o.RetryIn)
}

// heed ends the attempts as followers decide. It returns those that wait for a transaction of their target.
func (d *deadlines) heed(ctx context.Context) (wait []domain.Outcome, err error) {
	if len(d.ended) == 0 {
		return nil, nil
	}
	decided, err := decide(ctx, d.conn, d.following, d.ended)
	if err != nil {
		return nil, err
	}
	d.ended = decided.write
	return decided.wait, nil
}

// beginOvertime lets the chore end the steps of workflows whose time is up, and start those that clean up.
const beginOvertime = `
UPDATE punctual.runs r SET reason = 'timeout'
WHERE r.id = ANY($1::uuid[]) AND r.status = 'running' AND r.reason IS NULL`

func (d *deadlines) write(_ context.Context, b *pgx.Batch) error {
	if len(d.overtime) > 0 {
		b.Queue(beginOvertime, d.overtime)
		b.Queue(dueWorkflows, d.overtime)
	}
	return nil
}
