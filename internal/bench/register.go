package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"punctual/internal/process"
)

// registerClients is how many clients send batches at the same time.
const registerClients = 4

// runRegister measures how fast jobs are created in batches of 1,000, and what a job costs Postgres.
func runRegister(ctx context.Context, l *lab) {
	replica := l.serve(ctx)
	n := l.Sizes.RegisterAll
	l.say("%d jobs by %d clients", n, registerClients)
	clients, going := errgroup.WithContext(ctx)
	clients.SetLimit(registerClients)
	began, used, written := time.Now(), cpu(l.db.postmaster), l.wal(ctx)
	for first := 0; first < n && going.Err() == nil; first += 1000 {
		clients.Go(func() error {
			return process.Create(going, replica.API, l.registered(first, min(first+1000, n)))
		})
	}
	err := clients.Wait()
	took := time.Since(began)
	used, written = cpu(l.db.postmaster)-used, l.wal(ctx)-written
	l.must(err)
	made := query[int](ctx, l, `
		SELECT count(*)
		FROM punctual.jobs j
		JOIN punctual.schedules s ON s.job_id = j.id
		WHERE j.state = 'active' AND s.enabled`)
	if made != n {
		l.must(fmt.Errorf("there are %d jobs, want %d", made, n))
	}
	l.figure(fmt.Sprintf("%d jobs, 1,000 in a batch, %d clients", n, registerClients), "jobs/s", nil,
		float64(n)/took.Seconds())
	l.cpuFigure("batch create, CPU of Postgres", "µs/job", atMost(80), 1e6*used/float64(n))
	l.figure("batch create, WAL", "bytes/job", nil, written/float64(n))
}

// registered returns the jobs from..until-1: daily ones, spread over the minutes of the day.
func (l *lab) registered(from, until int) []process.JobSpec {
	at := l.nextSecond(48 * time.Hour).Format(time.RFC3339)
	jobs := make([]process.JobSpec, 0, until-from)
	for i := from; i < until; i++ {
		jobs = append(jobs, process.JobSpec{
			"name": fmt.Sprint("registered-", i), "labels": map[string]any{"team": fmt.Sprint("team-", i%100)},
			"schedule": map[string]any{"cron": fmt.Sprintf("%d %d * * *", i%60, i/60%24), "starts_at": at},
			"target":   map[string]any{"url": "http://127.0.0.1:9/hook", "body": map[string]any{"customer": i}},
		})
	}
	return jobs
}
