package guard

import (
	"net/netip"
	"net/url"
	"strings"
)

// CheckTarget judges a URL by its text: an address, or a name that means this machine everywhere. For any other name
// it returns nil: only resolving the name tells, and that happens right before each request. It serves to tell the
// author of a job at once. It decides nothing, because what is allowed may change.
func (r *Rules) CheckTarget(u *url.URL) error {
	port := uint16(80)
	if u.Scheme == "https" {
		port = 443
	}
	if at, err := netip.ParseAddrPort("0.0.0.0:" + u.Port()); err == nil {
		port = at.Port()
	}
	var first error
	for _, addr := range written(u.Hostname()) {
		err := r.Check(netip.AddrPortFrom(addr, port))
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// written returns the addresses that a host means by itself.
func written(host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 section 6.3
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
}
