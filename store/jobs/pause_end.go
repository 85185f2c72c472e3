package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/pg"
)

// ChorePauses is the name of the chore that ends pauses.
const ChorePauses = "pauses"

// endNote is the note of a version that ends a pause automatically.
const endNote = "the pause was over"

// endPauses ends pauses that are over, as of the instant at which they ended: slots after that are those of an active
// job. The first transaction that holds such a job does it. It takes a few statements for any number of jobs, because
// many pauses may end at the same instant.
func (s *Jobs) endPauses(ctx context.Context, tx *pg.Tx, jobs []*held, now time.Time) error {
	if len(jobs) == 0 {
		return nil
	}
	var skips []claim.Skip
	var audited audit.Rows
	for _, h := range jobs {
		until := *h.PausedUntil
		if err := s.settlePause(ctx, tx, h, until, now, &skips); err != nil {
			return err
		}
		h.enter(ctx, h.stateFor(false), now)
		h.Version++
		if until.After(h.UpdatedAt) {
			h.UpdatedAt = until // versions are in order of time, whenever the pauses end
		}
		if err := audited.Add(h.tenant, h.UpdatedAt, h.change(endNote)); err != nil {
			return err
		}
		h.job, h.before = s.compiled(h.jobRow), h.shot()
		if h.dueSoon(now) {
			tx.Wake()
		}
	}
	var b pgx.Batch
	queueResumed(&b, jobs)
	tx.Ask(ChoreDated)
	claim.QueueSkips(&b, skips)
	audited.Queue(audit.WithActor(ctx, audit.Actor{Kind: audit.System}), &b)
	return pg.Wrap("ending pauses", tx.SendBatch(ctx, &b).Close())
}

// settlePause accounts for the slots that passed before the end of a pause. Those of a recurring job become one skip; a
// one-shot fires now, late.
func (s *Jobs) settlePause(
	ctx context.Context, tx *pg.Tx, h *held, until, now time.Time, skips *[]claim.Skip,
) error {
	if h.job == nil || h.scheduledFor == nil || !h.scheduledFor.Before(until) {
		return nil
	}
	if !h.job.Schedule.Kind().Recurring() {
		return s.settlePassed(ctx, tx, h, now, false)
	}
	plan := domain.SkipBefore(domain.Situation{
		Job: h.job, ScheduledFor: *h.scheduledFor, Now: now,
	}, until, domain.ReasonPaused)
	h.passed.add(plan)
	for _, p := range plan.Skips {
		*skips = append(*skips, claim.Skip{Skip: p, Job: h.job, Lane: h.lane, ID: domain.NewRunID(now)})
	}
	h.moveTo(plan.Next, plan.NextRunAt, !plan.Done)
	return nil
}

// queueResumed queues the statements that write jobs whose pause is over.
func queueResumed(b *pgx.Batch, jobs []*held) {
	ids := pg.Column(jobs, (*held).id)
	versions := pg.Column(jobs, func(h *held) int32 { return h.Version })
	states := pg.Column(jobs, func(h *held) string { return string(h.State) })
	from := pg.Column(jobs, func(h *held) time.Time { return h.UpdatedAt })
	b.Queue(`
		UPDATE punctual.jobs j SET version = u.version, state = 'active', updated_at = u.since, paused_at = NULL,
		       paused_until = NULL, paused_by = NULL, pause_note = NULL
		FROM unnest($1::uuid[], $2::int[], $3::timestamptz[]) AS u(job_id, version, since)
		WHERE j.id = u.job_id`,
		ids, versions, from)
	b.Queue(`
		INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition, note, tenant, event)
		SELECT u.job_id, u.version, u.since, u.state, p.definition, $5, p.tenant, p.event
		FROM unnest($1::uuid[], $2::int[], $3::text[], $4::timestamptz[]) AS u(job_id, version, state, since)
		JOIN punctual.job_versions p ON p.job_id = u.job_id AND p.version = u.version - 1`,
		ids, versions, states, from, endNote)
	claim.QueuePlaces(b, pg.Column(jobs, (*held).place)...)
	queueDatedWork(b, ids)
}

