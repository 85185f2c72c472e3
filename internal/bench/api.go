package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"punctual/internal/process"
)

// runAPI measures the API of one replica: how many requests a second it answers to many clients.
func runAPI(ctx context.Context, l *lab) error {
	replica, err := l.serve(ctx)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.Sizes.APIClients}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	at, first := l.nextSecond(48*time.Hour), 0
	var create, get []float64
	for round := range l.Rounds {
		l.say("round %d of %d: %d clients", round+1, l.Rounds, l.Sizes.APIClients)
		made, perSecond, err := l.hammer(ctx, func(ctx context.Context, i int) error {
			job, err := json.Marshal(process.JobSpec{
				"name": fmt.Sprint("job-", first+i),
				"schedule": map[string]any{
					"cron":      "0 3 * * mon-fri",
					"timezone":  "Europe/Berlin",
					"starts_at": at.Format(time.RFC3339),
				},
				"target": map[string]any{"url": "http://127.0.0.1:9/hook", "body": map[string]any{"n": i}},
			})
			if err != nil {
				return err
			}
			return exchange(ctx, client, http.MethodPost, http.StatusCreated, replica.API.URL+"/v1/jobs", job)
		})
		if err != nil {
			return err
		}
		create = append(create, perSecond)
		total := first + made
		if n, err := query[int](ctx, l, `SELECT count(*) FROM punctual.jobs`); err != nil {
			return err
		} else if n != total {
			return fmt.Errorf("there are %d jobs, want %d", n, total)
		}
		first = total
		_, perSecond, err = l.hammer(ctx, func(ctx context.Context, i int) error {
			url := fmt.Sprintf("%s/v1/jobs/job-%d", replica.API.URL, i*7919%total)
			return exchange(ctx, client, http.MethodGet, http.StatusOK, url, nil)
		})
		if err != nil {
			return err
		}
		get = append(get, perSecond)
	}
	l.figure(fmt.Sprintf("create a job, %d clients", l.Sizes.APIClients), "requests/s", atLeast(2000), create...)
	l.figure(fmt.Sprintf("get a job, %d clients", l.Sizes.APIClients), "requests/s", atLeast(5000), get...)
	return nil
}

// hammer lets all clients send requests for a while, and returns how many were answered. It ends at the first error.
func (l *lab) hammer(
	ctx context.Context, send func(ctx context.Context, i int) error,
) (n int, perSecond float64, err error) {
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
	return int(done.Load()), float64(done.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

// exchange sends a request. An answer with another status than the wanted one is an error.
func exchange(ctx context.Context, client *http.Client, method string, want int, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, answer)
	}
	return err
}
