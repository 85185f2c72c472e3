//prove:other

package prove

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func newWitness(t testing.TB) *Witness {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return newWitnessOn(t, listener)
}

func newWitnessOn(t testing.TB, listener net.Listener) *Witness {
	w := NewWitness(listener)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func post(t *testing.T, client *http.Client, url, body string, headers map[string]string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err == nil {
		_ = response.Body.Close()
	}
	return response, err
}

// The witness logs what a request says about itself.
func TestWitnessLogsWhatARequestSaysAboutItself(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	run, before := uuid.New(), time.Now()
	_, err := post(t, http.DefaultClient, w.URL+"/x", "hello", map[string]string{
		"Punctual-Run": run.String(), "Punctual-Job": "j", "Punctual-Attempt": "2", "Punctual-Fencing-Token": "7",
		"Punctual-Trigger": "schedule", "Punctual-Scheduled-For": "2026-01-02T03:04:05Z", "Punctual-Late": "true",
		"Idempotency-Key": "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	requests := w.At("/x")
	if len(requests) != 1 || w.Len() != 1 {
		t.Fatalf("%d requests, want 1", len(requests))
	}
	got := requests[0]
	if got.At.Before(before.Round(0)) || got.Ended.Before(got.At) || got.Ended.After(time.Now()) {
		t.Errorf("it arrived at %s and ended at %s", got.At, got.Ended)
	}
	want := Request{
		At: got.At, Ended: got.Ended, Method: "POST", Path: "/x", Run: run, Job: "j", Attempt: 2, Fence: 7,
		Trigger: "schedule", ScheduledFor: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Late: true, Key: "k",
		Body: HashBody([]byte("hello")), Status: 200,
	}
	if got != want {
		t.Errorf("logged %+v\nwant   %+v", got, want)
	}
}

// The witness misbehaves as a test says.
func TestWitnessMisbehavesAsTold(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	client := &http.Client{
		Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	hasty := *client
	hasty.Timeout = 100 * time.Millisecond
	w.Script("/status", Answer{Status: 503, Header: http.Header{"Retry-After": {"1"}}},
		Answer{Status: 302, Header: http.Header{"Location": {"/"}}}, Answer{})
	for i, want := range []int{503, 302, 200, 200} {
		response, err := post(t, client, w.URL+"/status", "", nil)
		if err != nil || response.StatusCode != want {
			t.Errorf("request %d: %v %v, want %d", i+1, response, err, want)
		}
	}
	w.Cycle("/cycle", Answer{Status: 500}, Answer{})
	for i, want := range []int{500, 200, 500, 200, 500} {
		if response, err := post(t, client, w.URL+"/cycle", "", nil); err != nil || response.StatusCode != want {
			t.Errorf("request %d of a cycle: %v %v, want %d", i+1, response, err, want)
		}
	}
	w.Script("/drop", Answer{Drop: true})
	w.Script("/hang", Answer{Hang: true})
	for _, path := range []string{"/drop", "/hang"} {
		if _, err := post(t, &hasty, w.URL+path, "", nil); err == nil {
			t.Errorf("%s was answered", path)
		}
		await(t, path+" to end", func() bool {
			r := w.At(path)
			return len(r) == 1 && !r[0].Ended.IsZero() && r[0].Status == 0
		})
	}
	w.Release("/hang")
	if response, err := post(t, client, w.URL+"/hang", "", nil); err != nil || response.StatusCode != 200 {
		t.Errorf("after its release: %v %v", response, err)
	}
}

func BenchmarkWitness(b *testing.B) {
	w := newWitness(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			response, err := client.Post(w.URL+"/x", "text/plain", strings.NewReader("x"))
			if err != nil {
				b.Error(err)
				return
			}
			_ = response.Body.Close()
		}
	})
}
