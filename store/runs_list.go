package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// clockSlack is how far a run's id may lie before its slot: a skip carries the time its transaction
// began, and after a failover the database's clock may be another one.
const clockSlack = time.Hour

// ListRuns returns the runs and skips that the filter selects, newest first by id, and the cursor of the
// next page, empty on the last one.
func (s *Store) ListRuns(ctx context.Context, tenant int32, f RunFilter) (runs []RunRecord, nextCursor string, err error) {
	var c conditions
	q := s.reader(ctx, tenant)
	c.add(`r.tenant = ?`, tenant)
	if err := c.page(f.Page, runCursor, `r.id < ?`); err != nil {
		return nil, "", err
	}
	if f.Job != "" {
		job, err := findJob(ctx, q, tenant, f.Job)
		if err != nil {
			return nil, "", err
		}
		// An id is not looked up by findJob, and only jobs that are there may be asked for by it.
		c.add(`r.job_id = ? AND j.state <> 'deleted'`, job)
	}
	if f.JobID != nil {
		c.add(`r.job_id = ?`, *f.JobID)
	}
	if f.Status != "" {
		c.add(`r.status = ?`, f.Status)
	}
	if f.Reason != "" {
		c.add(`r.reason = ?`, f.Reason)
	}
	if f.Trigger != "" {
		c.add(`r.trigger = ?`, f.Trigger)
	} else {
		c.add(`NOT ` + isNotice) // which are no runs of their jobs
	}
	if f.Late != nil {
		c.add(`r.late = ?`, *f.Late)
	}
	if err := c.labels(f.Labels); err != nil {
		return nil, "", err
	}
	if f.From != nil {
		// A slot's run has its slot's time in its id, everything else that of its creation, which is later:
		// so ids have a lower bound, which prunes partitions, and no upper one.
		c.add(`r.id >= ?`, firstRunID(f.From.Add(-clockSlack)))
		c.add(`coalesce(r.skipped_last, r.scheduled_for) >= ?`, *f.From)
	}
	if f.To != nil {
		c.add(`coalesce(r.skipped_first, r.scheduled_for) < ?`, *f.To)
	}
	if len(f.Labels) > 0 {
		if err := c.candidates(ctx, s, `r.tenant`, tenant, `r.id`, runTables, f.Page); err != nil {
			return nil, "", fmt.Errorf("listing runs: %w", err)
		}
	}
	runs, err = queryRuns(ctx, q, c.where()+fmt.Sprintf(` ORDER BY r.id DESC LIMIT %d`, f.limit()+1), c.args...)
	if err != nil {
		return nil, "", err
	}
	runs, nextCursor = cut(runs, f.Page, runCursor, func(r RunRecord) uuid.UUID { return r.ID })
	return runs, nextCursor, nil
}

// firstRunID returns the lowest id that a run of the given time can have.
func firstRunID(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := uint64(max(0, t.UnixMilli()))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
