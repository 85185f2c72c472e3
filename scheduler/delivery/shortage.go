package delivery

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
)

// shortages says what this replica lacks when the system refuses it something, and which limit that is.
var shortages = []struct {
	errno syscall.Errno
	lacks string
}{
	{syscall.EMFILE, "file descriptors of its process (ulimit -n, RLIMIT_NOFILE)"},
	{syscall.ENFILE, "file descriptors of its machine (fs.file-max)"},
	{syscall.ENOBUFS, "memory for sockets (ENOBUFS)"},
	{syscall.ENOMEM, "memory (ENOMEM)"},
	{syscall.ENETDOWN, "a network: its interface is down (ENETDOWN)"},
}

// Ports is what a replica lacks that has used up its local ports to one address. It has them for all others.
const Ports = "local ports to the target's address (net.ipv4.ip_local_port_range)"

// proxyAway is what a replica lacks that cannot reach its proxy.
const proxyAway = "a connection to its proxy (--egress-proxy)"

// Lacking returns everything that [Shortage] may return, but for the empty text.
func Lacking() []string {
	all := []string{Ports, proxyAway}
	for _, s := range shortages {
		all = append(all, s.lacks)
	}
	return all
}

// Shortage returns what this replica lacks, if that is why something failed; empty: the failure is of somebody else.
// What the system says of the way to one target is not the replica's: no route (ENETUNREACH), no IPv6 (EAFNOSUPPORT,
// EADDRNOTAVAIL), or a firewall (EACCES, EPERM).
func Shortage(err error) (lacks string) {
	var (
		dns     *net.DNSError
		through *proxyError
		errno   syscall.Errno
	)
	if errors.As(err, &dns) {
		// The resolver needs sockets too, and keeps no more of an error than its text.
		for _, s := range shortages {
			if strings.HasSuffix(dns.Err, s.errno.Error()) {
				return s.lacks
			}
		}
	}
	errors.As(err, &errno)
	for _, s := range shortages {
		if errno == s.errno {
			return s.lacks
		}
	}
	if errors.As(err, &through) {
		if through.away {
			return proxyAway
		}
		return ""
	}
	if slices.Contains([]syscall.Errno{syscall.EADDRNOTAVAIL, syscall.EAGAIN}, errno) && hasSource(err) {
		return Ports
	}
	return ""
}

// hasSource reports whether this machine has an address from which it can call the target of a failed connect. If not,
// the same errno means that: IPv6 is often switched off. A connected UDP socket sends nothing.
func hasSource(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || op.Addr == nil {
		return false
	}
	c, err := net.Dial("udp", op.Addr.String())
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
