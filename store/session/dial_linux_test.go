package session_test

import (
	"net"
	"syscall"
	"testing"

	"punctual/internal/pgtest"
	"punctual/store/pg"
)

// TCP gives up a connection to a vanished server after 15 s.
//
// A connection to a server that has vanished.
//
//prove:database
func TestAConnectionToAVanishedDatabaseIsGivenUp(t *testing.T) {
	t.Parallel()
	db, err := pg.Open(t.Context(), pg.Config{URL: pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t))})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Callers.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	raw, err := conn.Conn().PgConn().Conn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ option, want int }{
		"unacknowledged data, in ms":   {0x12, 15_000},
		"silence before a probe, s":    {syscall.TCP_KEEPIDLE, 5},
		"time between two probes, s":   {syscall.TCP_KEEPINTVL, 5},
		"probes before it is given up": {syscall.TCP_KEEPCNT, 2},
	} {
		var got int
		failed := raw.Control(func(fd uintptr) {
			got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, test.option)
		})
		if failed != nil || err != nil || got != test.want {
			t.Errorf("%s: %d (%v, %v), want %d", name, got, failed, err, test.want)
		}
	}
}
