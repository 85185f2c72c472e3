package guard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// FuzzCheck checks that no spelling of a non-public address passes the rules, by a reading of addresses that shares no
// code with them. Every refusal is an ErrBlocked that names the address, from Check and from Control alike.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1",
		"fe80::1%eth0", "::127.0.0.1", "168.63.129.16", "8.8.8.8", "2606:4700::1111", "fec0::1",
	} {
		a := netip.MustParseAddr(seed).As16()
		f.Add(a[:], uint16(80))
	}
	rules := New(nil).Everybody()
	f.Fuzz(func(t *testing.T, raw []byte, port uint16) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		err := rules.Check(netip.AddrPortFrom(addr, port))
		if err == nil && !public(addr) {
			t.Fatalf("%s may be called", addr)
		}
		if err != nil && (!errors.Is(err, ErrBlocked) || !strings.Contains(err.Error(), addr.String())) {
			t.Fatalf("%s: %v", addr, err)
		}
		network := "tcp6"
		if addr.Is4() {
			network = "tcp4"
		}
		if again := rules.Control(network, netip.AddrPortFrom(addr, port).String(), nil); (again == nil) != (err == nil) {
			t.Fatalf("%s: %v when dialled, %v when written", addr, again, err)
		}
	})
}

// public reports whether an address is public, judged by its bytes alone.
func public(addr netip.Addr) bool {
	b := addr.As16()
	v4 := addr.Is4() || addr.Is4In6()
	if !v4 && [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b} {
		v4 = true
	}
	if !v4 {
		six := b[0]&0xe0 == 0x20                                              // 2000::/3
		special := b[0] == 0x20 && (b[1] == 0x02 || b[1] == 0x01 && b[2] < 2) // 6to4 and 2001::/23
		documentation := b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8
		return six && !special && !documentation
	}
	a, c := b[12], b[13]
	switch {
	case a == 0, a == 10, a == 127, a >= 224, a == 100 && c >= 64 && c < 128, a == 169 && c == 254,
		a == 172 && c >= 16 && c < 32, a == 192 && c == 168, a == 198 && (c == 18 || c == 19):
		return false
	}
	return [4]byte(b[12:]) != [4]byte{168, 63, 129, 16}
}
