package store

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler"
)

func TestARenewalTellsWhomTenantsMayCall(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{DatabaseURL: pgtest.DSN(t)})
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
		if _, err := s.db.Pool().Exec(t.Context(), test.sql); err != nil {
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
