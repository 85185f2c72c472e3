package server

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler"
)

func TestAReplicaSendsNoMoreThanItHasDescriptorsFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit uint64
		slots int
		most  int
		warns bool
	}{
		{40, 500, 1, true},
		{256, 500, 256 - 64 - 25 - 32, true},
		{256, 100, 256 - 64 - 25 - 32, false},
		{1024, 500, 1024 - 256 - 25 - 32, false},
		{1024, 800, 1024 - 256 - 25 - 32, true},
		{1 << 20, 10_000, 1<<20 - mostConnections - 25 - 32, false},
		{math.MaxInt64, 10_000, math.MaxInt32 - mostConnections - 25 - 32, false},
	} {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, nil))
		most := mostRequests(log, c.limit, map[string]int{"a": c.slots - 50, "b": 50}, 25)
		if got := strings.Contains(lines.String(), "too few file descriptors"); got != c.warns || most != c.most {
			t.Errorf("%d descriptors and %d worker slots: %d requests, want %d; %q", c.limit, c.slots, most, c.most, &lines)
		}
	}
}

// refusing is a listener whose connections cannot be accepted for a while.
type refusing struct {
	net.Listener
	left int
}

func (l *refusing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return nil, net.ErrClosed
}

func TestAnAPIThatLacksDescriptorsWaitsAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		var shortages scheduler.Shortages
		l := bounded(&refusing{left: 50}, 1, slog.New(slog.NewTextHandler(&lines, nil)), &shortages)
		began := time.Now()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener that lacked descriptors ends with %v", err)
		}
		if n := strings.Count(lines.String(), "\n"); n != 1 || time.Since(began) < time.Second {
			t.Errorf("%d lines in %s:\n%s", n, time.Since(began), &lines)
		}
		if shortages.Lacks() == "" {
			t.Error("the replica does not know that it lacks descriptors")
		}
	})
}
