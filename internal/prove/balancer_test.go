//prove:replicas

package prove

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Two restarts of two replicas behind HAProxy. No API request fails.
//
//prove:other
func TestARestartBehindALoadBalancerFailsNoRequest(t *testing.T) {
	t.Parallel()
	restartBehindABalancer(t, binary(t), 2, 2)
}

// 100 restarts behind HAProxy, half of the replicas at a time. No API request fails, and each trigger has one run.
//
// With SIGTERM, under reads and writes over kept connections. No client or proxy repeats a request. Runs are sent once.
func TestAHundredRestartsBehindALoadBalancerFailNoRequest(t *testing.T) {
	t.Parallel()
	quick, err := Build(t.Context(), Variant{}) // without the race detector a replica starts in a third of the time
	must(t, err)
	restartBehindABalancer(t, quick, 8, 100)
}

// restartBehindABalancer restarts replicas, half of them at a time. Meanwhile callers keep their connections to the
// balancer, and the balancer keeps its connections to the replicas. Neither callers nor balancer repeat a request.
func restartBehindABalancer(t *testing.T, binary string, replicas, restarts int) {
	const grace = time.Second
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := make([]*process.Replica, replicas)
	addresses := make([]string, replicas)
	start := func(some []int) {
		t.Helper()
		started := make(chan error, len(some))
		for _, i := range some {
			go func() {
				var err error
				fleet[i], err = process.Start(t.Context(), binary,
					[]string{"DATABASE_URL=" + dsn, process.CallLoopback, "PUNCTUAL_SHUTDOWN_GRACE=" + grace.String()},
					[]string{"serve", "--log-format=json", "--listen=" + addresses[i], "--auth=none", "--max-conns=10"})
				started <- err
			}()
		}
		for range some {
			must(t, within(t, "a replica to start", started))
		}
		for _, i := range some {
			watch(t, fleet[i].Process)
		}
	}
	var halves [2][]int
	host := ownLoopback(t)
	for i := range fleet {
		addresses[i] = fmt.Sprintf("%s:%d", host, 8081+i)
		halves[i%2] = append(halves[i%2], i)
	}
	start(slices.Concat(halves[0], halves[1]))
	w.Cycle("/slow", Answer{Delay: 20 * time.Millisecond}, Answer{Delay: 200 * time.Millisecond})
	create(t, fleet[0].API, job("read", w.URL+"/read", nil), job("quick", w.URL+"/quick", nil),
		job("slow", w.URL+"/slow", nil))
	b := newBalancer(t, host+":8080", addresses)
	b.await(t, addresses, "UP")
	load := newLoad(host + ":8080")
	t.Cleanup(load.stop)

	done, late := 0, 0
	for round := 0; done < restarts; round++ {
		half := halves[round%2]
		before := load.ended()
		await(t, "requests through the replicas that stay", func() bool { return load.ended() > before+20 })
		asked := time.Now()
		names := make([]string, 0, len(half))
		for _, i := range half {
			names = append(names, addresses[i])
			must(t, fleet[i].Signal(syscall.SIGTERM))
		}
		b.await(t, names, "DOWN")
		noticed := time.Since(asked)
		for _, i := range half {
			if code := ended(t, "a replica", fleet[i].Process); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, fleet[i].Output())
			}
		}
		start(half)
		b.await(t, names, "UP")
		if noticed > grace*8/10 { // the machine stood still, so this round proves nothing
			t.Logf("the balancer noticed after %s only", noticed)
			load.forgive()
			if late++; late > restarts {
				t.Fatalf("in %d of %d rounds the balancer did not notice in time that replicas were leaving", late, round+1)
			}
			continue
		}
		done += len(half)
	}
	load.stop()
	for _, failure := range load.failed {
		t.Error(failure)
	}
	t.Logf("%d restarts, %d requests, %d of them triggers", done, load.requests, load.triggers)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
	if len(f.Runs) != load.triggers {
		t.Errorf("%d runs of %d triggers", len(f.Runs), load.triggers)
	}
}

// ownLoopback returns an address at which no other process listens or has connections. So a replica that comes back
// finds its port free.
func ownLoopback(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux answers at all of 127.0.0.0/8")
	}
	return fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254))
}

