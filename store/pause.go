package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// PauseJob stops a job's slots until it is resumed, at the latest at until where that is given. Slots that
// are due already are settled first, runs in flight and their retries go on. Pausing again changes note
// and until. ErrState when no slot is left to be paused.
func (s *Store) PauseJob(ctx context.Context, tenant int32, ref, note string, until *time.Time) (JobRecord, error) {
	return s.change(ctx, tenant, ref, note, func(ctx context.Context, u *unit, h *held, now time.Time) (changed bool, err error) {
		switch h.State {
		case JobCompleted:
			return false, fmt.Errorf("job %q is completed and has no slot to pause: %w", h.Definition.Name, ErrState)
		case JobPaused:
			if h.PauseNote == note && sameInstant(h.PausedUntil, until) {
				return false, nil
			}
		default:
			if err := s.settleDue(ctx, u, h, now, false); err != nil {
				return false, err
			}
			if h.ended() {
				return false, fmt.Errorf("job %q: its last slot is due already and cannot be paused: %w", h.Definition.Name, ErrState)
			}
			h.enter(JobPaused, now)
		}
		h.PauseNote, h.PausedUntil = note, until
		return true, nil
	})
}

// ResumeJob lets a paused job fire again. Slots of a recurring job that passed meanwhile become one
// recorded skip; a one-shot whose time has come fires now, marked late. Resuming an active job does
// nothing. ErrState when the job is completed.
func (s *Store) ResumeJob(ctx context.Context, tenant int32, ref, note string) (JobRecord, error) {
	return s.change(ctx, tenant, ref, note, func(ctx context.Context, u *unit, h *held, now time.Time) (changed bool, err error) {
		switch h.State {
		case JobCompleted:
			return false, fmt.Errorf("job %q is completed and cannot be resumed: %w", h.Definition.Name, ErrState)
		case JobActive:
			return false, nil
		}
		return true, s.resume(ctx, u, h, now)
	})
}

// change holds a job, lets work change it, and writes it if it was.
func (s *Store) change(ctx context.Context, tenant int32, ref, note string, work func(context.Context, *unit, *held, time.Time) (bool, error)) (JobRecord, error) {
	var rec JobRecord
	err := s.join(ctx, tenant, func(ctx context.Context, u *unit) error {
		h, f, err := s.holdOne(ctx, u, tenant, ref)
		if err != nil {
			return err
		}
		changed, err := work(ctx, u, h, f.now)
		if err != nil {
			return err
		}
		if changed {
			if err := h.saveNow(ctx, u, f.now, note); err != nil {
				return err
			}
		}
		rec, err = readJob(ctx, u, tenant, h.ID)
		return err
	})
	return rec, err
}

func (s *Store) resume(ctx context.Context, u *unit, h *held, now time.Time) error {
	if err := s.settlePassed(ctx, u, h, now, false); err != nil {
		return err
	}
	h.enter(h.stateFor(false), now)
	return nil
}

// resumeBatch is how many jobs one ResumeDue resumes.
const resumeBatch = 100

// ResumeDue resumes the jobs whose paused_until has passed, up to 100 of them, and returns how many.
// Every replica calls it every few seconds; what another is working on is passed over.
func (s *Store) ResumeDue(ctx context.Context) (int, error) {
	ctx = forChores.in(ctx)
	// Outside of a transaction first: most of the time there is nothing to do.
	rows, err := s.conns(ctx).Query(ctx, `
		SELECT id FROM punctual.jobs WHERE paused_until <= now() AND state = 'paused' ORDER BY paused_until LIMIT $1`, resumeBatch)
	if err != nil {
		return 0, fmt.Errorf("looking for jobs to resume: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return 0, fmt.Errorf("looking for jobs to resume: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	n := 0
	err = s.join(ctx, everybody, func(ctx context.Context, u *unit) error {
		jobs, f, err := s.hold(ctx, u, 0, ids, passOver)
		if err != nil {
			return err
		}
		var writes pgx.Batch
		for _, h := range jobs {
			if h.State != JobPaused || h.PausedUntil == nil || h.PausedUntil.After(f.now) {
				continue // changed meanwhile
			}
			if err := s.resume(ctx, u, h, f.now); err != nil {
				return err
			}
			if err := h.save(&writes, u, f.now, "the pause was over"); err != nil {
				return err
			}
			n++
		}
		return send(ctx, u, &writes)
	})
	if err != nil {
		return 0, fmt.Errorf("resuming jobs: %w", err)
	}
	return n, nil
}

func sameInstant(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	// Postgres keeps microseconds.
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
