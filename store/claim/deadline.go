package claim

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// deadlines end attempts that have passed their deadlines: of targets that work on, of people who are to decide, and of
// workflows. No claim has such runs together with others. It is a subject.
type deadlines struct {
	*lockedRuns
	present   presence
	workflows map[uuid.UUID]*workflow // those whose runs are due, by run
	overtime  []uuid.UUID             // workflows whose time is up, and that may still clean up
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

// read reads the steps of the workflows whose runs are due, and presence if any target seems to be silent.
func (d *deadlines) read(ctx context.Context) error {
	var ids []uuid.UUID
	overdue := false
	for _, r := range d.runs {
		if overdue = overdue || r.overdue; r.overdue && r.Job != nil && r.Job.IsWorkflow() {
			ids = append(ids, r.RunID)
		}
	}
	if !overdue {
		return nil
	}
	if len(ids) > 0 {
		live, err := d.claims.readLive(ctx, d.conn, new(pgx.Batch), concerned{runs: ids, on: days.Common(ids...)})
		if err != nil {
			return err
		}
		d.workflows = make(map[uuid.UUID]*workflow, len(live))
		for _, w := range live {
			d.workflows[w.id] = w
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

// ofWorkflow ends the run of a workflow that is due, because its steps have ended or its time is up. When its
// max_duration has passed, steps that clean up have a while of their own.
func (d *deadlines) ofWorkflow(r *waitingRun) verdict {
	live, deadline := d.workflows[r.RunID], r.started.Add(r.Job.MaxDuration.Value())
	switch {
	case live != nil && live.late():
		return d.end(domain.JudgeSilent(r.Assignment, 0, r.started, jobspec.Later(d.now, deadline)))
	case live != nil && live.advance().Ended:
		return d.end(domain.JudgeSteps(r.Assignment, live.runs, live.reason, r.started, d.now))
	case d.now.Before(deadline):
		return again(deadline.Sub(d.now))
	case live != nil && !live.halted() && domain.MayCleanUp(r.Job.Definition, live.runs):
		d.overtime = append(d.overtime, r.RunID)
		return again(r.Job.CleanUpGrace())
	}
	return d.end(domain.JudgeSilent(r.Assignment, 0, r.started, d.now))
}

// take does nothing: no run that has passed its deadline starts.
func (d *deadlines) take(*waitingRun) {}

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
WITH late AS (
    UPDATE punctual.runs r SET reason = 'timeout'
    WHERE r.id = ANY($1::uuid[]) AND r.status = 'running' AND r.reason IS NULL)
UPDATE punctual.workflows SET due = true WHERE run_id = ANY($1::uuid[])`

func (d *deadlines) write(_ context.Context, b *pgx.Batch) error {
	if len(d.overtime) > 0 {
		b.Queue(beginOvertime, d.overtime)
	}
	return nil
}
