package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/aside"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// Which claims end: ten orphaned ones, whose replicas no longer exist, except the given ones; or the given ones.
const (
	orphaned = `c.id IN (
		SELECT c.id FROM punctual.claims c
		WHERE NOT EXISTS (SELECT FROM punctual.replicas r WHERE r.id = c.replica) AND c.id <> ALL($1::uuid[]) LIMIT 10)`
	named = `c.id = ANY($1::uuid[])`
)

// selectRunning reads running attempts of runs ($2), each with its claim (c). It counts, up to two, the attempts in a
// row just before the present one that were lost with their replica.
var selectRunning = `
SELECT ` + runPlaces.Selected() + `, c.id, now(),
       coalesce((SELECT ` + ofTrace + `
                 FROM punctual.run_data d WHERE d.run_id = r.id AND d.run_id = ANY($2::uuid[])), ''),
       (SELECT count(*)
        FROM (SELECT a.outcome, a.reason FROM punctual.attempts a
              WHERE a.run_id = r.id AND a.run_id = ANY($2::uuid[]) ORDER BY a.fence DESC LIMIT 2) last
        WHERE last.outcome = 'lost' AND last.reason <> 'silent')
FROM `

// Which attempts are read: those under claims ($1), or those that no claim names. They leave out runs that have ended,
// that a later attempt holds, or that their targets work on. A claim and its attempts were written together, so they
// have the instant in common.
const (
	ofClaims = `punctual.claims c
CROSS JOIN LATERAL unnest(c.run_ids) AS u(run_id)
JOIN punctual.runs r
  ON r.id = u.run_id AND r.id = ANY($2::uuid[]) AND r.status = 'running' AND r.accepted_at IS NULL
 AND r.replica = c.replica AND r.claimed_at = c.claimed_at
WHERE c.id = ANY($1::uuid[])`
	ofNoClaim = `punctual.runs r
CROSS JOIN (SELECT NULL::uuid AS id WHERE $1::uuid[] IS NULL) c
WHERE r.id = ANY($2::uuid[])
  AND r.status = 'running' AND r.accepted_at IS NULL AND NOT punctual.is_claimed(r.id, r.replica, r.claimed_at)`
)

// claimedRun is a run that is running under a claim.
type claimedRun struct {
	runRow
	losses int // attempts lost in a row just before this one, counted up to two
}

// claimedRuns are claims that are to end, and the runs still running under them.
type claimedRuns struct {
	claims []uuid.UUID // to end; none for attempts that no claim names
	runs   []claimedRun
	now    time.Time

	reported bool // they end only as their targets have reported
}

// TakeOver ends some of the claims of replicas that there are no more: their attempts are lost. It returns how many
// runs it took back. It is an anti-join repeated on every sweep, never a reaction to one event. Several replicas may do
// it at once, because every change is fenced.
func (s *Claims) TakeOver(ctx context.Context) (int, error) {
	others := []uuid.UUID{} // claims that this binary cannot end
	for {
		n, left, err := s.endClaims(ctx, orphaned, others, func(r claimedRun, now time.Time) domain.Outcome {
			return domain.JudgeLost(r.Assignment, r.losses, r.started, now)
		})
		if err != nil {
			return 0, fmt.Errorf("recovering the runs of lost replicas: %w", err)
		}
		if n > 0 || len(left) == 0 {
			return n, nil
		}
		others = append(others, left...)
	}
}

// GiveBack implements scheduler.Store.
func (s *Claims) GiveBack(ctx context.Context, claims []uuid.UUID) (int, error) {
	n, _, err := s.endClaims(ctx, named, claims, func(r claimedRun, now time.Time) domain.Outcome {
		return domain.Outcome{Assignment: r.Assignment, Verdict: domain.GiveBack, FinishedAt: now}
	})
	return n, pg.Wrap("giving back runs", err)
}

