package secrets_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/secrets"
)

// Any replica opens what another has sealed. Nobody else can.
func TestAnyReplicaOpensASession(t *testing.T) {
	t.Parallel()
	dsn, master := pgtest.DSN(t), pgtest.Master(t)
	replica := func() *store.Store {
		s := OpenStore(t, store.Options{DatabaseURL: dsn, Master: master, Replica: true})
		Must(t, s.Secrets.OpenVault(t.Context()))
		return s
	}
	first, second := replica(), replica()
	sealed, err := first.Secrets.SealSession(t.Context(), []byte("who"))
	Must(t, err)
	if strings.Contains(sealed, "who") {
		t.Errorf("the session can be read: %s", sealed)
	}
	for _, s := range []*store.Store{first, second} {
		if got, err := s.Secrets.OpenSession(t.Context(), sealed); err != nil || string(got) != "who" {
			t.Errorf("%q, %v", got, err)
		}
	}
	other := "A"
	if sealed[20] == 'A' {
		other = "B"
	}
	for _, forged := range []string{
		"", "!", sealed[:len(sealed)-2], "AAAAAAAAAAAAAAAA" + sealed[16:], sealed[:20] + other + sealed[21:],
	} {
		if got, err := first.Secrets.OpenSession(t.Context(), forged); !errors.Is(err, secrets.ErrSession) {
			t.Errorf("%q: %q, %v", forged, got, err)
		}
	}
	if _, err := second.Secrets.RotateSecrets(t.Context(), master); err != nil {
		t.Fatal(err)
	}
	if sealed, err = second.Secrets.SealSession(t.Context(), []byte("later")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for { // it looks for keys that it does not know once a second
		if got, err := first.Secrets.OpenSession(ctx, sealed); err == nil && string(got) == "later" {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("waited in vain for the new data key to be known")
		}
	}
}

// A flood of forged sessions is no flood of queries.
func TestForgedSessionsCostFewQueries(t *testing.T) {
	t.Parallel()
	s := OpenStore(t, store.Options{DatabaseURL: pgtest.DSN(t), Master: pgtest.Master(t), Replica: true})
	began, before := time.Now(), s.Pool().Stat().AcquireCount()
	for range 500 {
		if _, err := s.Secrets.OpenSession(t.Context(), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"); !errors.Is(err, secrets.ErrSession) {
			t.Fatal(err)
		}
	}
	if n := s.Pool().Stat().AcquireCount() - before; n > 2*(2+int64(time.Since(began).Seconds())) {
		t.Errorf("%d queries", n)
	}
}