// balancer is a running HAProxy.
type balancer struct {
	socket string // for commands to HAProxy
	*process.Process
}

// newBalancer starts a HAProxy that checks replicas every tenth of a second and shares its open connections among all
// callers. It repeats no request, because that would hide a defect.
func newBalancer(t *testing.T, address string, replicas []string) *balancer {
	t.Helper()
	b := besideItsSocket(t)
	var config strings.Builder
	fmt.Fprintf(&config, `global
  stats socket %s mode 600
defaults
  mode http
  timeout connect 10s
  timeout check 30s
  timeout client 2m
  timeout server 2m
  retries 0
frontend api
  bind %s
  default_backend replicas
backend replicas
  http-reuse always
  option httpchk GET /readyz
  http-check expect status 200
  default-server check inter 100ms fall 1 rise 1
`, b.socket, address)
	for _, replica := range replicas {
		fmt.Fprintf(&config, "  server %s %s\n", replica, replica)
	}
	return b.launch(t, config.String())
}

// launch starts a HAProxy with a configuration, in the directory of its socket.
func (b *balancer) launch(t *testing.T, config string) *balancer {
	t.Helper()
	file := filepath.Join(filepath.Dir(b.socket), "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(config), 0o600))
	var err error
	if b.Process, err = process.Launch(haproxy(t), nil, "-db", "-f", file); err != nil {
		t.Fatal(err)
	}
	watch(t, b.Process)
	return b
}

// besideItsSocket returns a balancer that has not begun, with a directory of its own.
func besideItsSocket(t *testing.T) *balancer {
	t.Helper()
	dir, err := os.MkdirTemp("", "punctual-haproxy-") // not below t.TempDir, whose path may be too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &balancer{socket: filepath.Join(dir, "admin")}
}

// documentedBalancer starts a HAProxy with the configuration of docs/production.md, for other addresses.
func documentedBalancer(t *testing.T, address string, replicas []string) *balancer {
	t.Helper()
	blocks := docs.Code(t, "docs/production.md", "haproxy")
	if len(blocks) != 1 {
		t.Fatalf("docs/production.md has %d configurations", len(blocks))
	}
	b := besideItsSocket(t)
	config := "global\n  stats socket " + b.socket + " mode 600\n"
	for line := range strings.Lines(blocks[0]) {
		if strings.HasPrefix(line, "  server ") {
			continue
		}
		config += strings.Replace(line, "bind :8080", "bind "+address, 1)
	}
	for _, replica := range replicas {
		config += fmt.Sprintf("  server %s %s\n", replica, replica)
	}
	return b.launch(t, config)
}

// kill -9 behind HAProxy. Only requests in flight on that replica fail.
func TestAKilledReplicaBehindTheDocumentedBalancerCostsNoOtherRequest(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	host := ownLoopback(t)
	var fleet []*process.Replica
	var addresses []string
	for i := range 3 {
		addresses = append(addresses, fmt.Sprintf("%s:%d", host, 8081+i))
		fleet = append(fleet, serve(t, dsn, "--listen="+addresses[i]))
	}
	create(t, fleet[0].API, job("read", w.URL+"/read", nil), job("quick", w.URL+"/quick", nil),
		job("slow", w.URL+"/slow", nil))
	b := documentedBalancer(t, host+":8080", addresses)
	b.await(t, addresses, "UP")
	load := newLoad(host + ":8080")
	t.Cleanup(load.stop)
	await(t, "requests through all", func() bool { return load.ended() > 60 })
	fleet[2].Kill()
	b.await(t, addresses[2:], "DOWN")
	after := load.ended()
	await(t, "requests through those that are left", func() bool { return load.ended() > after+60 })
	load.stop()
	for _, failure := range load.failed {
		if !strings.Contains(failure, "no answer") && !strings.Contains(failure, "502 Bad Gateway") {
			t.Error(failure)
		}
	}
	if lost := len(load.failed); lost > 6 { // each of the callers has one in flight
		t.Errorf("%d requests have no answer: %q", lost, load.failed)
	}
	t.Logf("%d requests, %d in flight at the replica that was killed", load.requests, len(load.failed))
}

// await waits until the given replicas are all in a state.
func (b *balancer) await(t *testing.T, replicas []string, state string) {
	t.Helper()
	await(t, "the balancer to find replicas "+state, func() bool {
		states := b.states(t)
		for _, replica := range replicas {
			if states[replica] != state {
				return false
			}
		}
		return true
	})
}

// states returns the state of each replica in the balancer's view; empty while the balancer starts.
func (b *balancer) states(t *testing.T) map[string]string {
	t.Helper()
	states := map[string]string{}
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		return states
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		t.Fatal(err)
	}
	rows := csv.NewReader(conn)
	rows.FieldsPerRecord = -1
	all, err := rows.ReadAll()
	must(t, err)
	for _, row := range all {
		if len(row) > 17 && row[0] == "replicas" {
			states[row[1]] = row[17]
		}
	}
	return states
}

