package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
)

const burstBody = `{"range":"yesterday","kind":"invoices"}`

// BareConfig says how many requests the bare loop posts, how many at a time, and where to.
type BareConfig struct {
	URL      string `required:"" help:"Where to post to."`
	Requests int    `required:"" help:"How many."`
	Slots    int    `required:"" help:"How many at a time."`
	Version  string `kong:"-"`
}

// bareResult is the line of JSON that the bare loop writes.
type bareResult struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // processor time of the loop's process, in seconds
}

// Bare posts the same requests as a replica, with the client of a replica, but without a database. It runs in a process
// of its own, and writes how long that took.
func Bare(ctx context.Context, c BareConfig) error {
	where, err := url.Parse(c.URL)
	if err != nil {
		return err
	}
	client := delivery.New(delivery.Config{UserAgent: "punctual/" + c.Version, Guard: guard.New(guard.Loopback)})
	defer client.Close()
	header := http.Header{"Content-Type": {"application/json"}}
	numbers := make(chan int, c.Slots)
	var failure atomic.Pointer[string]
	var working sync.WaitGroup
	began, used := time.Now(), ownCPU()
	for range c.Slots {
		working.Go(func() {
			for i := range numbers {
				r := client.Send(ctx, delivery.Request{
					Method:  "POST",
					URL:     where,
					Header:  header,
					Body:    []byte(burstBody),
					Timeout: 30 * time.Second,
					Extra:   attemptHeaders(i, began),
				})
				if !r.OK() {
					failure.Store(&r.Error)
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
		return errors.New("a bare request failed: " + *failed)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// attemptHeaders are headers like those of every attempt.
func attemptHeaders(i int, at time.Time) []delivery.Header {
	id := uuid.New().String()
	return []delivery.Header{
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

// bare runs the bare loop against a path of the target, and checks that every request arrived.
func (l *lab) bare(ctx context.Context, to *target, path string) (result bareResult, err error) {
	p, err := l.launch("bench-bare", "--url="+to.url(path), fmt.Sprintf("--requests=%d", l.Sizes.BurstJobs),
		fmt.Sprintf("--slots=%d", l.Sizes.Slots))
	if err != nil {
		return result, err
	}
	return l.timed(ctx, p.Wait, p.Output, to, path)
}

// timed waits for a program that sends the burst by itself, reads the program's result, and counts the requests at the
// target.
func (l *lab) timed(
	ctx context.Context, wait func(context.Context) (int, error), output func() string, to *target, path string,
) (result bareResult, err error) {
	code, err := wait(ctx)
	if err != nil {
		return result, err
	}
	lines := strings.Split(strings.TrimSpace(output()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); code != 0 || err != nil || result.Seconds <= 0 {
		return result, fmt.Errorf("exit code %d; the last line must be JSON, as {\"seconds\":6.1}; it said:\n%s", code,
			output())
	}
	a, err := to.of(ctx, path)
	if err == nil && a.Count != l.Sizes.BurstJobs {
		err = fmt.Errorf("%d requests arrived, want %d", a.Count, l.Sizes.BurstJobs)
	}
	return result, err
}
