package scheduler

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
)

const (
	benchSlots = 500 // worker slots; also the concurrency of the bare client
	benchJob   = `{"schedule":{"every":"1h"},"target":{"url":"%TARGET%","body":{"range":"yesterday","kind":"invoices"}}}`
)

// BenchmarkRun measures what a run costs a replica from claim to finish, without the database. The store answers at
// once; the requests are real and go to a target in a process of its own. The bare client sends the same requests for
// comparison, so the difference is the cost of the loops.
func BenchmarkRun(b *testing.B) {
	job := compiled(b, strings.Replace(benchJob, "%TARGET%", startTarget(b)+"/hook", 1))
	b.Run("loops", func(b *testing.B) { benchmarkLoops(b, job) })
	b.Run("client", func(b *testing.B) { benchmarkClient(b, job) })
}

func benchmarkLoops(b *testing.B, job *domain.Job) {
	store := &instantStore{Source: newFakeStore(), job: job, left: b.N, done: make(chan struct{})}
	store.unfinished.Store(int64(b.N))
	config := Config{Queues: map[string]int{"default": benchSlots}, DrainTimeout: time.Second, Client: client(b)}
	b.ReportAllocs()
	reportCPU(b, func() {
		r := startConfig(b, store, config)
		<-store.done
		r.stopWithin(time.Minute)
	})
	if n := store.failed.Load(); n > 0 {
		b.Errorf("%d of %d runs failed", n, b.N)
	}
}

func benchmarkClient(b *testing.B, job *domain.Job) {
	bare := client(b)
	lease := &domain.Lease{ID: uuid.New(), ClaimedAt: time.Now()}
	var sent atomic.Int64
	b.ReportAllocs()
	reportCPU(b, func() {
		var working sync.WaitGroup
		for range benchSlots {
			working.Go(func() {
				for n := sent.Add(1); n <= int64(b.N); n = sent.Add(1) {
					if r := bare.Send(b.Context(), benchAssignment(job, lease, n).Request(domain.Origin{})); !r.OK() {
						b.Error(r.Error)
					}
				}
			})
		}
		working.Wait()
	})
}

func benchAssignment(job *domain.Job, lease *domain.Lease, n int64) domain.Assignment {
	at := lease.ClaimedAt
	return domain.Assignment{
		RunID: domain.SlotRunID(job.ID, at.Add(time.Duration(n)*time.Millisecond)), Job: job, Lane: 5,
		Trigger:      domain.TriggerSchedule,
		ScheduledFor: at, DueAt: at, Attempt: 1, Fence: n, Lease: lease,
	}
}

// reportCPU reports the CPU time that work takes in this process, per operation.
func reportCPU(b *testing.B, work func()) {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) // only wrong arguments make it fail
	b.ResetTimer()
	work()
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/1e3/float64(b.N), "cpu-µs/op")
}

// instantStore answers at once. All its runs belong to one job and are due.
type instantStore struct {
	Store // the methods that the loops do not call here
	credential.Source

	job        *domain.Job
	mu         sync.Mutex // guards left: claims are made side by side
	left       int        // runs to be claimed
	unfinished atomic.Int64
	failed     atomic.Int64
	done       chan struct{} // closed when all runs are finished
}

func (f *instantStore) NextDue(context.Context, LookInto, bool) (Upcoming, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Upcoming{Now: time.Now()}
	if f.left > 0 {
		u.Schedule = u.Now
	}
	return u, nil
}

func (f *instantStore) ClaimDue(_ context.Context, c Claim) (b domain.Batch, _ error) {
	lease := &domain.Lease{ID: uuid.New(), ClaimedAt: time.Now()}
	asked := admit.Total(c.Quotas)
	f.mu.Lock()
	defer f.mu.Unlock()
	for range min(asked, f.left) {
		b.Runs = append(b.Runs, benchAssignment(f.job, lease, int64(f.left)))
		f.left--
	}
	if lease.Remaining, b.Settled = len(b.Runs), len(b.Runs); b.Settled == asked {
		b.Full = []int16{c.Quotas[0].Queue}
	}
	return b, nil
}

func (f *instantStore) Contenders(context.Context, domain.Work, []int16) ([]admit.Contender, error) {
	return nil, nil
}

func (f *instantStore) Finish(
	_ context.Context, outcomes []domain.Outcome, _ []uuid.UUID, _ ...uuid.UUID,
) (int, error) {
	for _, o := range outcomes {
		if o.Verdict != domain.Succeed {
			f.failed.Add(1)
		}
	}
	if f.unfinished.Add(-int64(len(outcomes))) == 0 {
		close(f.done)
	}
	return 0, nil
}

func (f *instantStore) Register(context.Context, Replica) (map[string]int16, error) {
	return map[string]int16{"default": 1}, nil
}

func (f *instantStore) Renew(context.Context, uuid.UUID, Condition) (Pulse, error) {
	return Pulse{Known: true}, nil
}

func (f *instantStore) Deregister(context.Context, uuid.UUID) error { return nil }
func (f *instantStore) Wake() <-chan struct{}                       { return nil }
func (f *instantStore) Asked(string) <-chan struct{}                { return nil }

// targetEnv makes this test binary run as the target, in a process of its own, so that the target's CPU time is not
// counted as the replica's.
const targetEnv = "SCHEDULER_TARGET"

func startTarget(b *testing.B) (address string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestTargetProcess$")
	cmd.Env = append(os.Environ(), targetEnv+"=1")
	stdin, err := cmd.StdinPipe()
	must(b, err)
	stdout, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close() // the target ends with its input
		_ = cmd.Wait()
	})
	address, err = bufio.NewReader(stdout).ReadString('\n')
	must(b, err)
	return strings.TrimSpace(address)
}

func TestTargetProcess(t *testing.T) {
	if os.Getenv(targetEnv) == "" {
		t.Skip("runs as the target of BenchmarkRun")
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	_, _ = os.Stdout.WriteString(server.URL + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