// Lose implements scheduler.Store.
func (s *Claims) Lose(ctx context.Context, claims, runs []uuid.UUID) (n int, err error) {
	if runs == nil {
		n, _, err = s.endClaims(ctx, named, claims, forgotten)
	} else {
		n, err = s.endRunning(ctx, s.db.Runs, ofClaims, claims, runs)
	}
	s.takenBack.Add(int64(n))
	return n, pg.Wrap("ending attempts whose outcomes were lost", err)
}

// forgotten is the end of an attempt whose outcome the database has lost.
func forgotten(r claimedRun, now time.Time) domain.Outcome {
	return domain.JudgeForgotten(r.Assignment, r.losses, r.started, now)
}

// endRunning ends attempts as forgotten, and no claim. It returns how many outcomes it wrote.
func (s *Claims) endRunning(
	ctx context.Context, pool *pg.Pool, which string, claims, runs []uuid.UUID,
) (n int, err error) {
	n, _, err = s.endApart(ctx, pool, closing{which: which, claims: claims, judge: forgotten}, runs)
	return n, err
}

// EndReported ends the attempts of runs, if a follower knows how their targets have reported that they ended.
func (s *Claims) EndReported(ctx context.Context, runs []uuid.UUID) error {
	_, _, err := s.endApart(ctx, s.db.Runs, closing{which: ofAnybody, reported: true, judge: func(
		r claimedRun, now time.Time,
	) domain.Outcome {
		return domain.Outcome{
			Assignment: r.Assignment, Verdict: domain.Succeed, StartedAt: r.started, FinishedAt: now, Reported: true,
		}
	}}, runs)
	return err
}

// endClaims ends claims, with an outcome for each run that is still running under them. It returns how many outcomes it
// wrote, and the claims that it left.
func (s *Claims) endClaims(
	ctx context.Context, where string, ids []uuid.UUID, judge func(claimedRun, time.Time) domain.Outcome,
) (n int, left []uuid.UUID, err error) {
	runs, err := pg.Map[uuid.UUID, []uuid.UUID](ctx, s.db.Runs,
		`SELECT c.id, c.run_ids FROM punctual.claims c WHERE `+where, ids)
	if err != nil || len(runs) == 0 {
		return 0, nil, err
	}
	claims := slices.SortedFunc(maps.Keys(runs), pg.CompareIDs)
	e := closing{which: ofClaims, claims: claims, over: claims, judge: judge}
	return s.endApart(ctx, s.db.Runs, e, slices.Concat(slices.Collect(maps.Values(runs))...))
}

// closing is the end of attempts that their replica does not end itself.
type closing struct {
	which    string      // selects those that are still running
	claims   []uuid.UUID // whose attempts they are; nil: no claim names them
	over     []uuid.UUID // claims that end with them
	judge    func(claimedRun, time.Time) domain.Outcome
	reported bool // they end only as their targets have reported
}

// endApart ends the attempts of runs. A run whose attempt cannot be ended is set aside, and keeps no other from ending.
// Its claim ends: the run is then in nobody's hands, and tried again by itself.
func (s *Claims) endApart(
	ctx context.Context, pool *pg.Pool, e closing, runs []uuid.UUID,
) (n int, left []uuid.UUID, err error) {
	inParts := false
	failed, err := aside.Apart(ctx, runs, func(ctx context.Context, part []uuid.UUID) error {
		e := e
		if len(part) < len(runs) {
			inParts, e.over = true, nil
		}
		written, kept, err := s.endRuns(ctx, pool, e, part)
		n, left = n+written, append(left, kept...)
		return err
	})
	if len(failed) > 0 && !s.isSound(ctx) {
		return n, left, failed[0].Err
	}
	for _, f := range failed {
		s.aside.PutRun(ctx, aside.Outcome, f.Item, f.Err)
	}
	if over := without(e.over, left); err == nil && len(over) > 0 && (inParts || len(failed) > 0) {
		err = pg.Exec(ctx, pool, deleteLeases, over)
	}
	return n, left, err
}

