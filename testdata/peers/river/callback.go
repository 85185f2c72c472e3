package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/riverqueue/river"
)

// callback holds the arguments of a River job: the same data as a job definition of Punctual.
type callback struct {
	Name string          `json:"name"`
	URL  string          `json:"url"`
	Body json.RawMessage `json:"body"`
}

// Kind implements river.JobArgs.
func (callback) Kind() string { return "callback" }

// worker posts the callbacks. River's own timeout bounds each one, so the client sets none.
type worker struct {
	river.WorkerDefaults[callback]
	transport *http.Transport
}

// newWorker configures net/http as Punctual's bare loop does: keep-alive, HTTP/1.1, no proxy, no compression.
func newWorker() *worker {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &worker{transport: &http.Transport{
		MaxIdleConnsPerHost: 1 << 15, Protocols: &protocols, DisableCompression: true, IdleConnTimeout: time.Minute,
	}}
}

// Work implements river.Worker: it sends the request and reads the answer to its end.
func (w *worker) Work(ctx context.Context, job *river.Job[callback]) error {
	to, err := url.Parse(job.Args.URL)
	if err != nil {
		return err
	}
	request := (&http.Request{
		Method: http.MethodPost, URL: to, Header: header(job),
		Body: io.NopCloser(bytes.NewReader(job.Args.Body)), ContentLength: int64(len(job.Args.Body)),
	}).WithContext(ctx)
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the target answered %s", response.Status)
	}
	return nil
}

// header returns as many headers as an attempt of Punctual has, with values of the same length.
func header(job *river.Job[callback]) http.Header {
	number := strconv.FormatInt(job.ID, 10)
	id := "00000000-0000-8000-8000-000000000000"
	id = id[:len(id)-len(number)] + number
	return http.Header{
		"Content-Type":           {"application/json"},
		"User-Agent":             {"punctual/bench"},
		"Webhook-Id":             {id},
		"Idempotency-Key":        {id + ":" + strconv.FormatInt(job.ScheduledAt.Unix(), 10)},
		"Punctual-Job":           {job.Args.Name},
		"Punctual-Run":           {id},
		"Punctual-Attempt":       {strconv.Itoa(job.Attempt)},
		"Punctual-Trigger":       {"schedule"},
		"Punctual-Scheduled-For": {job.ScheduledAt.UTC().Format(time.RFC3339Nano)},
		"Punctual-Fencing-Token": {number},
	}
}
