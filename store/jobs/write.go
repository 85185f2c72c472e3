package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/links"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/seal"
	"punctual/store/tenants"
)

// Writer makes jobs and runs of one tenant.
type Writer struct {
	pg.Writes
	store *Jobs
}

// Writer returns a Writer.
func (s *Jobs) Writer(w pg.Writes) Writer { return Writer{w, s} }

// CreateJob writes a new job. The error is ErrNameTaken if an active or paused job has its name; a completed job does
// not keep its name. A job whose last slot has passed already is completed from the start.
func (w Writer) CreateJob(ctx context.Context, job NewJob) (Record, error) {
	rec, err := w.store.create(ctx, w.Tx, w.Tenant, job)
	return rec, w.store.db.TookWrite(err)
}

// create writes a new job. Without a transaction it begins one if it needs one.
func (s *Jobs) create(ctx context.Context, tx *pg.Tx, tenant int32, job NewJob) (rec Record, err error) {
	q := s.db.Callers.Reader(tenant)
	if tx != nil {
		q = tx
	}
	f, err := readFacts(ctx, q, &pgx.Batch{}, tenant)
	if err != nil {
		return rec, fmt.Errorf("reading queues: %w", err)
	}
	several := f.maxJobs > 0 || job.Definition.HasSecrets() || links.Has(&job.Definition) ||
		len(job.Definition.AllLimits()) > 0
	if tx == nil && several { // statements
		return pg.Do(ctx, s.db.Callers.For(tenant), func(tx *pg.Tx) (Record, error) {
			return s.createOne(ctx, tx, tx, tenant, job, f)
		})
	}
	return s.createOne(ctx, q, tx, tenant, job, f)
}

// createOne writes the job once its facts are known. tx is nil outside a transaction.
func (s *Jobs) createOne(
	ctx context.Context, q pg.Querier, tx *pg.Tx, tenant int32, job NewJob, f facts,
) (rec Record, err error) {
	if job.Definition.HasSecrets() {
		if f.secrets, err = s.secrets.ReadFacts(ctx, tx, tenant, job.Definition); err != nil {
			return rec, err
		}
	}
	if err := resolve(ctx, q, tenant, &job.Definition); err != nil {
		return rec, err
	}
	n, err := s.prepare(ctx, tenant, job, f)
	if err != nil {
		return rec, err
	}
	all := []*fresh{n}
	if err := countIn(ctx, q, tenant, unfinished(all), f); err != nil {
		return rec, err
	}
	taken, due, err := insertReleasing(ctx, q, tenant, all, f.now)
	if err != nil {
		return rec, err
	}
	if len(taken) > 0 {
		return rec, fmt.Errorf("job %q: %w", job.Definition.Name, ErrNameTaken)
	}
	switch {
	case due && tx != nil:
		tx.Wake()
	case due:
		s.db.Wake()
	}
	if err := links.Write(ctx, q, tenant, links.Change{Job: n.ID, Now: n.Definition.Then}); err != nil {
		return rec, err
	}
	one := []Record{n.record()}
	err = showLinks(ctx, q, one)
	return one[0], err
}

// PutJob creates the job with a name, or replaces it; the definition gets that name. It replaces the active or paused
// job that has the name, or else the newest completed one. Without a change nothing is written. A change to any part of
// the definition arms a delay again. A completed job starts again only if its schedule changed, or, for a delay,
// anything: applying the same manifest twice fires nothing twice.
//
// The error is ErrVersion if the job is not at version ifMatch (nil: any) or does not exist; with createOnly, also if
// an active or paused job has the name.
func (s *Jobs) PutJob(
	ctx context.Context, tenant int32, name string, job NewJob, ifMatch *int32, createOnly bool,
) (rec Record, created bool, err error) {
	job.Definition.Name = name
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		for range rounds {
			var done bool
			rec, created, done, err = s.put(ctx, tx, tenant, job, ifMatch, createOnly)
			if done || err != nil {
				return err
			}
		}
		return fmt.Errorf("job %q: %w", name, ErrNameTaken)
	})
	return rec, created, err
}