// endRuns ends attempts together.
func (s *Claims) endRuns(ctx context.Context, pool *pg.Pool, e closing, runs []uuid.UUID) (int, []uuid.UUID, error) {
	held, err := readRunning(ctx, pool, e.which, e.claims, runs)
	if err != nil || len(held.runs)+len(e.over) == 0 {
		return 0, nil, err
	}
	held.claims, held.reported = e.over, e.reported
	return s.end(ctx, pool, held, e.judge)
}

// end ends attempts that were read. If this binary cannot read a run's definition, it leaves the run and its claim
// for a binary that can.
func (s *Claims) end(
	ctx context.Context, pool *pg.Pool, held claimedRuns, judge func(claimedRun, time.Time) domain.Outcome,
) (n int, left []uuid.UUID, err error) {
	versions := definitions.Of(held.runs, func(r claimedRun) (definitions.Version, int32) { return r.key, r.tenant })
	found, err := s.definitions.Read(ctx, pool, versions)
	if err != nil {
		return 0, nil, err
	}
	outcomes := make([]domain.Outcome, 0, len(held.runs))
	for _, r := range held.runs {
		if r.Job = found.Job(r.key); r.Job == nil {
			if len(left) == 0 { // one message for all: there may be thousands, and every retry comes after two seconds
				s.options.Log.Error(
					"this version of Punctual cannot read the job's definition of a lost run; the run is left to a version that can",
					"run", r.RunID, "job", r.key.Job, "version", r.key.Version, "error", found.Why(r.key))
			}
			left = append(left, r.Lease.ID)
			continue
		}
		outcomes = append(outcomes, judge(r, held.now))
	}
	over := slices.DeleteFunc(held.claims, func(id uuid.UUID) bool { return slices.Contains(left, id) })
	following, err := s.followers.Follow(ctx, pool, pg.Everybody)
	if err != nil {
		return 0, nil, err
	}
	failpoint.At(failpoint.RecoverJudged)
	var f finishing
	if err := patiently(func() error {
		f = finishing{outcomes: outcomes, released: over, following: following}
		return f.run(ctx, s, pool, true)
	}); err != nil {
		return 0, nil, err
	}
	failpoint.At(failpoint.RecoverCommitted)
	s.db.Ask(following.Asks()...)
	if len(f.locked)+len(f.kept) > 0 && !held.reported {
		s.options.Log.Warn("claims are not ended yet because another transaction has locked their rows",
			"claims", len(f.kept), "runs", len(f.locked))
	}
	if held.reported { // the replicas that make the other attempts count them when they are answered
		f.outcomes = slices.DeleteFunc(f.outcomes, func(o domain.Outcome) bool { return o.AcceptedAt.IsZero() })
	}
	s.Ended(f.outcomes, f.written)
	if len(f.written) > 0 {
		s.db.Wake()
	}
	return len(f.written), append(left, f.kept...), nil
}

func readRunning(
	ctx context.Context, q pg.Querier, which string, claims, runs []uuid.UUID,
) (held claimedRuns, err error) {
	held.runs, err = pg.All(ctx, q, func(row pgx.CollectableRow) (r claimedRun, err error) {
		r.Lease = new(domain.Lease)
		r.Gated = true // not known here, so assumed
		err = row.Scan(r.places(&r.Lease.ID, &held.now, &r.TraceParent, &r.losses)...)
		r.Step = r.key.Step
		return r, err
	}, selectRunning+which, claims, runs)
	return held, err
}

// Over tells the tracer of runs that this replica has ended without an attempt. Some may go on.
func (s *Claims) Over(runs ...uuid.UUID) { s.options.Tracer.Over(runs...) }

// Ended is told of attempts that this replica has ended for their targets. It counts them in the metrics.
func (s *Claims) Ended(outcomes []domain.Outcome, written map[uuid.UUID]bool) {
	s.options.Tracer.Ended(outcomes, written)
	if s.options.Ended == nil {
		return
	}
	var ours []domain.Outcome
	for _, o := range outcomes {
		if written[o.RunID] {
			ours = append(ours, o)
		}
	}
	s.options.Ended(ours)
}
