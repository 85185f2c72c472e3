package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

var logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// measure inserts the jobs, and then works them. They are available when the client starts. Jobs scheduled for an
// instant would cost River one more update each, and up to five seconds, because its scheduler looks every five
// seconds.
func measure(ctx context.Context, pool *pgxpool.Pool, o options) (figures, error) {
	h := newWorker(o.jobs)
	workers := river.NewWorkers()
	river.AddWorker(workers, h)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema: schema, Logger: logger, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.workers}},
		// With the default of 100 ms, River could do no more than ten fetches of 256 a second. Free worker slots and the next
		// answer trigger a fetch, so polling matters only when there is nothing to do.
		FetchCooldown: o.cooldown, FetchPollInterval: max(o.cooldown, 100*time.Millisecond),
	})
	if err != nil {
		return figures{}, err
	}
	if err := insert(ctx, pool, client, o); err != nil {
		return figures{}, err
	}
	cpu, began := used(), time.Now()
	if err := client.Start(ctx); err != nil {
		return figures{}, err
	}
	select {
	case <-h.done:
	case err := <-h.failed:
		return figures{}, errors.Join(fmt.Errorf("a request failed: %w", err), client.StopAndCancel(ctx))
	case <-ctx.Done():
		return figures{}, errors.Join(ctx.Err(), client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	// Stopping writes the last completions at once. Otherwise they would wait for up to a quarter of a second.
	stopped := make(chan error, 1)
	go func() { stopped <- client.Stop(ctx) }()
	err = completed(ctx, pool)
	took := time.Since(began)
	cpu = used() - cpu
	if err := errors.Join(err, <-stopped, check(ctx, pool, o.jobs)); err != nil {
		return figures{}, err
	}
	return figures{o.jobs, o.workers, took.Seconds(), float64(o.jobs) / took.Seconds(), cpu.Seconds()}, nil
}

// insert writes the jobs by COPY, and then runs ANALYZE for the planner, as autovacuum would.
func insert(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx], o options) error {
	const batch = 5_000
	body := json.RawMessage(`{"range":"yesterday","kind":"invoices"}`)
	for first := 0; first < o.jobs; first += batch {
		many := make([]river.InsertManyParams, min(batch, o.jobs-first))
		for i := range many {
			many[i].Args = callback{Name: fmt.Sprintf("burst-1-%d", first+i), URL: o.target, Body: body}
		}
		if _, err := client.InsertManyFast(ctx, many); err != nil {
			return fmt.Errorf("inserting jobs: %w", err)
		}
	}
	_, err := pool.Exec(ctx, `VACUUM (ANALYZE) `+schema+`.river_job`)
	return err
}

// completed waits until no job is left. The query is cheap, because the state is the first column of River's index for
// fetching.
func completed(ctx context.Context, pool *pgxpool.Pool) error {
	const sql = `SELECT NOT EXISTS (SELECT FROM ` + schema +
		`.river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))`
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	for {
		var done bool
		if err := pool.QueryRow(ctx, sql).Scan(&done); err != nil || done {
			return err
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check counts the completed jobs, so that a failed measurement yields no figure.
func check(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
	var n int
	err := pool.QueryRow(ctx,
		`SELECT count(*) FROM `+schema+`.river_job WHERE state = 'completed' AND attempt = 1`).Scan(&n)
	if err == nil && n != jobs {
		err = fmt.Errorf("%d jobs were completed at the first attempt, want %d", n, jobs)
	}
	return err
}

// used returns the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
