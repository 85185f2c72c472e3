package auth

import (
	"net/netip"
	"testing"
	"time"
)

func TestTheFloodgateCountsByAddressAndAll(t *testing.T) {
	t.Parallel()
	var f *floodgate
	admitted := func(n int, from func(i int) netip.Addr) (yes int, took time.Duration) {
		began := time.Now()
		for i := range n {
			if f.admits(from(i)) {
				yes++
			}
		}
		return yes, time.Since(began)
	}
	one := func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	network := func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}) }
	many := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for name, c := range map[string]struct {
		from        func(int) netip.Addr
		rate, burst float64
	}{
		"one address":         {one, UnknownOfAddress, BurstOfAddress},
		"one network of IPv6": {network, UnknownOfAddress, BurstOfAddress},
		"many addresses":      {many, unknownOfAll, burstOfAll},
	} {
		f = newFloodgate(keyFloods)
		yes, took := admitted(3*burstOfAll, c.from)
		if most := c.burst + c.rate*took.Seconds() + 1; float64(yes) < c.burst || float64(yes) > most {
			t.Errorf("%s: %d admitted, want %v to %v", name, yes, c.burst, most)
		}
	}
	f = newFloodgate(keyFloods)
	admitted(BurstOfAddress+1, one)
	if !f.admits(many(1)) {
		t.Error("another address is kept out")
	}
	admitted(2*mostAddresses, many)
	if f.of.Len() > mostAddresses {
		t.Errorf("%d addresses are kept", f.of.Len())
	}
}
