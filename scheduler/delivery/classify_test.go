package delivery

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestErrorsOfTheSystemNameTheAddress(t *testing.T) {
	t.Parallel()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	for _, c := range []struct {
		errno syscall.Errno
		at    net.Addr
		want  string
	}{
		{syscall.ECONNREFUSED, at, "connection refused by 127.0.0.1:9"},
		{syscall.ECONNRESET, at, "connection reset by 127.0.0.1:9"},
		{syscall.EHOSTUNREACH, at, "127.0.0.1:9: no route to host"},
		{syscall.ECONNRESET, nil, "connection reset by peer"},
	} {
		reason, text := classify(&net.OpError{
			Op: "dial", Net: "tcp", Addr: c.at, Err: os.NewSyscallError("connect", c.errno),
		}, false)
		if reason != ReasonConnect || text != c.want {
			t.Errorf("%s: %q, want %q", reason, text, c.want)
		}
	}
	if _, text := classify(syscall.ECONNREFUSED, false); text != "connection refused" {
		t.Errorf("of nobody known: %q", text)
	}
}

func TestTimeoutsAreWrittenAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		30 * time.Second: "30s", 10 * time.Minute: "10m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m",
		90 * time.Second: "1m30s", 150 * time.Millisecond: "150ms",
	} {
		if got := Short(d); got != want {
			t.Errorf("%s is written %q, want %q", d, got, want)
		}
	}
}
