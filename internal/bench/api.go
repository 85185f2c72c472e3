package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/process"
)

// runAPI measures the API of one replica: how many requests a second it answers to many clients.
func runAPI(ctx context.Context, l *lab) {
	replica := l.serve(ctx)
	transport := &http.Transport{MaxIdleConnsPerHost: l.Sizes.APIClients}
	defer transport.CloseIdleConnections()
	api := client.Through(replica.API.URL, transport)
	floor := l.floor(ctx, transport)
	at, first := l.nextSecond(48*time.Hour), 0
	var create, get, createFloor, getFloor []float64
	for round := range l.Rounds {
		l.say("round %d of %d: %d clients", round+1, l.Rounds, l.Sizes.APIClients)
		made, perSecond := l.hammer(ctx, func(ctx context.Context, i int) error {
			return exchange(ctx, api, http.MethodPost, "/v1/jobs", weekdays(at, first+i), http.StatusCreated)
		})
		create = append(create, perSecond)
		_, perSecond = l.hammer(ctx, func(ctx context.Context, i int) error {
			return exchange(ctx, floor, http.MethodPost, "/create", weekdays(at, i), http.StatusCreated)
		})
		createFloor = append(createFloor, perSecond)
		total := first + made
		if n := query[int](ctx, l, `SELECT count(*) FROM punctual.jobs`); n != total {
			l.must(fmt.Errorf("there are %d jobs, want %d", n, total))
		}
		first = total
		_, perSecond = l.hammer(ctx, func(ctx context.Context, i int) error {
			return exchange(ctx, api, http.MethodGet, fmt.Sprint("/v1/jobs/job-", i*7919%total), nil, http.StatusOK)
		})
		get = append(get, perSecond)
		_, perSecond = l.hammer(ctx, func(ctx context.Context, _ int) error {
			return exchange(ctx, floor, http.MethodGet, "/read", nil, http.StatusOK)
		})
		getFloor = append(getFloor, perSecond)
	}
	l.figure(fmt.Sprintf("create a job, %d clients", l.Sizes.APIClients), "requests/s", atLeast(2000), create...)
	l.figure(fmt.Sprintf("get a job, %d clients", l.Sizes.APIClients), "requests/s", atLeast(5000), get...)
	l.figure("create a job, ratio to an INSERT of three rows", "×", atLeast(0.5), ratios(create, createFloor)...)
	l.figure("get a job, ratio to SELECT 1", "×", atLeast(0.5), ratios(get, getFloor)...)
}

// weekdays is a job with a cron expression in a time zone.
func weekdays(at time.Time, i int) process.JobSpec {
	schedule := map[string]any{
		"cron": "0 3 * * mon-fri", "timezone": "Europe/Berlin", "starts_at": at.Format(time.RFC3339),
	}
	return job(fmt.Sprint("job-", i), schedule, "http://127.0.0.1:9/hook", numbered(i))
}

// hammer lets all clients send requests for a while, and returns how many were answered. It ends at the first error.
func (l *lab) hammer(ctx context.Context, send func(ctx context.Context, i int) error) (n int, perSecond float64) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var numbers, done atomic.Int64
	var working sync.WaitGroup
	began := time.Now()
	for range l.Sizes.APIClients {
		working.Go(func() {
			for time.Since(began) < l.Sizes.APIFor && ctx.Err() == nil {
				i := int(numbers.Add(1)) - 1
				if err := send(ctx, i); err != nil {
					cancel(err)
					return
				}
				done.Add(1)
			}
		})
	}
	working.Wait()
	l.must(context.Cause(ctx))
	return int(done.Load()), float64(done.Load()) / time.Since(began).Seconds()
}

// exchange sends a request. An answer with another status than the wanted one is an error.
func exchange(ctx context.Context, api *client.Client, method, path string, in any, want int) error {
	status, err := api.Do(ctx, method, path, in, nil)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s: %d, want %d", method, path, status, want)
	}
	return err
}
