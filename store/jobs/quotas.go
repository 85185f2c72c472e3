package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// rules are the limits on a tenant's jobs, checked when they are written. The zero value has only the limits of
// pg.Everybody.
type rules struct {
	maxJobs     int
	minInterval time.Duration
	limits      []string // the names of its limits
}

// checkLimits blames a definition that names a limit which the tenant does not have.
func (r rules) checkLimits(d jobspec.Definition) error {
	if err := r.knows("limits", d.Limits); err != nil {
		return err
	}
	for i, step := range d.Steps {
		if err := r.knows(fmt.Sprintf("steps[%d].limits", i), step.Limits); err != nil {
			return err
		}
	}
	return nil
}

func (r rules) knows(field string, limits []string) error {
	for i, name := range limits {
		if !slices.Contains(r.limits, name) {
			return jobspec.Blame(fmt.Sprintf("%s[%d]", field, i), "there is no limit %q; create it with PUT /v1/limits/%s%s",
				name, name, jobspec.DidYouMean(name, r.limits...))
		}
	}
	return nil
}

// checkFirst checks what matters only when a job gets a schedule that is new to it. It blames a schedule whose slots
// are too close to each other for the tenant.
func (s *Jobs) checkFirst(job *domain.Job, f facts) error {
	if err := s.definitions.CheckAge(job, f.now); err != nil || f.minInterval == 0 {
		return err
	}
	if gap, at, ok := job.Timetable.Closest(f.now, f.minInterval); ok && gap < f.minInterval {
		return jobspec.Blame("schedule."+string(job.Schedule.Kind()),
			"the slots of %s and %s later are too close: for this tenant, at least %s apart (min_interval)",
			at.UTC().Format(time.RFC3339), gap, f.minInterval)
	}
	return nil
}

// countIn adds n to the tenant's number of active and paused jobs before they are written, or refuses them.
// Other transactions that write jobs of the tenant wait until this one ends. Transactions that delete or complete jobs
// do not wait and do not lower the number. So the number is an upper bound; only if it leaves no room are the jobs
// counted again.
func countIn(ctx context.Context, q pg.Querier, tenant int32, n int, f facts) error {
	if f.maxJobs == 0 || n == 0 {
		return nil
	}
	const raise = `UPDATE punctual.tenant_jobs SET jobs = jobs + $2 WHERE tenant = $1 AND jobs + $2 <= $3 RETURNING true`
	var room bool
	err := q.QueryRow(ctx, raise, tenant, n, f.maxJobs).Scan(&room)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return pg.Wrap("counting jobs in", err)
	}
	have, err := countAnew(ctx, q, tenant)
	if err != nil {
		return err
	}
	if have+n > f.maxJobs {
		return &jobspec.Refusal{Code: "limit", Reason: fmt.Sprintf(
			"the tenant has %d active and paused jobs of at most %d (max_jobs); %d more do not fit", have, f.maxJobs, n)}
	}
	return pg.Wrap("counting jobs in", q.QueryRow(ctx, raise, tenant, n, f.maxJobs).Scan(&room))
}

// countAnew counts a tenant's jobs and stores the number. It takes the lock first, in a statement of its own, so that
// the count sees the jobs of all transactions that held the lock before.
func countAnew(ctx context.Context, q pg.Querier, tenant int32) (have int, err error) {
	var b pgx.Batch
	b.Queue(`INSERT INTO punctual.tenant_jobs (tenant) VALUES ($1) ON CONFLICT DO NOTHING`, tenant)
	b.Queue(`SELECT FROM punctual.tenant_jobs WHERE tenant = $1 FOR NO KEY UPDATE`, tenant)
	b.Queue(`UPDATE punctual.tenant_jobs SET jobs = (`+tenants.LiveJobs+`) WHERE tenant = $1 RETURNING jobs`, tenant).
		QueryRow(pg.IntoPlaces(&have))
	return have, pg.Wrap("counting jobs", q.SendBatch(ctx, &b).Close())
}
