package pg

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

func TestEndpointsAreWhereTheDatabaseIs(t *testing.T) {
	t.Parallel()
	server, dsn := pgtest.Server(t), pgtest.DSN(t)
	tcp := pgtest.TCP(t, server, dsn)
	config, err := pgx.ParseConfig(tcp)
	must(t, err)
	itself := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), config.Port)
	_, proxied := pgtest.NewProxy(t, tcp)
	proxy, err := pgx.ParseConfig(proxied)
	must(t, err)
	between := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), proxy.Port)
	for name, test := range map[string]struct {
		dsn  string
		want []netip.AddrPort
	}{
		"by a socket":      {dsn, []netip.AddrPort{itself}},
		"by TCP":           {tcp, []netip.AddrPort{itself}},
		"behind something": {proxied, []netip.AddrPort{between, itself}},
		"by a name":        {pgtest.Through(t, tcp, "localhost:"+portOf(itself)), []netip.AddrPort{itself}},
		"the second of several hosts": {
			pgtest.Through(t, tcp, "127.0.0.2:1,127.0.0.1:"+portOf(itself)),
			[]netip.AddrPort{netip.MustParseAddrPort("127.0.0.2:1"), itself},
		},
		"the first of several hosts": {
			pgtest.Through(t, tcp, "127.0.0.1:"+portOf(itself)+",127.0.0.2:1"),
			[]netip.AddrPort{netip.MustParseAddrPort("127.0.0.2:1"), itself},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := Open(t.Context(), Config{URL: test.dsn})
			must(t, err)
			defer db.Close()
			for _, want := range test.want {
				if !slices.Contains(db.Endpoints(), want) {
					t.Errorf("%s is not among %s", want, db.Endpoints())
				}
			}
		})
	}
}

func portOf(at netip.AddrPort) string {
	_, port, _ := strings.Cut(at.String(), ":")
	return port
}

func TestEndpointsAreBounded(t *testing.T) {
	var e endpoints
	first := netip.MustParseAddr("192.0.2.1")
	e.add(first, 1)
	held := e.known
	for port := range uint16(2 * mostEndpoints) {
		e.add(first, port+2)
		e.add(first, port+2)
	}
	if len(e.known) != mostEndpoints || e.known[mostEndpoints-1].Port() != 2*mostEndpoints+1 || held[0].Port() != 1 {
		t.Errorf("%d are known, the last is %s", len(e.known), e.known[len(e.known)-1])
	}
}
