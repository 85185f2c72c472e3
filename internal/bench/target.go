package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/process"
)

// Target runs the target of the benchmarks, in a process of its own, until ctx ends. It answers every POST with an
// empty 200 and counts the requests of each path. Below /late/ it also records how long after Punctual-Scheduled-For
// they came. /hold/N/… answers when N requests have arrived, and /slow/DURATION/… after that time; for these, most
// is the largest number open at once. /log/DURATION/… does as well, and records each visit. A GET of the same path
// returns the count, with ?late the recorded times, and with ?visits the visits; a DELETE forgets them.
func Target(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	t := &serving{}
	server := &http.Server{Handler: t, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type serving struct{ paths sync.Map } // path to *ledger

// ledger is the record of one path's requests.
type ledger struct {
	count atomic.Int64
	open  atomic.Int64
	most  atomic.Int64
	full  chan struct{} // closed when the N requests of /hold/N/ have arrived
	mu    sync.Mutex
	late  []time.Duration
	first time.Time // when the first request arrived

	visits []visit
}

// account is a ledger as a client reads it.
type account struct {
	Count int             `json:"count"`
	Most  int             `json:"most,omitempty"`
	Late  []time.Duration `json:"late,omitempty"`
	First time.Time       `json:"first"`

	Visits []visit `json:"visits,omitempty"`
}

// A visit is one request, by the target's clock.
type visit struct {
	Job      string    `json:"job"` // its Punctual-Job header
	Arrived  time.Time `json:"arrived"`
	Answered bool      `json:"answered"` // whether the client was still there when the answer was due
	Ended    bool      `json:"ended"`    // whether it was answered, or its client has gone
}

func (t *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	found, ok := t.paths.Load(r.URL.Path)
	if !ok {
		found, _ = t.paths.LoadOrStore(r.URL.Path, &ledger{full: make(chan struct{})})
	}
	if r.Method == http.MethodDelete {
		t.paths.Delete(r.URL.Path)
		return
	}
	of := found.(*ledger)
	if r.Method == http.MethodGet {
		read := account{Count: int(of.count.Load()), Most: int(of.most.Load())}
		of.mu.Lock()
		defer of.mu.Unlock()
		read.First = of.first
		if r.URL.Query().Has("late") { // only when asked for: there are many
			read.Late = of.late
		}
		if r.URL.Query().Has("visits") {
			read.Visits = of.visits
		}
		_ = json.NewEncoder(w).Encode(read)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	n := of.count.Add(1)
	if n == 1 {
		of.mu.Lock()
		of.first = arrived
		of.mu.Unlock()
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/late/"):
		of.note(r.Header.Get("Punctual-Scheduled-For"), arrived)
	case strings.HasPrefix(r.URL.Path, "/slow/"):
		of.takeTime(r)
	case strings.HasPrefix(r.URL.Path, "/log/"):
		of.record(r, arrived)
	case strings.HasPrefix(r.URL.Path, "/hold/"):
		all, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/hold/"), "/")
		if all == strconv.FormatInt(n, 10) {
			close(of.full)
		}
		select {
		case <-of.full:
		case <-r.Context().Done():
		}
	}
}

// takeTime waits for the time that the path names, or until the client has gone.
func (of *ledger) takeTime(r *http.Request) {
	open := of.open.Add(1)
	defer of.open.Add(-1)
	for most := of.most.Load(); open > most && !of.most.CompareAndSwap(most, open); most = of.most.Load() {
	}
	d, err := time.ParseDuration(strings.Split(r.URL.Path, "/")[2])
	if err != nil {
		return
	}
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// record takes the time that the path names, and records the visit.
func (of *ledger) record(r *http.Request, arrived time.Time) {
	of.mu.Lock()
	i := len(of.visits)
	of.visits = append(of.visits, visit{Job: r.Header.Get("Punctual-Job"), Arrived: arrived})
	of.mu.Unlock()
	of.takeTime(r)
	of.mu.Lock()
	of.visits[i].Ended, of.visits[i].Answered = true, r.Context().Err() == nil
	of.mu.Unlock()
}

func (of *ledger) note(scheduled string, arrived time.Time) {
	due, err := time.Parse(time.RFC3339Nano, scheduled)
	if err != nil {
		return // the count will be one short
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	of.late = append(of.late, arrived.Sub(due))
}

// target is a running Target.
type target struct {
	*process.Process
	api *client.Client
}

func (l *lab) target(ctx context.Context) *target {
	p := l.launch(targetHelper)
	l.must(await(ctx, "the target", 5*time.Millisecond, func() (bool, error) {
		return strings.HasSuffix(p.Output(), "\n"), alive("the target", p)
	}))
	return &target{p, client.New(strings.TrimSpace(p.Output()))}
}

// url returns the URL of a path that jobs call.
func (t *target) url(path string) string { return t.api.URL + path }

// of reads the account of a path.
func (t *target) of(ctx context.Context, path string) (a account, err error) {
	_, err = t.api.Do(ctx, http.MethodGet, path, nil, &a)
	return a, err
}

// lateness returns how late the requests of a path came, in milliseconds. There must be exactly as many as expected.
func (l *lab) lateness(ctx context.Context, t *target, path string, expected int) []float64 {
	a, err := t.of(ctx, path+"?late")
	l.must(err)
	if len(a.Late) != expected || a.Count != expected {
		l.must(fmt.Errorf("%d requests came with %d due times, want %d of each", a.Count, len(a.Late), expected))
	}
	late := make([]float64, expected)
	for i, d := range a.Late {
		late[i] = milliseconds(d + l.offset) // the target used this machine's clock; due times are of the database's
	}
	return late
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
