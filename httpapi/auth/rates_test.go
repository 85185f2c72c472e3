package auth

import (
	"net/http"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/tenants"
)

// With a large rate, one draw serves many requests.
func TestRequestsAreDrawnInChunks(t *testing.T) {
	t.Parallel()
	s := open(t)
	limit := 1000
	id := tenant(t, s, tenants.Tenant{Name: "alpha", Weight: 1, MaxRequestsPerSecond: &limit})
	r := newRates(s)
	spend := func(limit int, header http.Header) {
		t.Helper()
		for range 200 {
			limited := tenants.Brief{ID: id, MaxRequestsPerSecond: limit}
			if err := r.spend(t.Context(), limited, header); err != nil {
				t.Fatal(err)
			}
		}
	}
	began, before := time.Now(), s.Pool().Stat().AcquireCount()
	spend(limit, http.Header{})
	if n := s.Pool().Stat().AcquireCount() - before; n > 2+int64(time.Since(began)/drawnFor) {
		t.Errorf("%d draws", n)
	}
	spend(0, nil) // no header is written
	s.Close()
	spend(limit, http.Header{}) // without a database no request is refused
}

func TestARefusedTenantDoesNotAskAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := tenant(t, s, tenants.Tenant{Name: "alpha", Weight: 1})
	r := newRates(s)
	limited := tenants.Brief{ID: id, Name: "alpha", MaxRequestsPerSecond: 1}
	if err := r.spend(t.Context(), limited, map[string][]string{}); err != nil {
		t.Fatal(err)
	}
	began, before, refused := time.Now(), s.Pool().Stat().AcquireCount(), 0
	for range 500 {
		if r.spend(t.Context(), limited, map[string][]string{}) != nil {
			refused++
		}
	}
	seconds := int(time.Since(began).Seconds()) + 1
	if n := s.Pool().Stat().AcquireCount() - before; n > int64(2*seconds+1) {
		t.Errorf("%d draws in %d seconds", n, seconds)
	}
	if refused < 500-seconds-1 {
		t.Errorf("%d refused", refused)
	}
}

// open returns a store on a database of its own.
func open(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: pgtest.DSN(t), Master: pgtest.Master(t), Replica: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// tenant creates a tenant and returns its id.
func tenant(t testing.TB, s *store.Store, asked tenants.Tenant) int32 {
	t.Helper()
	made, err := s.Tenants.CreateTenant(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}
