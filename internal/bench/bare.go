package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"punctual/internal/process"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

const burstBody = `{"range":"yesterday","kind":"invoices"}`

// BareConfig says how many requests the bare loop posts, how many at a time, where to, and with which client.
type BareConfig struct {
	URL      string
	Requests int
	Slots    int  // how many at a time
	Own      bool // the client of a replica, in place of net/http
	Version  string
}

// bareResult is the line of JSON that the bare loop writes.
type bareResult struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // processor time of the loop's process, in seconds
}

// A poster posts the i-th request of the bare loop. The loop began at a time.
type poster func(ctx context.Context, i int, began time.Time) error

// Bare posts the same requests as a replica, but without a database. It runs in a process of its own, and writes how
// long that took.
func Bare(ctx context.Context, c BareConfig) error {
	where, err := url.Parse(c.URL)
	if err != nil {
		return err
	}
	post, done := plain(where, c.Version)
	if c.Own {
		post, done = own(where, c.Version)
	}
	defer done()
	numbers := make(chan int, c.Slots)
	var failure atomic.Pointer[error]
	var working sync.WaitGroup
	began, used := time.Now(), ownCPU()
	for range c.Slots {
		working.Go(func() {
			for i := range numbers {
				if err := post(ctx, i, began); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	for i := range c.Requests {
		numbers <- i
	}
	close(numbers)
	working.Wait()
	result := bareResult{Seconds: time.Since(began).Seconds(), CPU: (ownCPU() - used).Seconds()}
	if failed := failure.Load(); failed != nil {
		return fmt.Errorf("a bare request failed: %w", *failed)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// plain posts with net/http, as the peer of River does (testdata/peers/river): keep-alive, HTTP/1.1, no proxy, no
// compression. It is what figures are compared with over the years, so it stays as it is.
func plain(where *url.URL, version string) (post poster, done func()) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		MaxIdleConnsPerHost: 1 << 15, Protocols: &protocols, DisableCompression: true, IdleConnTimeout: time.Minute,
	}
	return func(ctx context.Context, i int, began time.Time) error {
		header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"punctual/" + version}}
		for _, h := range attemptHeaders(i, began) {
			header[h.Name] = []string{h.Value}
		}
		response, err := transport.RoundTrip((&http.Request{
			Method: http.MethodPost, URL: where, Header: header,
			Body: io.NopCloser(strings.NewReader(burstBody)), ContentLength: int64(len(burstBody)),
		}).WithContext(ctx))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode/100 != 2 {
			return errors.New("the target answered " + response.Status)
		}
		return nil
	}, transport.CloseIdleConnections
}

// own posts with the client of a replica.
func own(where *url.URL, version string) (post poster, done func()) {
	client := delivery.New(delivery.Config{UserAgent: "punctual/" + version, Guard: guard.New(guard.Loopback)})
	header := http.Header{"Content-Type": {"application/json"}}
	return func(ctx context.Context, i int, began time.Time) error {
		r := client.Send(ctx, wire.Request{
			Method:  "POST",
			URL:     where,
			Header:  header,
			Body:    []byte(burstBody),
			Timeout: 30 * time.Second,
			Extra:   attemptHeaders(i, began),
		})
		if !r.OK() {
			return errors.New(r.Error)
		}
		return nil
	}, client.Close
}

// attemptHeaders are headers like those of every attempt.
func attemptHeaders(i int, at time.Time) []wire.Header {
	id := uuid.New().String()
	return []wire.Header{
		{Name: "Webhook-Id", Value: id},
		{Name: "Idempotency-Key", Value: id + ":" + strconv.FormatInt(at.Unix(), 10)},
		{Name: "Punctual-Job", Value: "burst-1-" + strconv.Itoa(i)},
		{Name: "Punctual-Run", Value: id},
		{Name: "Punctual-Attempt", Value: "1"},
		{Name: "Punctual-Trigger", Value: "schedule"},
		{Name: "Punctual-Scheduled-For", Value: at.UTC().Format(time.RFC3339Nano)},
		{Name: "Punctual-Fencing-Token", Value: strconv.Itoa(i)},
	}
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// bare runs the bare loop against a path of the target, and checks that every request arrived. Flags choose its client.
func (l *lab) bare(ctx context.Context, to *target, path string, flags ...string) bareResult {
	return l.bareTogether(ctx, to, path, 1, flags...)[0]
}

// bareTogether does the same with several loops at once, which share the requests and the slots.
func (l *lab) bareTogether(ctx context.Context, to *target, path string, loops int, flags ...string) []bareResult {
	each := l.Sizes.BurstJobs / loops
	var running []*process.Process
	for range loops {
		running = append(running, l.launch(append([]string{
			bareHelper, "--url=" + to.url(path), fmt.Sprintf("--requests=%d", each),
			fmt.Sprintf("--slots=%d", max(1, l.Sizes.Slots/loops)),
		}, flags...)...))
	}
	results := make([]bareResult, loops)
	for i, p := range running {
		code, err := p.Wait(ctx)
		l.must(err)
		if err := json.Unmarshal([]byte(p.Output()), &results[i]); code != 0 || err != nil {
			l.must(fmt.Errorf("the bare loop: exit code %d; it said:\n%s", code, p.Output()))
		}
	}
	a, err := to.of(ctx, path)
	l.must(err)
	if want := each * loops; a.Count != want {
		l.must(fmt.Errorf("the bare loop: %d requests arrived, want %d", a.Count, want))
	}
	return results
}
