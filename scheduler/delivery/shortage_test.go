package delivery

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

// An error of the replica's own resources is not blamed on the target.
//
//prove:replicas
func TestWhoseAFailureIs(t *testing.T) {
	t.Parallel()
	dial := func(to string, call string, errno syscall.Errno) error {
		addr, err := net.ResolveTCPAddr("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		return &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError(call, errno)}
	}
	const loopback, nowhere = "127.0.0.1:9", "[fe80::1%none]:9"
	for _, c := range []struct {
		name  string
		err   error
		lacks bool
	}{
		{"the process has no descriptor left", dial(loopback, "socket", syscall.EMFILE), true},
		{"nor has the machine", dial(loopback, "socket", syscall.ENFILE), true},
		{"no buffers", dial(loopback, "connect", syscall.ENOBUFS), true},
		{"no memory", dial(loopback, "socket", syscall.ENOMEM), true},
		{"the interface is down", dial(loopback, "connect", syscall.ENETDOWN), true},
		{"while a connection is secured", &handshakeError{&net.OpError{Op: "write", Err: syscall.ENOBUFS}}, true},
		{"of the proxy", &proxyError{err: dial(loopback, "socket", syscall.EMFILE)}, true},
		{"of the resolver", &net.OpError{Op: "dial", Err: &net.DNSError{
			Err: "dial udp 127.0.0.1:53: socket: " + syscall.EMFILE.Error(), Name: "a.test", IsTemporary: true,
		}}, true},
		{"of the C library's resolver", &net.DNSError{Err: syscall.EMFILE.Error(), Name: "a.test"}, true},
		{"the ports to an address are used up", dial(loopback, "connect", syscall.EADDRNOTAVAIL), true},
		{"there is no way to an address", dial(nowhere, "connect", syscall.EADDRNOTAVAIL), false},
		{"no route", dial(loopback, "connect", syscall.ENETUNREACH), false},
		{"no route to the host", dial(loopback, "connect", syscall.EHOSTUNREACH), false},
		{"no IPv6", dial(loopback, "socket", syscall.EAFNOSUPPORT), false},
		{"a firewall here", dial(loopback, "connect", syscall.EPERM), false},
		{"refused", dial(loopback, "connect", syscall.ECONNREFUSED), false},
		{"the proxy is away", &proxyError{err: dial(loopback, "connect", syscall.ECONNREFUSED), away: true}, true},
		{"the proxy breaks off", &proxyError{err: dial(loopback, "connect", syscall.ECONNRESET)}, false},
		{"the name does not exist", &net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{"the resolver does not answer", &net.DNSError{Err: "i/o timeout", IsTimeout: true}, false},
		{"anything else", errors.New("?"), false},
		{"nothing", nil, false},
	} {
		if got := Shortage(c.err); (got != "") != c.lacks {
			t.Errorf("%s: the replica lacks %q", c.name, got)
		}
		if c.err == nil {
			continue
		}
		if got := Shortage(fmt.Errorf("wrapped: %w", c.err)); (got != "") != c.lacks {
			t.Errorf("%s, wrapped: the replica lacks %q", c.name, got)
		}
	}
}
