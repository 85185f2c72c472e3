//prove:targets

package prove

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// impatient is a target that answers one request of each connection. It resets the connection when the next request
// arrives, and reads nothing of it: as a target does whose keep-alive ends just then. A path that begins with /fails
// answers the first attempt of each run with 500.
type impatient struct {
	URL   string
	reset atomic.Int32 // how many connections were reset
}

func newImpatient(t *testing.T) *impatient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	target := &impatient{URL: "http://" + listener.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { target.serve(t, nc.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	return target
}

func (p *impatient) serve(t *testing.T, nc *net.TCPConn) {
	defer nc.Close()
	reader := bufio.NewReader(nc)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	_ = request.Body.Close() // which reads it to its end
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	if strings.HasPrefix(request.URL.Path, "/fails") && request.Header.Get("Punctual-Attempt") == "1" {
		answer = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
	}
	_, err = nc.Write([]byte(answer))
	if _, next := reader.ReadByte(); next == nil {
		err = errors.Join(err, nc.SetLinger(0)) // so that closing it sends a reset
		p.reset.Add(1)
	}
	if err != nil {
		t.Errorf("the target: %v", err)
	}
}

// A target closes kept connections as requests arrive. A run's last attempt uses a new one, and succeeds.
func TestTheLastChanceOfARunMeetsNoConnectionThatCloses(t *testing.T) {
	t.Parallel()
	target := newImpatient(t)
	r := serve(t, pgtest.DSN(t))
	for name, more := range map[string]process.JobSpec{
		"ordinary": {"retry": map[string]any{"initial_backoff": "1ms", "max_attempts": 5}},
		"once":     {"delivery": "at_most_once"},
		"single":   {"retry": map[string]any{"max_attempts": 1}},
		"fails":    {"retry": map[string]any{"initial_backoff": "1ms", "max_attempts": 2}},
		"expires":  {"expires_after": "10s", "retry": map[string]any{"initial_backoff": "1m"}},
	} {
		create(t, r.API, job(name, target.URL+"/"+name, more))
	}
	for range 5 {
		for _, name := range []string{"ordinary", "once", "ordinary", "single", "fails", "ordinary", "expires"} {
			triggerTo(t, r.API, "succeeded", name)
		}
	}
	stop(t, r)
	if target.reset.Load() == 0 {
		t.Error("no request met a connection that closed, so this proves nothing")
	}
	t.Logf("%d connections were reset", target.reset.Load())
}
