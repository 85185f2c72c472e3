package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"punctual/internal/process"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
)

// runFair measures how late a tenant's few urgent jobs are when another tenant's many jobs are due just before them.
func runFair(ctx context.Context, l *lab) {
	replica, to := l.setting(ctx)
	tenant := query[int32](ctx, l, `INSERT INTO punctual.tenants (name) VALUES ('urgent') RETURNING id`)
	n, urgent := l.Sizes.NoisyJobs, l.Sizes.UrgentJobs
	l.say("%d jobs of one tenant, %d of another", n, urgent)
	noisy := func(try int) string { return fmt.Sprint("/noisy/", try) }
	due, try := l.herd(ctx, replica, n, func(due time.Time, try, i int) process.JobSpec {
		return job(fmt.Sprintf("noisy-%d-%d", try, i), oneShot(due), to.url(noisy(try)), numbered(i))
	})
	// Half a second later the worker slots are taken, and the other noisy jobs wait. The urgent jobs are due at instants
	// of their own, so that their runs can be told apart from the noisy ones.
	first := due.Add(500 * time.Millisecond)
	var jobs []process.JobSpec
	const path, apart = "/late/urgent", 50 * time.Millisecond
	for i := range urgent {
		at := first.Add(time.Duration(i) * apart)
		jobs = append(jobs, job(fmt.Sprint("urgent-", i), oneShot(at), to.url(path), nil))
	}
	l.createFor(ctx, tenant, jobs)
	l.inTime("the urgent jobs were created", due, "the noisy ones were due")
	l.done(ctx, due, due, to, noisy(try), n)
	drained := l.now().Sub(due)
	last := first.Add(time.Duration(urgent-1) * apart)
	l.done(ctx, first, last, to, path, urgent)
	late := l.lateness(ctx, to, path, urgent)
	l.figure("urgent jobs, p50", "ms", nil, quantile(late, 0.5))
	l.figure("urgent jobs, p99", "ms", atMost(1000), quantile(late, 0.99))
	l.figure("the noisy tenant meanwhile", "runs/s", nil, float64(n)/drained.Seconds())
}

// createFor creates jobs for a tenant other than the API's.
func (l *lab) createFor(ctx context.Context, tenant int32, specs []process.JobSpec) {
	db, err := store.Open(ctx, store.Options{DatabaseURL: l.db.dsn, MaxConns: 4})
	l.must(err)
	defer db.Close()
	for some := range slices.Chunk(specs, 1000) {
		batch := make([]jobs.NewJob, len(some))
		for i := range batch {
			batch[i].Definition, err = definition(some[i])
			l.must(err)
		}
		_, err := db.For(tenant).CreateJobs(ctx, batch, jobs.ConflictError)
		l.must(err)
	}
}

// definition parses a job as the API does.
func definition(job process.JobSpec) (d jobspec.Definition, err error) {
	raw, err := json.Marshal(job)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(raw, &d)
}