// put is one round of PutJob. done is false if the name changed hands meanwhile.
func (s *Jobs) put(
	ctx context.Context, tx *pg.Tx, tenant int32, job NewJob, ifMatch *int32, createOnly bool,
) (rec Record, created, done bool, err error) {
	name := job.Definition.Name
	found, err := names.FindAll(ctx, tx, tenant, []string{name})
	if err != nil {
		return rec, false, false, err
	}
	old, exists := found[name]
	if createOnly {
		if old.State.HoldsName() {
			return rec, false, false, fmt.Errorf("job %q exists: %w", name, ErrVersion)
		}
		exists = false
	}
	if !exists {
		if ifMatch != nil {
			return rec, false, false, fmt.Errorf("job %q does not exist: %w", name, ErrVersion)
		}
		rec, err := s.create(ctx, tx, tenant, job)
		if errors.Is(err, ErrNameTaken) {
			return rec, false, false, nil
		}
		return rec, err == nil, true, err
	}
	jobs, f, err := s.hold(ctx, tx, tenant, []uuid.UUID{old.ID}, claim.Wait)
	if err != nil || len(jobs) == 0 || jobs[0].Definition.Name != name {
		return rec, false, false, err
	}
	h := jobs[0]
	if err := h.match(ifMatch); err != nil {
		return rec, false, false, err
	}
	rec, err = s.replace(ctx, tx, h, job, f, true)
	return rec, false, true, err
}

// EditJob changes a job: it locks the job, lets edit turn the current record into the new job, and writes that. Errors
// of edit are returned as they are. Without a change nothing is written. A completed job whose schedule changes starts
// again; the error is ErrNameTaken if another job has its name by now. The error is ErrVersion if the job is not at
// version ifMatch (nil: any).
func (s *Jobs) EditJob(
	ctx context.Context, tenant int32, ref string, ifMatch *int32, edit func(Record) (NewJob, error),
) (Record, error) {
	return s.edit(ctx, tenant, ref, ifMatch, func(_ *pg.Tx, h *held) (NewJob, error) { return edit(h.Record) })
}

// edit is EditJob with an edit that may read in the transaction.
func (s *Jobs) edit(
	ctx context.Context, tenant int32, ref string, ifMatch *int32, edit func(*pg.Tx, *held) (NewJob, error),
) (Record, error) {
	return pg.Do(ctx, s.db.Callers.For(tenant), func(tx *pg.Tx) (rec Record, err error) {
		h, f, err := s.holdOne(ctx, tx, tenant, ref)
		if err != nil {
			return rec, err
		}
		if err := h.match(ifMatch); err != nil {
			return rec, err
		}
		job, err := edit(tx, h)
		if err != nil {
			return rec, err
		}
		return s.replace(ctx, tx, h, job, f, false)
	})
}

// match returns ErrVersion if the job is at another version than the caller expects.
func (h *held) match(version *int32) error {
	if version != nil && *version != h.Version {
		return fmt.Errorf("job %q is at version %d, not %d: %w", h.Definition.Name, h.Version, *version, ErrVersion)
	}
	return nil
}

// replace rewrites one held job and returns its new record.
func (s *Jobs) replace(ctx context.Context, tx *pg.Tx, h *held, job NewJob, f facts, put bool) (Record, error) {
	change, err := s.rewrite(ctx, tx, h, job, f, put)
	if err != nil {
		return Record{}, err
	}
	if change != nil {
		if err := h.saveNow(ctx, tx, f.now, ""); err != nil {
			return Record{}, fmt.Errorf("job %q: %w", job.Definition.Name, err)
		}
		if err := links.Write(ctx, tx, h.tenant, *change); err != nil {
			return Record{}, err
		}
	}
	return h.record(ctx, tx)
}

