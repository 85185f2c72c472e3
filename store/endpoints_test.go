package store

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler"
)

func TestEndpointsAreWhereTheDatabaseIs(t *testing.T) {
	t.Parallel()
	server, dsn := pgtest.Server(t), pgtest.DSN(t)
	tcp := pgtest.TCP(t, server, dsn)
	config, err := pgx.ParseConfig(tcp)
	if err != nil {
		t.Fatal(err)
	}
	itself := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), config.Port)
	_, proxied := pgtest.NewProxy(t, tcp)
	proxy, err := pgx.ParseConfig(proxied)
	if err != nil {
		t.Fatal(err)
	}
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
			s, err := Open(t.Context(), Options{DatabaseURL: test.dsn})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, want := range test.want {
				if !slices.Contains(s.Endpoints(), want) {
					t.Errorf("%s is not among %s", want, s.Endpoints())
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

func TestARenewalTellsWhomTenantsMayCall(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{DatabaseURL: pgtest.DSN(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	replica := scheduler.Replica{ID: uuid.New(), Queues: map[string]int{"default": 1}}
	if _, err := s.Register(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		sql  string
		want map[int32][]netip.Prefix
	}{
		{`SELECT`, map[int32][]netip.Prefix{}},
		{
			`UPDATE punctual.tenants SET allowed_targets = '{10.0.0.0/8,fd00:7::/64,127.0.0.1}' WHERE name = 'default'`,
			map[int32][]netip.Prefix{1: {
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:7::/64"),
				netip.MustParsePrefix("127.0.0.1/32"),
			}},
		},
		{`UPDATE punctual.tenants SET deleted_at = now()`, map[int32][]netip.Prefix{}},
	} {
		if _, err := s.pool.Exec(t.Context(), test.sql); err != nil {
			t.Fatal(err)
		}
		pulse, err := s.Renew(t.Context(), replica.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, pulse.AllowedTargets,
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", test.sql, diff)
		}
	}
}
