package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrBlocked is wrapped by the error of every refusal.
var ErrBlocked = errors.New("the address is not allowed")

// Rules say which addresses some tenants may call.
type Rules struct {
	guard   *Guard
	key     string         // equal for equal lists
	allowed []netip.Prefix // networks of the deployment and of the tenants
	public  *ssrf.Guardian
}

func newRules(g *Guard, networks []netip.Prefix) *Rules {
	return &Rules{
		guard: g, key: fmt.Sprint(networks), allowed: slices.Concat(g.allowed, networks),
		public: ssrf.New(ssrf.WithAnyPort()),
	}
}

// Control is for [net.Dialer.Control]: it refuses an address right before it is connected to.
func (r *Rules) Control(network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: %s %s is no TCP address", ErrBlocked, network, address)
	}
	return r.Check(at)
}

// Check returns nil when the address may be called. Otherwise it returns an error that wraps [ErrBlocked], names the
// address and says what would allow it.
func (r *Rules) Check(at netip.AddrPort) error {
	addr := judged(at.Addr())
	if what := r.guard.ours(netip.AddrPortFrom(addr, at.Port())); what != "" {
		return fmt.Errorf("%w: %s is %s, which no job may call", ErrBlocked, at, what)
	}
	if r.allows(addr) {
		return nil
	}
	if slices.Contains(metadata, addr) {
		return refusal(at.Addr(), addr, "a metadata service")
	}
	if r.public.SafeAddr(addr) != nil {
		return refusal(at.Addr(), addr, kindOf(addr))
	}
	return nil
}

// allows reports whether a list names the address. A large network does not allow a metadata service within it: such
// services give out the credentials of the machine, and an operator who allows a large network hardly means them.
func (r *Rules) allows(addr netip.Addr) bool {
	secretive := slices.Contains(metadata, addr)
	return slices.ContainsFunc(r.allowed, func(n netip.Prefix) bool {
		return n.Contains(addr) && (n.IsSingleIP() || !secretive)
	})
}

func refusal(written, addr netip.Addr, kind string) error {
	within := ""
	if written.Unmap() != addr {
		within = " leads to " + addr.String() + ", which"
	}
	return fmt.Errorf("%w: %s%s is %s; --allow-targets=%s, or allowed_targets of the tenant, would allow it",
		ErrBlocked, written, within, kind, netip.PrefixFrom(addr, addr.BitLen()))
}

// judged returns the address that a connection to addr leads to.
func judged(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

var nat64 = ssrf.IPv6NAT64Prefix

// metadata are services that give credentials, or the machine's configuration, to any caller that can reach them.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Google, Azure and most others
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("169.254.170.2"),   // AWS ECS: credentials of the task
	netip.MustParseAddr("169.254.170.23"),  // AWS EKS: credentials of the pod
	netip.MustParseAddr("fd00:ec2::23"),    // AWS EKS: credentials of the pod
	netip.MustParseAddr("169.254.0.23"),    // Tencent
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure's own, at an address that is public elsewhere
}

var shared = netip.MustParsePrefix("100.64.0.0/10")

// kindOf says for people why an address is not public.
func kindOf(addr netip.Addr) string {
	switch {
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	case shared.Contains(addr):
		return "shared address space"
	}
	return "reserved"
}

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