// rewrite gives a held job a new definition and settles what is due under the old one. The caller saves the job and its
// links if it changed; otherwise the change is nil. Only a new schedule or jitter moves the next slot. put says that
// the request writes the whole job and not a part of it.
func (s *Jobs) rewrite(
	ctx context.Context, tx *pg.Tx, h *held, job NewJob, f facts, put bool,
) (changed *links.Change, err error) {
	if err := resolve(ctx, tx, h.tenant, &job.Definition); err != nil {
		return nil, err
	}
	if job.Definition.HasSecrets() {
		if err := s.keepSecrets(ctx, tx, h, &job.Definition, &f); err != nil {
			return nil, err
		}
	}
	old, state, now := h.Definition, h.State, f.now
	is := s.changeOf(h, job, put)
	if is.same && is.paused == (h.State == domain.JobPaused) {
		return nil, nil //nolint:nilnil // it has not changed
	}
	if is.same {
		job.Definition = old // word for word, so that the history shows that only the state changed
	}
	next := held{jobRow: &jobRow{Record: Record{ID: h.ID, Version: h.Version + 1}, tenant: h.tenant}}
	if err := next.define(s, job.Definition, f); err != nil {
		return nil, err
	}
	switch {
	case is.same:
		next.definition = h.definition
	case h.unopened != nil && strings.Contains(next.definition, seal.Unopened):
		return nil, fmt.Errorf("job %q: give its body again: %w: %w", h.Definition.Name, h.unopened, pg.ErrState)
	}
	if is.moved {
		if err := s.checkFirst(next.job, f); err != nil {
			return nil, err
		}
	}
	switch {
	case h.State == domain.JobActive:
		err = s.settleDue(ctx, tx, h, now, is.moved || is.jitter)
	case h.State == domain.JobPaused && (is.moved || !is.paused):
		err = s.settlePassed(ctx, tx, h, now, is.moved)
	}
	if err != nil {
		return nil, err
	}
	if err := h.changeGate(ctx, tx, next.Definition); err != nil {
		return nil, err
	}
	h.Definition, h.definition, h.job, h.lane = next.Definition, next.definition, next.job, next.lane
	h.hidden = next.hidden
	switch {
	case is.moved:
		h.placeFirst(now)
	case is.jitter && h.scheduledFor != nil:
		h.moveTo(*h.scheduledFor, h.job.Timetable.Due(*h.scheduledFor, nil), true)
	}
	h.enter(ctx, h.stateFor(is.paused), now)
	revived := state == domain.JobCompleted && h.State != domain.JobCompleted
	if revived {
		if err := tenants.KeepTenant(ctx, tx, h.tenant); err != nil {
			return nil, err
		}
		if err := countIn(ctx, tx, h.tenant, 1, f); err != nil {
			return nil, err
		}
	}
	if revived || old.Name != h.Definition.Name {
		_, err = releaseNames(ctx, tx, h.tenant, []string{h.Definition.Name}, claim.PassOver)
	}
	return &links.Change{Job: h.ID, Was: old.Then, Now: h.Definition.Then}, err
}

// change is what a new definition of a held job means.
type change struct {
	same   bool // nothing but the state may change
	moved  bool // the schedule is another one, or a delay begins anew
	jitter bool // only the jitter of the same slots is another one
	paused bool // the job is to be paused
}

func (s *Jobs) changeOf(h *held, job NewJob, put bool) change {
	completed := h.State == domain.JobCompleted
	is := change{same: s.sameDefinition(h.Definition, job.Definition), paused: h.State == domain.JobPaused}
	if job.Paused != nil && !completed {
		is.paused = *job.Paused
	}
	if is.same {
		return is
	}
	rearm := job.Definition.Schedule.Kind() == jobspec.KindDelay && (put || !completed)
	is.moved = rearm || !jobspec.SameSchedule(h.Definition.Schedule, job.Definition.Schedule)
	if is.moved && completed {
		is.paused = job.Paused != nil && *job.Paused
	}
	jitter := func(d jobspec.Definition) time.Duration { return d.EffectiveJitter(s.options.DefaultJitter).Value() }
	is.jitter = !is.moved && jitter(h.Definition) != jitter(job.Definition)
	return is
}

// keepSecrets completes a definition with the secrets of the old one that it does not name anew, and reads the facts of
// secrets unless they were read.
func (s *Jobs) keepSecrets(ctx context.Context, tx *pg.Tx, h *held, d *jobspec.Definition, f *facts) (err error) {
	if *d, err = s.secrets.KeepSecrets(ctx, tx, h.tenant, h.ID, h.Definition, *d); err != nil || f.secrets.Read() {
		return err
	}
	f.secrets, err = s.secrets.ReadFacts(ctx, tx, h.tenant, *d)
	return err
}

// changeGate opens or closes the gate of a job for which overlap becomes allowed, or forbidden.
func (h *held) changeGate(ctx context.Context, tx *pg.Tx, next jobspec.Definition) (err error) {
	switch was, is := claim.Gated(h.Definition), claim.Gated(next); {
	case was && !is:
		h.gate = opens
		err = claim.OpenGate(ctx, tx, h.ID)
	case is && !was:
		h.gate = closes
		err = pg.Exec(ctx, tx, `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`, h.ID)
	}
	return pg.Wrap(fmt.Sprintf("changing the gate of job %s", h.ID), err)
}
