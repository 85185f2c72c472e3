package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"punctual/scheduler/credential"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// virtually runs a subtest in virtual time.
func virtually(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// compiled returns a job from the JSON of a definition, with a default name and target. The definition is validated as
// the API does it.
func compiled(t testing.TB, text string) *domain.Job {
	t.Helper()
	d := jobspec.Definition{Name: "job", Target: jobspec.Target{URL: "http://127.0.0.1:9/hook"}}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if problems := d.Validate(); problems != nil {
		t.Fatalf("%s: %v", text, problems)
	}
	job, err := domain.Compile(uuid.MustParse("0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01"), 1, 1, d, 0)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return job
}

// seen is a request as its target received it.
type seen struct {
	Method, Path, Body string
	Header             http.Header
}

// target starts a server that answers with the given status. It returns the URL and the requests that arrive.
func target(t *testing.T, status int) (url string, requests <-chan seen) {
	t.Helper()
	got := make(chan seen, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.URL.RequestURI(), string(body), r.Header}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t testing.TB) *delivery.Client {
	t.Helper()
	c := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	t.Cleanup(c.Close)
	return c
}

// gatedDials is a client whose attempts never get a connection: they fail at once, or hang until letGo. So attempts can
// be in flight in virtual time, which would stand still while real sockets wait.
type gatedDials struct {
	client  *delivery.Client
	mu      sync.Mutex
	hang    chan struct{} // nil: attempts fail at once
	refused string        // the address that refuses connections; all others are blocked addresses
	refusal syscall.Errno // of that address; 0: ECONNREFUSED
	stuck   string        // the only address whose attempts hang; empty: all do
	prompt  string        // the address whose attempts never hang
	slow    time.Duration // how long an attempt takes before it fails
	dials   int
	open    int
	most    int // the most that were open at once
}

func newGatedDials(t *testing.T, hang bool) *gatedDials {
	g := &gatedDials{}
	if hang {
		g.hang = make(chan struct{})
		t.Cleanup(g.letGo)
	}
	g.client = delivery.New(delivery.Config{Control: func(_, address string, _ syscall.RawConn) error {
		g.mu.Lock()
		g.dials++
		g.open++
		g.most = max(g.most, g.open)
		defer func() { g.mu.Lock(); g.open--; g.mu.Unlock() }()
		hang, refused, refusal := g.hang, address == g.refused, cmp.Or(g.refusal, syscall.ECONNREFUSED)
		if g.stuck != "" && address != g.stuck || address == g.prompt {
			hang = nil
		}
		g.mu.Unlock()
		if hang != nil {
			<-hang
		}
		time.Sleep(g.slow)
		if refused {
			return refusal
		}
		return delivery.ErrBlockedAddress
	}})
	t.Cleanup(g.client.Close)
	return g
}

// mostOpen returns the most attempts that were open at once since the last call.
func (g *gatedDials) mostOpen() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := g.most
	g.most = g.open
	return most
}

// tried returns the number of attempts so far.
func (g *gatedDials) tried() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dials
}

// letGo makes the attempts that hang fail, and all later ones.
func (g *gatedDials) letGo() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hang != nil {
		close(g.hang)
		g.hang = nil
	}
}

// replica is a running Scheduler.
type replica struct {
	t       testing.TB
	stop    context.CancelFunc
	done    chan struct{}
	metrics *prometheus.Registry
}

// database is what a replica needs of a database.
type database interface {
	Store
	credential.Source
}

// start runs a replica with one queue of the given size.
func start(t *testing.T, store database, client *delivery.Client, slots int) *replica {
	t.Helper()
	return startQueues(t, store, client, map[string]int{"default": slots}, 25*time.Second)
}

// startQueues is start with several queues, the worker slots of each, and a drain timeout.
func startQueues(
	t *testing.T, store database, client *delivery.Client, queues map[string]int, drain time.Duration,
) *replica {
	t.Helper()
	return startConfig(t, store, Config{Queues: queues, DrainTimeout: drain, Client: client})
}

// startConfig runs a replica. It completes the config.
func startConfig(t testing.TB, store database, config Config) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{t: t, stop: stop, done: make(chan struct{}), metrics: prometheus.NewRegistry()}
	go func() {
		defer close(r.done)
		config.Log, config.Credentials = slog.New(slog.DiscardHandler), store
		config.Metrics = NewMetrics(r.metrics, time.Second)
		if err := Run(ctx, store, config); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-r.done })
	return r
}

// metric returns the value of a counter or gauge that has no labels.
func (r *replica) metric(name string) float64 {
	r.t.Helper()
	value, _ := metric(r.t, r.metrics, name)
	return value
}

// metric returns the value of a counter or gauge, summed up over its labels, and how much a histogram has observed.
func metric(t testing.TB, from prometheus.Gatherer, name string) (value float64, observed uint64) {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				value += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				observed += m.GetHistogram().GetSampleCount()
			}
			return value, observed
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0, 0
}

// stopped reports whether the replica has returned.
func (r *replica) stopped() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// stopWithin stops the replica and returns how long it took. It reports an error if it took longer than longest.
func (r *replica) stopWithin(longest time.Duration) time.Duration {
	r.t.Helper()
	asked := time.Now()
	r.stop()
	select {
	case <-r.done:
	case <-time.After(longest):
		r.t.Errorf("the replica is still there %s after it was asked to stop", longest)
	}
	return time.Since(asked)
}

// perKind is a number for each kind of work: due now, ready, late, ordered.
type perKind = [domain.WorkKinds]int

// occupied returns the worker slots of queues 1, 2, … with the given sizes, some of them taken by runs.
func occupied(sizes []int, taken ...perKind) *admit.Slots {
	bySize, numbers := map[string]int{}, map[string]int16{}
	for i, size := range sizes {
		name := fmt.Sprint("q", i)
		bySize[name], numbers[name] = size, int16(i+1)
	}
	w := admit.NewSlots(bySize, numbers, 0)
	for i, runs := range taken {
		for of, n := range runs {
			for range n {
				w.Take(int16(i+1), 1, domain.Work(of))
			}
		}
	}
	return w
}
