package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// work works jobs until ctx ends.
func work(ctx context.Context, pool *pgxpool.Pool, o options) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, newWorker())
	config := &river.Config{
		Schema: o.schema, Logger: logger, Workers: workers, PeriodicJobs: crons(o),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.slots}},
	}
	if o.tuned {
		// With the default of 100 ms, River could do no more than ten fetches a second. Free worker slots and the next
		// answer trigger a fetch, so polling matters only when there is nothing to do.
		config.FetchCooldown, config.FetchPollInterval = time.Millisecond, 100*time.Millisecond
		config.JobTimeout, config.RescueStuckJobsAfter = 10*time.Second, 15*time.Second
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return client.StopAndCancel(stopping)
}

// crons returns River's recurring jobs: each fires at every whole minute.
func crons(o options) (jobs []*river.PeriodicJob) {
	for i := range o.crons {
		jobs = append(jobs, river.NewPeriodicJob(everyMinute{}, func() (river.JobArgs, *river.InsertOpts) {
			return newCallback(fmt.Sprintf("cron-%d", i), o.target), nil
		}, nil))
	}
	return jobs
}

type everyMinute struct{}

// Next implements river.PeriodicSchedule.
func (everyMinute) Next(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }
