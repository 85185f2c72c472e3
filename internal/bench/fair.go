package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"punctual/internal/process"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
)

// runFair measures how late a tenant's few urgent jobs are when another tenant's many jobs are due just before them.
func runFair(ctx context.Context, l *lab) error {
	replica, to, err := l.setting(ctx)
	if err != nil {
		return err
	}
	tenant, err := query[int32](ctx, l, `INSERT INTO punctual.tenants (name) VALUES ('urgent') RETURNING id`)
	if err != nil {
		return err
	}
	n, urgent := l.Sizes.NoisyJobs, l.Sizes.UrgentJobs
	l.say("%d jobs of one tenant, %d of another", n, urgent)
	noisy := func(try int) string { return fmt.Sprint("/noisy/", try) }
	due, try, err := l.herd(ctx, replica, n, func(due time.Time, try, i int) process.JobSpec {
		return job(fmt.Sprintf("noisy-%d-%d", try, i), oneShot(due), to.url(noisy(try)), numbered(i))
	})
	if err != nil {
		return err
	}
	// Half a second later the worker slots are taken, and the other noisy jobs wait. The urgent jobs are due at instants
	// of their own, so that their runs can be told apart from the noisy ones.
	first := due.Add(500 * time.Millisecond)
	var jobs []process.JobSpec
	const path, apart = "/late/urgent", 50 * time.Millisecond
	for i := range urgent {
		at := first.Add(time.Duration(i) * apart)
		jobs = append(jobs, job(fmt.Sprint("urgent-", i), oneShot(at), to.url(path), nil))
	}
	if err := l.createFor(ctx, tenant, jobs); err != nil {
		return err
	}
	if l.now().After(due) {
		return fmt.Errorf("the urgent jobs were created %s after the noisy ones were due: this machine is too busy",
			l.now().Sub(due).Round(time.Millisecond))
	}
	if err := l.done(ctx, due, due, to, noisy(try), n); err != nil {
		return err
	}
	drained := l.now().Sub(due)
	last := first.Add(time.Duration(urgent-1) * apart)
	if err := l.done(ctx, first, last, to, path, urgent); err != nil {
		return err
	}
	late, err := l.lateness(ctx, to, path, urgent)
	if err != nil {
		return err
	}
	l.figure("urgent jobs, p50", "ms", nil, quantile(late, 0.5))
	l.figure("urgent jobs, p99", "ms", atMost(1000), quantile(late, 0.99))
	l.figure("the noisy tenant meanwhile", "runs/s", nil, float64(n)/drained.Seconds())
	return nil
}

// createFor creates jobs for a tenant other than the API's.
func (l *lab) createFor(ctx context.Context, tenant int32, specs []process.JobSpec) error {
	db, err := store.Open(ctx, store.Options{DatabaseURL: l.db.dsn, MaxConns: 4})
	if err != nil {
		return err
	}
	defer db.Close()
	for len(specs) > 0 {
		batch := make([]jobs.NewJob, min(len(specs), 1000))
		for i := range batch {
			if batch[i].Definition, err = definition(specs[i]); err != nil {
				return err
			}
		}
		if _, err := db.For(tenant).CreateJobs(ctx, batch, jobs.ConflictError); err != nil {
			return err
		}
		specs = specs[len(batch):]
	}
	return nil
}

// definition parses a job as the API does.
func definition(job process.JobSpec) (d domain.Definition, err error) {
	raw, err := json.Marshal(job)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(raw, &d)
}
