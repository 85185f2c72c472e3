package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/links"
	"punctual/store/pg"
)

// Action is what is done to many jobs.
type Action string

// The actions on many jobs.
const (
	PauseMany  Action = "pause"
	ResumeMany Action = "resume"
	DeleteMany Action = "delete"
)

// Change is what is to be done to all jobs that a filter selects.
type Change struct {
	Action Action
	Filter Filter // its Page is ignored
	Note   string
	Until  *time.Time // of a pause: when its jobs resume by themselves; nil: when a caller resumes them
}

// Selected returns the statement that finds the ids of the jobs that the change is about. A completed job has no slot
// to pause, so a pause and a resume are not about completed jobs.
func (c Change) Selected(tenant int32) (sql string, args []any, err error) {
	var conditions pg.Conditions
	if err := c.Filter.conditions(&conditions, tenant); err != nil {
		return "", nil, err
	}
	unended := c.Action != DeleteMany
	if unended {
		conditions.Add(`punctual.job_state(j, s) <> 'completed'`)
	}
	return `SELECT j.id FROM ` + c.Filter.tables(unended) + conditions.Where(), conditions.Args, nil
}

// many is a change of many jobs on its way through a transaction.
type many struct {
	*Jobs
	Change
	tx      *pg.Tx
	now     time.Time
	writes  saves
	results map[uuid.UUID]error
}

// ChangeMany changes some of the jobs that a change was about when it was asked for. It returns a result for each job:
// nil if the job is as was asked for, or else why it is not. A job that was so already stays as it is. So does a job
// that no longer matches the filter. A job that another transaction has locked has no result. passed is how many slots
// the pauses that it ended had swallowed; of more than 1,000 of a job it counts 1,001.
func (s *Jobs) ChangeMany(
	ctx context.Context, tx *pg.Tx, tenant int32, ids []uuid.UUID, c Change,
) (results map[uuid.UUID]error, passed int, err error) {
	m := many{Jobs: s, Change: c, tx: tx, results: make(map[uuid.UUID]error, len(ids))}
	jobs, f, err := s.hold(ctx, tx, tenant, slices.Clone(ids), claim.PassOver)
	if err != nil {
		return nil, 0, err
	}
	m.now = f.now
	others := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		return slices.ContainsFunc(jobs, func(h *held) bool { return h.ID == id })
	})
	if err := m.findDeleted(ctx, tenant, others); err != nil {
		return nil, 0, err
	}
	if jobs, err = m.lock(ctx, jobs); err != nil {
		return nil, 0, err
	}
	matching, err := m.matching(ctx, tenant, pg.Column(jobs, (*held).id))
	if err != nil {
		return nil, 0, err
	}
	needed, err := m.findNeeded(ctx, tenant, jobs)
	if err != nil {
		return nil, 0, err
	}
	var ended []uuid.UUID
	for _, h := range jobs {
		if by := needed[h.ID]; len(by) > 0 {
			m.results[h.ID] = links.Needed(h.Definition.Name, by)
			continue
		}
		changed, err := m.work(ctx, h, slices.Contains(matching, h.ID))
		if err != nil && !errors.Is(err, pg.ErrState) {
			return nil, 0, err
		}
		m.results[h.ID] = err
		if c.Action == ResumeMany {
			passed += h.passed.count
		}
		if changed && h.State == domain.JobDeleted {
			ended = append(ended, h.ID)
		}
	}
	if err := m.writes.send(ctx, tx); err != nil {
		return nil, 0, err
	}
	return m.results, passed, s.cancelWaiting(ctx, tx, ended)
}

