package guard

import (
	"net"
	"net/netip"
	"slices"
)

// An endpoint is something of Punctual's own.
type endpoint struct {
	what string
	at   func() []netip.AddrPort
}

// Protect refuses addresses to all jobs, whatever is allowed: a request to them would come from Punctual itself. An
// address of this machine stands for all of its addresses, with the same port. Errors call the addresses what. The
// guard calls at for every dial, so it must be fast. Call Protect before the guard is used.
func (g *Guard) Protect(what string, at func() []netip.AddrPort) {
	g.own = append(g.own, endpoint{what, at})
}

// ours names what of Punctual's own listens at an address; empty when nothing does.
func (g *Guard) ours(at netip.AddrPort) string {
	for _, e := range g.own {
		for _, known := range e.at() {
			if known.Port() != at.Port() {
				continue
			}
			addr := judged(known.Addr())
			if addr == at.Addr() || local(addr) && local(at.Addr()) {
				return e.what
			}
		}
	}
	return ""
}

// local reports whether an address is this machine's. It is asked only about ports of Punctual's own, so it can
// afford to look each time: addresses come and go.
func local(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() { // connecting to 0.0.0.0 connects to this machine
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, err := netip.ParsePrefix(a.String())
		return err == nil && n.Addr().Unmap() == addr
	})
}
