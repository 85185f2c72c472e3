package jobs

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/runs"
)

// PauseJob stops a job's slots until it is resumed, at the latest at until if that is given. Slots that are due already
// are settled first; runs in flight and their retries go on. Pausing again changes note and until. The error is
// ErrState if no slot is left to pause.
func (s *Jobs) PauseJob(ctx context.Context, tenant int32, ref, note string, until *time.Time) (Record, error) {
	return s.change(ctx, tenant, ref, note, func(
		ctx context.Context, tx *pg.Tx, h *held, now time.Time,
	) (changed bool, err error) {
		return s.pause(ctx, tx, h, now, note, until)
	})
}

// pause pauses a held job.
func (s *Jobs) pause(
	ctx context.Context, tx *pg.Tx, h *held, now time.Time, note string, until *time.Time,
) (changed bool, err error) {
	switch h.State {
	case domain.JobCompleted:
		return false, fmt.Errorf("job %q is completed and has no slot to pause: %w", h.Definition.Name, pg.ErrState)
	case domain.JobPaused:
		if h.PauseNote == note && sameInstant(h.PausedUntil, until) {
			return false, nil
		}
	default:
		if err := s.settleDue(ctx, tx, h, now, false); err != nil {
			return false, err
		}
		if h.ended() {
			return false, fmt.Errorf("job %q: its last slot is due already and cannot be paused: %w",
				h.Definition.Name, pg.ErrState)
		}
		h.enter(ctx, domain.JobPaused, now)
	}
	h.PauseNote, h.PausedUntil, h.PausedBy = note, until, audit.ActorOf(ctx).Words()
	return true, nil
}

// ResumeJob lets a paused job fire again. Slots of a recurring job that passed meanwhile become one recorded skip. A
// one-shot whose time has come fires now, marked late. Resuming an active job does nothing. The error is ErrState if
// the job is completed.
func (s *Jobs) ResumeJob(ctx context.Context, tenant int32, ref, note string) (Record, error) {
	return s.change(ctx, tenant, ref, note, s.resume)
}

// resume lets a held job fire again.
func (s *Jobs) resume(ctx context.Context, tx *pg.Tx, h *held, now time.Time) (changed bool, err error) {
	switch h.State {
	case domain.JobCompleted:
		return false, fmt.Errorf("job %q is completed and cannot be resumed: %w", h.Definition.Name, pg.ErrState)
	case domain.JobActive:
		return false, nil
	}
	if err := s.settlePassed(ctx, tx, h, now, false); err != nil {
		return false, err
	}
	h.enter(ctx, h.stateFor(false), now)
	return true, nil
}

// change holds a job, lets work change it, and writes the job if work changed it.
func (s *Jobs) change(
	ctx context.Context, tenant int32, ref, note string,
	work func(context.Context, *pg.Tx, *held, time.Time) (bool, error),
) (Record, error) {
	return pg.Do(ctx, s.db.Callers.For(tenant), func(tx *pg.Tx) (rec Record, err error) {
		h, f, err := s.holdOne(ctx, tx, tenant, ref)
		if err != nil {
			return rec, err
		}
		changed, err := work(ctx, tx, h, f.now)
		if err == nil && changed {
			err = h.saveNow(ctx, tx, f.now, note)
		}
		if err != nil {
			return rec, err
		}
		return h.record(ctx, tx)
	})
}

// record reads a held job after a change, and what its pause swallowed if that is over now.
func (h *held) record(ctx context.Context, tx *pg.Tx) (rec Record, err error) {
	if rec, err = Read(ctx, tx, h.tenant, h.ID); err == nil && h.paused != nil && h.State != domain.JobPaused {
		rec.SkippedWhilePaused, err = h.swallowed(ctx, tx)
	}
	return rec, err
}

// swallowed are slots that passed while a job was paused.
type swallowed struct {
	first, last time.Time
	count       int  // at most 1,001 of a skip
	uncounted   bool // there are more
}

// add adds the slots that a plan skips.
func (s *swallowed) add(p domain.Plan) {
	for _, skip := range p.Skips {
		s.skip(skip.First, skip.Last, skip.Count)
	}
}

// skip adds a range of slots; count 0: more than 1,000.
func (s *swallowed) skip(first, last time.Time, count int) {
	if s.count == 0 {
		s.first = first
	}
	s.last, s.count, s.uncounted = last, s.count+cmp.Or(count, jobspec.MaxCount+1), s.uncounted || count == 0
}

// slots returns the range of the slots; nil: there are none.
func (s *swallowed) slots() *runs.SkippedRange {
	if s.count == 0 {
		return nil
	}
	all := runs.SkippedRange{First: s.first.UTC(), Last: s.last.UTC()}
	if !s.uncounted {
		all.Count = &s.count
	}
	return &all
}

// swallowed returns the slots that a pause swallowed. An edit of the schedule meanwhile has recorded those before it.
func (h *held) swallowed(ctx context.Context, tx *pg.Tx) (*runs.SkippedRange, error) {
	var all swallowed
	search := days.Search{Index: days.MadeLater, Since: h.paused.Add(-runs.ClockSlack)}
	err := search.Forth(ctx, tx, func(ctx context.Context, q pg.Querier, w days.Window) (enough bool, err error) {
		return false, pg.Each3(pg.Query(ctx, q, `
			SELECT r.skipped_first, r.skipped_last, coalesce(r.skipped_count, 0) FROM punctual.runs r
			WHERE r.job_id = $1 AND r.reason = 'paused' AND r.created_at >= $2 AND `+w.On(`r.id`)+`
			  AND r.skipped_first IS NOT NULL -- those of events and chains stand for no slots
			ORDER BY r.id`, h.ID, *h.paused), all.skip)
	})
	return all.slots(), pg.Wrap("reading what the pause of job "+h.ID.String()+" swallowed", err)
}

func sameInstant(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	// Postgres stores microseconds.
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
