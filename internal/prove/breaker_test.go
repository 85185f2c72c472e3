//prove:other

package prove

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"punctual/httpapi/client"
)

// deadPort is a port on loopback that refuses connections but while the test has it open. No other process can take it.
type deadPort struct {
	t    *testing.T
	fd   int
	addr string
}

func newDeadPort(t *testing.T) *deadPort {
	t.Helper()
	bound := func(port int) (fd, is int) {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		must(t, err)
		syscall.CloseOnExec(fd)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		must(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
		must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}))
		name, err := syscall.Getsockname(fd)
		must(t, err)
		return fd, name.(*syscall.SockaddrInet4).Port
	}
	_, port := bound(0)
	fd, _ := bound(port) // Linux gives a port that it has chosen to others once the socket no longer listens
	return &deadPort{t: t, fd: fd, addr: fmt.Sprintf("127.0.0.1:%d", port)}
}

// open starts a witness on the port.
func (p *deadPort) open() *Witness {
	p.t.Helper()
	must(p.t, syscall.Listen(p.fd, 128))
	fd, err := syscall.Dup(p.fd)
	must(p.t, err)
	file := os.NewFile(uintptr(fd), p.addr)
	listener, err := net.FileListener(file)
	_ = file.Close() // the listener has a copy of the descriptor
	must(p.t, err)
	return newWitnessOn(p.t, listener)
}

// close cuts off a witness, and lets the port refuse connections again.
func (p *deadPort) close(w *Witness) {
	p.t.Helper()
	must(p.t, syscall.Shutdown(p.fd, syscall.SHUT_RD)) // it stays bound
	_ = w.Close()
}

// metric reads the value of a metric from /metrics. An answer lacks what the database was too busy to tell.
func metric(t *testing.T, a *client.Client, name string) (value float64) {
	t.Helper()
	await(t, "the metric "+name, func() (found bool) {
		_, text := ask(t, http.MethodGet, a.URL+"/metrics", "")
		for line := range strings.Lines(text) {
			if n, _ := fmt.Sscanf(line, name+" %g", &value); n == 1 {
				return true
			}
		}
		return false
	})
	return value
}

// ramps checks the pace of requests to a target that is up again. The first requests must come one at a time, with one
// more for each answer. Besides those, one request a second needs no answer before it.
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

// A target dies and comes back on the same port as often as a test likes.
//
// On a port that Linux had chosen it came back on another.
func TestADeadPortIsTheSameAgain(t *testing.T) {
	t.Parallel()
	p := newDeadPort(t)
	for range 3 {
		w := p.open()
		if _, text := ask(t, http.MethodGet, "http://"+p.addr+"/up", ""); len(w.Requests()) != 1 {
			t.Fatalf("%d requests, and the answer %q", len(w.Requests()), text)
		}
		p.close(w)
		if c, err := net.Dial("tcp", p.addr); err == nil {
			_ = c.Close()
			t.Fatal("it takes connections while it is closed")
		}
	}
}