// findDeleted gives results to jobs that exist no more.
func (m *many) findDeleted(ctx context.Context, tenant int32, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	rows := pg.Query(ctx, m.tx, `
		SELECT u.id, coalesce(j.name, u.id::text)
		FROM unnest($1::uuid[]) u(id) LEFT JOIN punctual.jobs j ON j.id = u.id AND j.tenant = $2
		WHERE j.id IS NULL OR j.state = 'deleted'`, ids, tenant)
	err := pg.Each2(rows, func(id uuid.UUID, name string) {
		m.results[id] = nil
		if m.Action != DeleteMany {
			m.results[id] = fmt.Errorf("job %q was deleted: %w", name, pg.ErrState)
		}
	})
	return pg.Wrap("looking for deleted jobs", err)
}

// lock locks what a change of held jobs writes besides their schedules, and leaves out jobs of which another
// transaction has locked a part. What is locked here is locked in the order of all transactions. So a change waits for
// no other one that has begun the same way, however many jobs both have.
//
// Of a bare job nothing has been locked until now. So it is left out if it has changed since it was read, and its row
// is locked against a transaction that is about to change it.
func (m *many) lock(ctx context.Context, jobs []*held) ([]*held, error) {
	busy, err := claim.LockGates(ctx, m.tx, pg.Column(jobs, (*held).id))
	if err != nil {
		return nil, err
	}
	var ids, bare, free []uuid.UUID
	var versions []int32
	for _, h := range jobs {
		switch {
		case slices.Contains(busy, h.ID):
		case h.bare:
			bare, versions = append(bare, h.ID), append(versions, h.Version)
		default:
			ids = append(ids, h.ID)
		}
	}
	for _, lock := range []struct {
		sql  string
		args []any
	}{
		{`SELECT id FROM punctual.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`, []any{ids}},
		{lockBare, []any{bare, versions}},
	} {
		locked, err := pg.All(ctx, m.tx, pgx.RowTo[uuid.UUID], lock.sql, lock.args...)
		if err != nil {
			return nil, fmt.Errorf("locking jobs: %w", err)
		}
		free = append(free, locked...)
	}
	return slices.DeleteFunc(jobs, func(h *held) bool { return !slices.Contains(free, h.ID) }), nil
}

// matching returns which of the jobs match the filter now.
func (m *many) matching(ctx context.Context, tenant int32, jobs []uuid.UUID) ([]uuid.UUID, error) {
	var c pg.Conditions
	c.Add(`j.id = ANY(?::uuid[])`, jobs)
	if err := m.Filter.conditions(&c, tenant); err != nil {
		return nil, err
	}
	matching, err := pg.All(ctx, m.tx, pgx.RowTo[uuid.UUID],
		`SELECT j.id FROM `+m.Filter.tables(false)+c.Where(), c.Args...)
	return matching, pg.Wrap("looking which jobs match", err)
}

// work changes one job. The error is ErrState if the job's state does not allow it.
func (m *many) work(ctx context.Context, h *held, matches bool) (changed bool, err error) {
	switch {
	case m.Action == PauseMany && h.State == domain.JobPaused, m.Action == ResumeMany && h.State == domain.JobActive:
		return false, nil
	case !matches:
		return false, fmt.Errorf("job %q no longer matches the filter: %w", h.Definition.Name, pg.ErrState)
	}
	switch m.Action {
	case PauseMany:
		err = m.pauseOne(ctx, h)
	case ResumeMany:
		_, err = m.resume(ctx, m.tx, h, m.now)
	case DeleteMany:
		err = m.end(ctx, m.tx, h, m.now)
	}
	if err != nil {
		return false, err
	}
	return true, h.save(&m.writes, m.now, m.Note)
}

func (m *many) pauseOne(ctx context.Context, h *held) error {
	if m.Until != nil && !m.Until.After(m.now) {
		return fmt.Errorf("job %q: its pause would be over already: %w", h.Definition.Name, pg.ErrState)
	}
	pause := func(tx *pg.Tx) error {
		_, err := m.pause(ctx, tx, h, m.now, m.Note, m.Until)
		return err
	}
	if h.job == nil || !h.due(m.now, false) {
		return pause(m.tx)
	}
	// It settles what is due before it may find that no slot is left to pause. Then that is undone.
	return m.tx.Try(ctx, pause)
}
