package claim

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// With the policy queue all runs of a job wait at its gate, and pass it one at a time, the oldest first. So do the runs
// of missed slots under fire_all, whatever the policy. Under allow they alone pass the gate, which is open to all
// others.

// lines are the lines in which runs of jobs wait that go in order. It is a subject.
type lines struct {
	decides
	*lockedRuns
	gates  *gates
	of     map[uuid.UUID]*line // by job
	beyond []uuid.UUID         // runs that are more than may wait
}

// line is how the runs of a job stand that go in order: with the policy queue all, and else those of missed slots.
type line struct {
	first  uuid.UUID   // the oldest that waits; uuid.Nil: none, but for dated runs that come by this claim
	parked []uuid.UUID // those of this claim that waited at the gate before
	length int         // how many wait at the gate
}

// inLine reports whether runs of a job with the trigger go in order.
func inLine(job *domain.Job, trigger domain.Trigger) bool {
	return job.ConcurrencyPolicy == jobspec.PolicyQueue || job.CatchesUp(trigger)
}

// read reads the lines of jobs with the policy queue, and of those whose missed slots wait. It sends nothing if there
// is no such job.
func (l *lines) read(ctx context.Context) error {
	jobs, workflows, catchUps := []uuid.UUID(nil), []uuid.UUID{}, []uuid.UUID{}
	l.of = map[uuid.UUID]*line{}
	for _, r := range l.runs {
		job := r.Job
		if job == nil || !inLine(job, r.Trigger) {
			continue
		}
		jobs, l.of[job.ID] = append(jobs, job.ID), &line{}
		if job.IsWorkflow() {
			workflows = append(workflows, job.ID)
		}
		if job.ConcurrencyPolicy != jobspec.PolicyQueue {
			catchUps = append(catchUps, job.ID)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	// One call looks up the runs of all lines, whose triggers and steps ready does not have.
	rows := pg.Query(ctx, l.conn, `
		WITH waiting AS MATERIALIZED (
		    SELECT y.job_id, y.run_id, y.waits FROM punctual.ready y
		    WHERE y.job_id = ANY($1::uuid[]) AND NOT `+isDeadline+`),
		known AS (
		    SELECT r.id, r.step, r.trigger, r.fence
		    FROM punctual.runs_of(ARRAY(
		        SELECT w.run_id FROM waiting w WHERE w.job_id = ANY($3::uuid[] || $4::uuid[]))) r)
		SELECT w.job_id, (array_agg(w.run_id ORDER BY w.run_id))[1], count(*) FILTER (WHERE w.waits = 'gate'),
		       coalesce(array_agg(w.run_id) FILTER (WHERE w.waits = 'gate' AND w.run_id = ANY($2::uuid[])), '{}')
		FROM waiting w
		LEFT JOIN known k ON k.id = w.run_id
		WHERE (w.job_id <> ALL($3::uuid[]) OR k.step IS NULL)
		  AND (w.job_id <> ALL($4::uuid[]) OR k.trigger = 'catchup' AND k.fence IS NULL)
		GROUP BY w.job_id`, jobs, l.ids, workflows, catchUps)
	var job uuid.UUID
	var is line
	err := pg.Each(rows, []any{&job, &is.first, &is.length, &is.parked}, func() {
		l.of[job] = &line{is.first, slices.Clone(is.parked), is.length}
	})
	return pg.Wrap("reading the lines of jobs", err)
}

// decide leaves a run at the gate of its job if another run holds the gate, or an older one of those that go in order
// waits. Under the policy queue only so many may wait there. A run that an event, a chain or an instant has made may be
// one too many: it is skipped. Work that a person has asked for slot by slot, as replays and backfills, is bounded
// where it is made.
func (l *lines) decide(r *waitingRun) verdict {
	if r.policy != "" || !r.Gated || l.passes(r) {
		return goesOn
	}
	is := l.of[r.Job.ID]
	if r.Job.ConcurrencyPolicy == jobspec.PolicyQueue && !slices.Contains(is.parked, r.RunID) {
		if is.length >= r.Job.MaxPendingRuns && r.Fence == 0 && !r.Trigger.Ordered() {
			l.drops(r)
			l.beyond = append(l.beyond, r.RunID)
			return verdict{fate: leaves}
		}
		is.length++
	}
	return verdict{fate: waits, wait: domain.WaitGate}
}

// passes reports whether it is a run's turn to pass its gate, or it has passed it.
func (l *lines) passes(r *waitingRun) bool {
	holders := l.gates.of[r.Job.ID].Holders()
	if len(holders) > 0 {
		return slices.Contains(holders, r.RunID)
	}
	if !inLine(r.Job, r.Trigger) {
		return true
	}
	first := l.of[r.Job.ID].first
	return first == uuid.Nil || pg.CompareIDs(first, r.RunID) >= 0
}

func (l *lines) write(_ context.Context, b *pgx.Batch) error {
	if len(l.beyond) > 0 {
		b.Queue(`
			UPDATE punctual.runs
			SET status = 'skipped', reason = 'limit', finished_at = greatest(now(), created_at)
			WHERE id = ANY($1::uuid[]) AND status = 'pending'`, l.beyond)
	}
	return nil
}
