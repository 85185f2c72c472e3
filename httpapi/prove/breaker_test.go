package prove

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"punctual/httpapi/proc"
	"punctual/store/storetest"
)

// deadPort is a port on loopback that refuses connections until it is opened, and that nobody else gets.
type deadPort struct {
	t    *testing.T
	fd   int
	addr string
}

func newDeadPort(t *testing.T) *deadPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	p := &deadPort{t: t, fd: fd, addr: fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)}
	t.Cleanup(func() {
		if p.fd >= 0 {
			_ = syscall.Close(p.fd)
		}
	})
	return p
}

// open starts a witness on the port.
func (p *deadPort) open() *Witness {
	p.t.Helper()
	if err := syscall.Listen(p.fd, 128); err != nil {
		p.t.Fatal(err)
	}
	file := os.NewFile(uintptr(p.fd), p.addr)
	p.fd = -1
	listener, err := net.FileListener(file)
	_ = file.Close() // the listener has a copy
	if err != nil {
		p.t.Fatal(err)
	}
	w := NewWitnessOn(listener)
	p.t.Cleanup(func() { _ = w.Close() })
	return w
}

// metric reads a metric without labels from /metrics.
func metric(t *testing.T, a *proc.API, name string) (value float64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, name+" %g", &value); n == 1 {
			return value
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Two targets are dead, one that refuses connections and one that hangs, while a third is well. There are
// few worker slots for all of them.
func TestADeadTargetIsSparedAndRecovers(t *testing.T) {
	exhaustive(t, "takes as long as a few cooldowns of a breaker")
	t.Parallel()
	const slots, refused, hung, well = 20, 300, 40, 80
	dsn, w, hanging, dead := storetest.DSN(t), newWitness(t), newWitness(t), newDeadPort(t)
	r := serve(t, dsn, fmt.Sprintf("--queues=default=%d", slots))
	conn := connect(t, dsn)
	hanging.Script("/hang", Answer{Hang: true})

	due := nextSecond(3 * time.Second)
	retry := map[string]any{"max_attempts": 20, "initial_backoff": "200ms", "multiplier": 1, "max_backoff": "1s"}
	at := func(d time.Duration) map[string]any {
		return map[string]any{"at": due.Add(d).UTC().Format(time.RFC3339Nano)}
	}
	var jobs []proc.JobSpec
	for i := range refused {
		jobs = append(jobs, job(fmt.Sprint("refused-", i), "http://"+dead.addr+"/hook", proc.JobSpec{"schedule": at(0), "retry": retry}))
	}
	for i := range hung {
		jobs = append(jobs, job(fmt.Sprint("hung-", i), hanging.URL+"/hang", proc.JobSpec{"schedule": at(0), "retry": retry, "timeout": "4s"}))
	}
	for i := range well {
		jobs = append(jobs, job(fmt.Sprint("well-", i), w.URL+"/well", proc.JobSpec{"schedule": at(time.Duration(i) * 250 * time.Millisecond)}))
	}
	create(t, r.API, jobs...)

	await(t, "both breakers to open", func() bool { return metric(t, r.API, "punctual_breakers_open") == 2 })
	opened := time.Now()
	const attempts = `SELECT count(*) FROM punctual.attempts a JOIN punctual.runs r ON r.id = a.run_id JOIN punctual.jobs j ON j.id = r.job_id WHERE j.name LIKE $1 AND a.started_at > $2`
	await(t, "a probe that is refused", func() bool { return query[int](t, conn, attempts, "refused-%", opened.Add(time.Second)) > 0 })
	await(t, "a probe that hangs", func() bool { return query[int](t, conn, attempts, "hung-%", opened.Add(time.Second)) > 0 })
	for _, dead := range []string{"refused-%", "hung-%"} {
		// Ten open the breaker, others may be in flight then, and each cooldown ends with a probe.
		if n := query[int](t, conn, attempts, dead, due); n > 10+slots+4 {
			t.Errorf("%d attempts of %s failed", n, dead)
		}
	}
	waiting := do[struct{ Data []runView }](t, r.API, "GET", "/v1/jobs/refused-0/runs", nil).Data
	if len(waiting) != 1 || waiting[0].Status != "pending" || !strings.Contains(waiting[0].Error, "the circuit breaker of "+dead.addr+" is open after ") {
		t.Errorf("a run that waits shows %+v", waiting)
	}
	up := time.Now()
	for _, q := range w.At("/well") {
		// While the breakers learn, all slots may be taken by what hangs.
		if late := q.At.Sub(q.ScheduledFor); q.ScheduledFor.After(opened) && late > 2*time.Second {
			t.Errorf("a healthy target's slot of %s was sent %s late", clock(q.ScheduledFor), late)
		}
	}

	hanging.Release("/hang")
	back := dead.open()
	back.Script("/hook", Answer{Delay: 200 * time.Millisecond})
	f := atRest(t, dsn, w)
	t.Logf("opened %s after the instant, up again %s later, all over %s after that; %v attempts put off", opened.Sub(due).Round(time.Millisecond),
		up.Sub(opened).Round(time.Millisecond), time.Since(up).Round(time.Millisecond), metric(t, r.API, "punctual_deferred_attempts_total"))
	f.Requests = append(append(f.Requests, back.Requests()...), hanging.Requests()...)
	slices.SortStableFunc(f.Requests, func(a, b Request) int { return a.At.Compare(b.At) })
	verify(t, f, Conditions{})
	for _, run := range f.Runs {
		if run.Status != "succeeded" {
			t.Errorf("run %s is %s", run.ID, run.Status)
		}
	}
	if n := len(f.Attempts); n > 2*(10+slots+6) {
		t.Errorf("%d attempts failed", n)
	}
	if n := query[int](t, conn, `SELECT count(*) FROM punctual.runs WHERE error IS NOT NULL`); n != 0 {
		t.Errorf("%d runs that succeeded still say what they waited for", n)
	}
	ramps(t, back.Requests())
	stop(t, r)
}

// ramps checks that the first requests of a target that is up again come one at a time, and one more for
// each answer; and one a second that answers do not have to allow.
func ramps(t *testing.T, requests []Request) {
	t.Helper()
	most := 0
	for i, q := range requests {
		flying, answered := 1, 0
		for _, before := range requests[:i] {
			if before.Ended.IsZero() || before.Ended.After(q.At) {
				flying++
			} else {
				answered++
			}
		}
		most = max(most, flying)
		if allowed := max(answered, 1) + 1 + int(q.At.Sub(requests[0].At)/time.Second); flying > allowed {
			t.Errorf("request %d made %d in flight after %d answers", i+1, flying, answered)
		}
	}
	t.Logf("at most %d in flight to the target that was up again", most)
	if most < 3 {
		t.Error("the target was not given more as it answered")
	}
}
