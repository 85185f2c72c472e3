package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/failpoint"
)

// Which claims end: ten of replicas that are no more, or those that are named.
const (
	orphaned = `c.id IN (SELECT c.id FROM punctual.claims c WHERE NOT EXISTS (SELECT FROM punctual.replicas r WHERE r.id = c.replica) LIMIT 10)`
	named    = `c.id = ANY($1::uuid[])`
)

// readClaimed reads claims and their runs that are still running under them. A run that was finished, or
// that a later attempt holds, or that its target works on, is not among them.
const readClaimed = `
SELECT c.id, r.id, r.job_id, r.job_version, r.tenant, r.lane, r.trigger, r.scheduled_for, r.due_at, r.late, r.attempt, r.fence, r.started_at, now(), ` + lossesOf + `,
       coalesce((SELECT d.notify_url FROM punctual.run_data d WHERE d.run_id = r.id), '')
FROM punctual.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS u(run_id)
LEFT JOIN punctual.runs r ON r.id = u.run_id AND r.status = 'running' AND r.replica = c.replica AND r.accepted_at IS NULL
WHERE `

// lossesOf is how many attempts in a row a run has lost just before its present one, counted up to two.
const lossesOf = `(SELECT count(*) FROM (SELECT a.outcome FROM punctual.attempts a WHERE a.run_id = r.id ORDER BY a.fence DESC LIMIT 2) last WHERE last.outcome = 'lost')`

// claimedRun is a run that is running under a claim.
type claimedRun struct {
	scheduler.Assignment
	key     jobVersion
	tenant  int32
	started time.Time
	losses  int // attempts lost in a row just before this one, counted up to two

	notifyURL string // of a notice, or of a replay of one: where it goes
}

// claimedRuns are claims that are to end, and what is still running under them.
type claimedRuns struct {
	claims []uuid.UUID
	runs   []claimedRun
	now    time.Time
}

// Recover implements scheduler.Store. It is an anti-join repeated on every sweep, never a reaction to one
// event; several replicas may do it at once, as every change is fenced.
func (s *Store) Recover(ctx context.Context) (int, error) {
	n, err := s.endClaims(ctx, orphaned, nil, func(r claimedRun, now time.Time) scheduler.Outcome {
		return scheduler.JudgeLost(r.Assignment, r.losses, r.started, now)
	})
	if err != nil {
		return 0, fmt.Errorf("recovering the runs of lost replicas: %w", err)
	}
	return n, nil
}

// GiveBack implements scheduler.Store.
func (s *Store) GiveBack(ctx context.Context, claims []uuid.UUID) (int, error) {
	n, err := s.endClaims(ctx, named, []any{claims}, func(r claimedRun, now time.Time) scheduler.Outcome {
		return scheduler.Outcome{Assignment: r.Assignment, Verdict: scheduler.GiveBack, FinishedAt: now}
	})
	if err != nil {
		return 0, fmt.Errorf("giving back runs: %w", err)
	}
	return n, nil
}

// endClaims ends claims, with an outcome for each run that is still running under them.
func (s *Store) endClaims(ctx context.Context, where string, args []any, judge func(claimedRun, time.Time) scheduler.Outcome) (int, error) {
	held, err := s.readClaimed(ctx, where, args)
	if err != nil || len(held.claims) == 0 {
		return 0, err
	}
	jobs, err := s.definitionsOf(ctx, s.pool, held.runs)
	if err != nil {
		return 0, err
	}
	outcomes := make([]scheduler.Outcome, 0, len(held.runs))
	for _, r := range held.runs {
		if r.Job, err = sentBy(jobs[r.key], r.notifyURL); err != nil {
			return 0, err
		}
		if r.Job == nil {
			return 0, fmt.Errorf("run %s: this version of Punctual cannot read version %d of job %s", r.RunID, r.key.version, r.key.id)
		}
		outcomes = append(outcomes, judge(r, held.now))
	}
	failpoint.At(failpoint.RecoverJudged)
	var b pgx.Batch
	written := queueFinish(&b, outcomes, held.claims)
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return 0, err
	}
	failpoint.At(failpoint.RecoverCommitted)
	s.ended(outcomes, written)
	if len(written) > 0 {
		s.signal()
	}
	return len(written), nil
}

func (s *Store) readClaimed(ctx context.Context, where string, args []any) (claimedRuns, error) {
	var held claimedRuns
	rows, err := s.pool.Query(ctx, readClaimed+where+` ORDER BY c.id`, args...)
	if err != nil {
		return held, err
	}
	defer rows.Close()
	for rows.Next() {
		var claim uuid.UUID
		var run, job *uuid.UUID
		var version, tenant *int32
		var lane, attempt *int16
		var trigger *scheduler.Trigger
		var slot, due, started *time.Time
		var late *bool
		var fence *int64
		var r claimedRun
		if err := rows.Scan(&claim, &run, &job, &version, &tenant, &lane, &trigger, &slot, &due, &late, &attempt, &fence, &started, &held.now, &r.losses, &r.notifyURL); err != nil {
			return held, err
		}
		if len(held.claims) == 0 || held.claims[len(held.claims)-1] != claim {
			held.claims = append(held.claims, claim)
		}
		if run == nil {
			continue
		}
		r.key = jobVersion{id: *job, version: *version}
		r.tenant, r.started = *tenant, *started
		r.Assignment = scheduler.Assignment{
			RunID: *run, Lane: *lane, Trigger: *trigger, ScheduledFor: *slot, DueAt: *due, Late: *late, Attempt: int(*attempt), Fence: *fence,
		}
		held.runs = append(held.runs, r)
	}
	return held, rows.Err()
}

// definitionsOf returns the compiled definitions that runs use.
func (s *Store) definitionsOf(ctx context.Context, q batcher, runs []claimedRun) (map[jobVersion]*scheduler.Job, error) {
	jobs := make(map[jobVersion]*scheduler.Job, len(runs))
	missing := map[jobVersion]int32{}
	for _, r := range runs {
		if job, ok := s.jobs.Get(r.key); ok {
			jobs[r.key] = job
		} else {
			missing[r.key] = r.tenant
		}
	}
	if len(missing) == 0 {
		return jobs, nil
	}
	var b pgx.Batch
	s.queueDefinitions(&b, missing, jobs, map[jobVersion]error{})
	return jobs, q.SendBatch(ctx, &b).Close()
}
