package guard

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Loopback and Private are the networks within one machine, and the networks that organisations number as they like.
var (
	Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	Private  = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fc00::/7"),
	}
)

// A Guard knows which addresses the tenants of a deployment may call. It is safe for concurrent use.
type Guard struct {
	allowed []netip.Prefix // for every tenant
	base    *Rules         // rules of tenants without a list of their own
	own     []endpoint     // set before use

	mu      sync.Mutex // held by SetTenants
	tenants atomic.Pointer[map[int32]*Rules]
}

// New returns a guard that allows every tenant the given networks, besides public addresses.
func New(allowed []netip.Prefix) *Guard {
	g := &Guard{allowed: normal(allowed)}
	g.base = newRules(g, nil)
	g.tenants.Store(&map[int32]*Rules{})
	return g
}

// For returns the rules of a tenant. Tenants that may call the same addresses have the same rules. So they can share
// connections, and only they.
func (g *Guard) For(tenant int32) *Rules {
	if r, ok := (*g.tenants.Load())[tenant]; ok {
		return r
	}
	return g.base
}

// Everybody returns the rules of tenants without a list of their own.
func (g *Guard) Everybody() *Rules { return g.base }

// SetTenants replaces the networks that single tenants may call beside what every tenant may. Rules that stay the
// same stay identical.
func (g *Guard) SetTenants(allowed map[int32][]netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := map[string]*Rules{}
	for _, r := range *g.tenants.Load() {
		known[r.key] = r
	}
	tenants := make(map[int32]*Rules, len(allowed))
	for tenant, networks := range allowed {
		networks = normal(networks)
		if len(networks) == 0 {
			continue
		}
		key := fmt.Sprint(networks)
		if known[key] == nil {
			known[key] = newRules(g, networks)
		}
		tenants[tenant] = known[key]
	}
	if !maps.Equal(tenants, *g.tenants.Load()) {
		g.tenants.Store(&tenants)
	}
}

// normal brings networks into one form, so that equal lists compare equal.
func normal(networks []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, n := range networks {
		if a := n.Addr(); a.Is4In6() && n.Bits() >= 96 {
			n = netip.PrefixFrom(a.Unmap(), n.Bits()-96)
		}
		if n.IsValid() {
			list = append(list, n.Masked())
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// ParseNetwork reads a network that may be called.
func ParseNetwork(text string) (netip.Prefix, error) {
	n, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return n, fmt.Errorf(
			"%q is not a network; write one such as 10.0.0.0/8, or a single address as 10.1.2.3/32 or fd00::7/128", text)
	case n.Addr().Is4In6():
		return n, fmt.Errorf("%q: write a network of IPv4 addresses as such, as 10.0.0.0/8", text)
	case n != n.Masked():
		return n, fmt.Errorf("%q has bits set behind its length; the network is %s, the single address %s",
			text, n.Masked(), netip.PrefixFrom(n.Addr(), n.Addr().BitLen()))
	}
	return n, nil
}

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