// load is a number of callers that read and write all the time.
type load struct {
	halt     chan struct{}
	once     sync.Once
	callers  sync.WaitGroup
	mu       sync.Mutex
	requests int
	triggers int // that were answered with success
	failed   []string
}

func newLoad(address string) *load {
	l := &load{halt: make(chan struct{})}
	for i := range 6 {
		l.callers.Go(func() {
			c := &caller{address: address}
			defer c.hangUp()
			put := fmt.Sprintf("/v1/jobs/put-%d", i)
			for n := i; ; n++ {
				select {
				case <-l.halt:
					return
				case <-time.After(20 * time.Millisecond):
				}
				switch n % 5 {
				case 0:
					l.call(c, "GET", "/v1/jobs/read", "")
				case 1:
					l.call(c, "PUT", put, fmt.Sprintf(`{"description":"%d","target":{"url":"http://127.0.0.1:1/never"}}`, n))
				case 2:
					l.call(c, "POST", "/v1/jobs/quick/trigger", "{}")
				case 3:
					l.call(c, "POST", "/v1/jobs/slow/trigger", "{}")
				case 4:
					l.call(c, "GET", "/v1/runs?limit=5", "")
				}
			}
		})
	}
	return l
}

func (l *load) call(c *caller, method, path, body string) {
	began := time.Now()
	err := c.do(method, path, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	switch {
	case err != nil:
		l.failed = append(l.failed,
			fmt.Sprintf("%s %s, begun at %s, ended %s later: %v", method, path, clock(began), time.Since(began), err))
	case strings.HasSuffix(path, "/trigger"):
		l.triggers++
	}
}

func (l *load) ended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// forgive forgets the failures so far.
func (l *load) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = nil
}

func (l *load) stop() {
	l.once.Do(func() { close(l.halt) })
	l.callers.Wait()
}

// caller sends requests one after the other over one connection. Unlike a client of package http it never repeats a
// request.
type caller struct {
	address string
	conn    net.Conn
	answers *bufio.Reader
}

func (c *caller) do(method, path, body string) error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		c.conn, c.answers = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	request, err := http.NewRequest( //nolint:noctx // it has a deadline
		method, "http://"+c.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if err := request.Write(c.conn); err != nil {
		c.hangUp()
		return err
	}
	response, err := http.ReadResponse(c.answers, request)
	if err != nil {
		c.hangUp()
		return fmt.Errorf("no answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.Close {
		c.hangUp()
	}
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}

func (c *caller) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// HAProxy accepts the configuration of each page that has one.
//
//prove:other
func TestTheDocumentedBalancerIsValid(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range docs.Pages(t) {
		for _, config := range docs.Code(t, page, "haproxy") {
			found++
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			must(t, os.WriteFile(file, []byte(config), 0o600))
			if out, err := exec.CommandContext(t.Context(), haproxy(t), "-c", "-f", file).CombinedOutput(); err != nil ||
				strings.Contains(string(out), "[WARNING]") {
				t.Errorf("%s: %v:\n%s", page, err, out)
			}
		}
	}
	if found == 0 {
		t.Error("no page has a haproxy.cfg")
	}
}

// haproxy returns the path of the program.
func haproxy(t *testing.T) string {
	t.Helper()
	return pgtest.Program(t, "apt-get install haproxy, dnf install haproxy, or brew install haproxy", "haproxy",
		"/usr/sbin/haproxy", "/usr/local/sbin/haproxy")
}
