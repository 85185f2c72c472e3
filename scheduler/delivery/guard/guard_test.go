package guard

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func networks(t testing.TB, texts ...string) []netip.Prefix {
	t.Helper()
	var list []netip.Prefix
	for _, text := range texts {
		n, err := ParseNetwork(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// at returns where something of Punctual's own listens.
func at(list ...string) func() []netip.AddrPort {
	var own []netip.AddrPort
	for _, text := range list {
		own = append(own, netip.MustParseAddrPort(text))
	}
	return func() []netip.AddrPort { return own }
}

func TestOnlyPublicAddressesMayBeCalled(t *testing.T) {
	rules := New(nil).Everybody()
	for _, public := range []string{
		"1.1.1.1:80", "8.8.8.8:443", "93.184.216.34:8080", "100.63.255.255:80", "100.128.0.0:80", "172.15.255.255:80",
		"172.32.0.0:80", "192.167.255.255:80",
		"11.0.0.0:80", "126.255.255.255:80", "128.0.0.0:80", "169.253.255.255:80", "169.255.0.0:80", "223.255.255.255:80",
		"168.63.129.15:80", "198.17.255.255:80", "198.20.0.0:80",
		"[2606:4700::1111]:443", "[2a00:1450:4001::1]:80", "[2001:4860:4860::8888]:443",
		"[::ffff:1.1.1.1]:80", "[64:ff9b::808:808]:80", // the IPv4 addresses that these embed are public
	} {
		if err := rules.Check(netip.MustParseAddrPort(public)); err != nil {
			t.Errorf("%s: %v", public, err)
		}
	}
	for kind, list := range map[string]string{
		"unspecified":          "0.0.0.0 [::] [::ffff:0.0.0.0]",
		"a loopback address":   "127.0.0.1 127.255.255.254 [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1]",
		"private":              "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 [fc00::1] [fdff::1] [::ffff:10.1.2.3] [64:ff9b::a01:203]",
		"link-local":           "169.254.0.1 169.254.255.255 [fe80::1] [::ffff:169.254.0.1] [64:ff9b::a9fe:1]",
		"a metadata service":   "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 192.0.0.192 [fd00:ec2::254] [fd00:ec2::23] [fd20:ce::254] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [64:ff9b::a9fe:a9fe]",
		"shared address space": "100.64.0.0 100.127.255.255",
		"multicast":            "224.0.0.1 239.255.255.250 [ff02::1] [ff0e::1]",
		"reserved": "0.1.2.3 192.0.0.8 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 192.88.99.1 240.0.0.1 255.255.255.255 " +
			"[::127.0.0.1] [::8.8.8.8] [2002:7f00:1::] [2002:808:808::1] [2001::1] [2001:0:53aa:64c::1] [2001:db8::1] [3fff::1] [100::1] [5f00::1] [fec0::1] " +
			"[64:ff9b:1::808:808] [64:ff9b:1:a9fe:a9:fe00::] [4000::1] [64:ff9a::808:808] [64:ff9b:0:0:0:1:808:808] [::ffff:0:7f00:1]",
	} {
		for host := range strings.FieldsSeq(list) {
			at := netip.MustParseAddrPort(host + ":80")
			err := rules.Check(at)
			if !errors.Is(err, ErrBlocked) ||
				!strings.Contains(err.Error(), at.String()[:len(at.String())-3]) &&
					!strings.Contains(err.Error(), at.Addr().String()) ||
				!strings.Contains(err.Error(), "is "+kind) || !strings.Contains(err.Error(), "--allow-targets=") {
				t.Errorf("%s: got %v, want … is %s; --allow-targets=… would allow it", host, err, kind)
			}
		}
	}
	if err := rules.Check(netip.MustParseAddrPort("[fe80::1%eth0]:80")); !errors.Is(err, ErrBlocked) {
		t.Errorf("with a zone: %v", err)
	}
}

func TestWhatIsAllowed(t *testing.T) {
	g := New(networks(t, "10.0.0.0/8", "fd00::/8", "100.64.0.0/10", "127.0.0.1/32", "169.254.169.254/32", "64:ff9b::/96"))
	g.SetTenants(map[int32][]netip.Prefix{
		1: networks(t, "192.168.7.0/24"), 2: networks(t, "172.16.0.0/12", "192.168.7.0/24"),
		3: networks(t, "192.168.7.0/24", "172.16.0.0/12"), 4: {},
		5: {netip.MustParsePrefix("::ffff:192.168.7.0/120")}, // the database accepts this form
	})
	for _, test := range []struct {
		tenant  int32
		address string
		ok      bool
	}{
		{9, "10.1.2.3:80", true},
		{9, "[::ffff:10.1.2.3]:80", true},
		{9, "[64:ff9b::a01:203]:80", true}, // leads to 10.1.2.3
		{9, "[64:ff9b::7f00:2]:80", false}, // leads to 127.0.0.2, which is not allowed, although the prefix is
		{9, "[fd00:ec2::254]:80", false},   // allowing a large network does not allow a metadata service in it
		{9, "100.100.100.200:80", false},   // likewise
		{9, "100.100.100.201:80", true},
		{9, "169.254.169.254:80", true}, // allowing a metadata service takes its own address
		{9, "127.0.0.1:1", true},
		{9, "127.0.0.2:1", false},
		{9, "192.168.7.1:80", false},
		{1, "192.168.7.1:80", true},
		{1, "192.168.8.1:80", false},
		{1, "10.1.2.3:80", true}, // a tenant may also call what every tenant may call
		{1, "172.16.0.1:80", false},
		{2, "172.16.0.1:80", true},
		{4, "192.168.7.1:80", false},
		{5, "192.168.7.1:80", true},
		{5, "[::ffff:192.168.7.1]:80", true},
	} {
		if err := g.For(test.tenant).Check(netip.MustParseAddrPort(test.address)); (err == nil) != test.ok {
			t.Errorf("tenant %d, %s: %v", test.tenant, test.address, err)
		}
	}
	if g.For(2) != g.For(3) || g.For(1) != g.For(5) || g.For(1) == g.For(2) || g.For(4) != g.Everybody() ||
		g.For(9) != g.Everybody() {
		t.Error("rules are shared by who may call the same, and by nobody else")
	}
	before := g.For(1)
	g.SetTenants(map[int32][]netip.Prefix{7: networks(t, "192.168.7.0/24")})
	if g.For(7) != before || g.For(1) != g.Everybody() ||
		g.For(1).Check(netip.MustParseAddrPort("192.168.7.1:80")) == nil {
		t.Error("what was taken back is still allowed, or what stays the same was made anew")
	}
}

func TestPunctualsOwnAddressesAreNeverCalled(t *testing.T) {
	everything := networks(t, "0.0.0.0/0", "::/0")
	g := New(everything)
	g.Protect("the API of this replica", at("0.0.0.0:8080"))
	g.Protect("the database of this replica", at("127.0.0.1:5432", "203.0.113.7:6432", "[2001:db8::7]:6432"))
	rules := g.Everybody()
	mine := []string{"127.0.0.1", "127.9.9.9", "[::1]", "[::]", "0.0.0.0", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n := netip.MustParsePrefix(a.String()).Addr(); n.Is6() {
			mine = append(mine, "["+n.String()+"]")
		} else {
			mine = append(mine, n.String())
		}
	}
	for _, host := range mine {
		for port, what := range map[string]string{":8080": "the API", ":5432": "the database"} {
			if err := rules.Check(netip.MustParseAddrPort(host + port)); !errors.Is(err, ErrBlocked) ||
				!strings.Contains(err.Error(), what+" of this replica, which no job may call") {
				t.Errorf("%s%s: %v", host, port, err)
			}
		}
		if err := rules.Check(netip.MustParseAddrPort(host + ":8081")); err != nil {
			t.Errorf("%s with another port: %v", host, err)
		}
	}
	for address, ok := range map[string]bool{
		"203.0.113.7:6432": false, "[::ffff:203.0.113.7]:6432": false, "[64:ff9b::cb00:7107]:6432": false,
		"[2001:db8::7]:6432": false,
		"203.0.113.7:80":     true, "203.0.113.8:6432": true, "203.0.113.8:8080": true, "203.0.113.8:5432": true,
	} {
		if err := rules.Check(netip.MustParseAddrPort(address)); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestNetworksAreReadStrictly(t *testing.T) {
	for _, text := range []string{"10.0.0.0/8", "127.0.0.1/32", "::1/128", "fd00::/8", "0.0.0.0/0"} {
		if n, err := ParseNetwork(text); err != nil || n.String() != text {
			t.Errorf("%s: %v, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{
		"": "10.0.0.0/8", "10.0.0.0": "10.1.2.3/32", "10.0.0.0/33": "is not a network", "10.0.0/8": "is not a network",
		"internal": "is not a network", "10.0.0.0/08": "is not a network",
		"fe80::1%eth0/64": "is not a network", "10.1.2.3/8": "10.0.0.0/8", "fd00::1/8": "fd00::/8",
		"::ffff:10.0.0.0/104": "IPv4", " 10.0.0.0/8": "is not a network",
	} {
		if _, err := ParseNetwork(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("%q: %v, want … %s …", text, err, want)
		}
	}
}

func TestURLsThatNameAnAddress(t *testing.T) {
	g := New(networks(t, "127.0.0.0/8"))
	g.Protect("the API of this replica", at("127.0.0.1:443"))
	for raw, ok := range map[string]bool{
		"http://example.com/": true, "http://10.1.2.3.example.com/": true, "http://localhost.example.com/": true,
		"http://1.1.1.1/": true, "https://[2606:4700::1111]/": true,
		"http://127.0.0.1/": true, "http://localhost/": true, "http://localhost.:8080/": true,
		"http://a.b.LOCALHOST/": true, "http://127.0.0.1:444/": true,
		"https://127.0.0.1/": false, "http://127.0.0.1:443/": false, "https://127.5.5.5/": false,
		"https://localhost/": false,
		"http://10.1.2.3/":   false, "http://169.254.169.254/latest/": false, "http://[::ffff:169.254.169.254]/": false,
		"http://[64:ff9b::a9fe:a9fe]/": false, "http://[::1]/": false,
		"http://[::]/": false, "http://0.0.0.0/": false, "http://[fd00:ec2::254]/": false, "http://[fe80::1]/": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Everybody().CheckTarget(u); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
	u, _ := url.Parse("http://localhost/")
	if err := New(nil).Everybody().CheckTarget(u); err == nil {
		t.Error("localhost is not told to be this machine")
	}
}

func BenchmarkCheck(b *testing.B) {
	g := New(Private)
	g.Protect("the database of this replica", at("10.0.0.5:5432"))
	for name, address := range map[string]string{
		"public": "93.184.216.34:443", "public IPv6": "[2606:4700::1111]:443", "allowed": "192.168.7.1:80",
	} {
		at := netip.MustParseAddrPort(address)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := g.For(1).Check(at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
