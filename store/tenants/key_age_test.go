package tenants_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/tenants"
)

func TestKeysThatExpireSoonAreLoggedAndMeasured(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 2, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	const metric = "punctual_next_key_expiry_timestamp_seconds"
	made, err := c.Tenants.CreateTenant(t.Context(), tenants.Tenant{Name: "other", Weight: 1})
	if err != nil {
		t.Fatal(err)
	}
	var soonest time.Time
	for _, k := range []struct {
		tenant     int32
		name, left string
		made       string // before it expires
	}{
		{1, "late", "300 days", "365 days"},
		{1, "soon", "20 days", "365 days"},
		{1, "of-programs", "1 hour", "7 days"},
		{1, "revoked", "1 day", "365 days"},
		{1, "expired", "-1 day", "365 days"},
		{made.ID, "theirs", "40 days", "365 days"},
	} {
		if _, _, err := c.Tenants.CreateKey(t.Context(), k.tenant, tenants.NewKey{Name: k.name, Role: "viewer"}); err != nil {
			t.Fatal(err)
		}
		c.Exec(`UPDATE punctual.api_keys
			SET created_at = now() + $1::text::interval - $2::text::interval, expires_at = now() + $1::text::interval,
			    revoked_at = CASE WHEN name = 'revoked' THEN now() END
			WHERE name = $3`, k.left, k.made, k.name)
	}
	if err := c.DB.Callers.QueryRow(t.Context(), `
		SELECT expires_at FROM punctual.api_keys WHERE name = 'soon'`).Scan(&soonest); err != nil {
		t.Fatal(err)
	}
	if got := c.Metric(metric); !strings.Contains(got, fmt.Sprintf("%q %v", "default", float64(soonest.UnixMicro())/1e6)) ||
		!strings.Contains(got, `"other" `) {
		t.Errorf("the metric is %s, want %v of default", got, soonest)
	}
	for range 2 { // the second time is not a day later
		if err := c.Tenants.WarnOfKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "an API key expires") != 1 || !strings.Contains(got, "tenant=default name=soon") {
		t.Errorf("logged %s", got)
	}
}

// The keys that expire next are found by index, however many keys there are.
func TestTheKeysThatExpireNextAreFoundByIndex(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Exec(`INSERT INTO punctual.api_keys (id, tenant, name, prefix, hash, role, created_by, expires_at)
		SELECT gen_random_uuid(), 1, 'k', lpad(n::text, 16, '0'), decode(repeat('00', 32), 'hex'), 'viewer', 'x',
		       now() + n * interval '1 hour'
		FROM generate_series(1, 20000) n`)
	c.Exec(`ANALYZE punctual.api_keys`)
	watch := c.Reopened(t, dsn)
	all := watch.Count(`SELECT pg_relation_size('punctual.api_keys')::int / 8192`)
	read := watch.PagesRead(`^api_keys$`, func() {
		if next, err := watch.Tenants.NextKeyExpiries(t.Context()); err != nil || len(next) != 1 {
			t.Errorf("%v, %v", next, err)
		}
		if err := watch.Tenants.WarnOfKeys(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if read > all/3 {
		t.Errorf("%d of %d pages are read", read, all)
	}
}