const (
	// resumeBatch is how many jobs one transaction resumes.
	resumeBatch = 500
	// resumeTimeout bounds one look for pauses that are over, so that a hanging call does not put off all later ends.
	resumeTimeout = 30 * time.Second
)

// AnyPauseOver is true if a pause is over or about to be.
const AnyPauseOver = `EXISTS (
    SELECT FROM punctual.jobs WHERE state = 'paused' AND paused_until <= now() + ` + claim.BeatSoon + `)`

// EndDuePauses resumes the jobs whose pause is over, as of the instant at which it ended. It returns how long to wait
// before the next pause ends; left is false while none is about to.
func (s *Jobs) EndDuePauses(ctx context.Context) (wait time.Duration, left bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	resumed, wait, err := s.ResumeDue(ctx)
	if resumed > 0 {
		s.options.Log.Info("jobs resumed: their pause is over", "count", resumed)
	}
	return wait, wait > 0, err
}

// ResumeDue returns how many jobs it resumed, and how long until the next pause ends; 0: none is about to. It passes
// over jobs that another replica is resuming.
func (s *Jobs) ResumeDue(ctx context.Context) (resumed int, next time.Duration, err error) {
	for {
		// First outside a transaction: most of the time there is nothing to do.
		var over bool
		var wait *time.Duration
		if err := s.db.Chores.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM punctual.jobs WHERE state = 'paused' AND paused_until <= now()),
			       (SELECT min(paused_until) FROM punctual.jobs
			        WHERE state = 'paused' AND paused_until > now() AND paused_until <= now() + `+claim.BeatSoon+`)
			       - clock_timestamp()`).Scan(&over, &wait); err != nil {
			return resumed, 0, fmt.Errorf("looking for jobs to resume: %w", err)
		}
		n := 0
		if over {
			if n, err = s.resumeSome(ctx); err != nil {
				return resumed, 0, fmt.Errorf("resuming jobs: %w", err)
			}
			resumed += n
		}
		if n < resumeBatch {
			if wait != nil {
				next = max(*wait, time.Millisecond)
			}
			return resumed, next, nil
		}
	}
}

// pausesOver are the jobs whose pause is over.
var pausesOver = aside.Rows{
	Kind: aside.Pause, Table: "jobs", ID: "id", Are: "r.paused_until <= now() AND r.state = 'paused'",
}

func (s *Jobs) resumeSome(ctx context.Context) (n int, err error) {
	over, err := s.aside.Select(ctx, s.db.Chores, pausesOver, `
		SELECT id FROM punctual.jobs
		WHERE paused_until <= now() AND state = 'paused' AND id <> ALL($2::uuid[])
		ORDER BY paused_until LIMIT $1`, resumeBatch)
	if err != nil {
		return 0, err
	}
	err = s.aside.Each(ctx, aside.Pause, over, func(ctx context.Context, jobs []uuid.UUID) error {
		ended := 0
		err := s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			ids, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], `
				SELECT s.job_id FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id
				WHERE j.id = ANY($1::uuid[]) AND j.paused_until <= now() AND j.state = 'paused'
				ORDER BY j.paused_until FOR NO KEY UPDATE OF s SKIP LOCKED`, jobs)
			if err != nil {
				return err
			}
			held, _, err := s.hold(ctx, tx, 0, ids, claim.PassOver) // ends the pauses that are over
			ended = 0
			for _, h := range held { // another transaction may have ended the pause after the selection's snapshot
				if h.paused != nil && h.State != domain.JobPaused {
					ended++
				}
			}
			return err
		})
		if err == nil { // else the same pauses are ended again
			n += ended
		}
		return err
	})
	return n, err
}
