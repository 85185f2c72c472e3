package auth

import (
	"crypto"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"punctual/internal/oidctest"
)

func TestClaimsMayBeNested(t *testing.T) {
	t.Parallel()
	var said map[string]any
	if err := json.Unmarshal([]byte(`{"a":{"b":{"c":"deep"},"d":7},"https://example.com/role":"viewer",`+
		`"list":["x",1,"y"]}`), &said); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"a.b.c": {"deep"}, "https://example.com/role": {"viewer"}, "list": {"x", "y"}, "a.d": nil, "a.b": nil, "a.b.c.d": nil,
		"nothing": nil, "nothing.at.all": nil, "": nil,
	} {
		if diff := cmp.Diff(want, texts(claimed(said, name))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if r, known := Greatest([]string{"viewer", "operator", "editor"}); r != RoleOperator || !known {
		t.Errorf("the greatest is %s", r)
	}
}

func TestNewKeysOfTheIssuerAreFound(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	config := configOf(i)
	config.JWKSURL = i.URL + "/keys"
	tokens := newTokens(config, slog.New(slog.DiscardHandler))
	verify := func(kid string) error {
		tokens.known.Purge()
		_, err := tokens.verify(t.Context(), oidctest.Sign(t, jose.ES256, i.Key(kid), kid, i.Claims(nil)))
		return err
	}
	if err := verify("k1"); err != nil {
		t.Fatal(err)
	}
	i.Rotate("k2")
	if err := verify("k2"); err == nil {
		t.Error("a new key is known although nobody has asked")
	}
	tokens.fetches.documents[config.JWKSURL].at = time.Now().Add(-FetchAgain) // as if fetched long ago
	for _, kid := range []string{"k2", "k1"} {
		// For a moment, the library may still return the answer to the previous fetch.
		known := func() bool { return verify(kid) == nil }
		for deadline := time.Now().Add(30 * time.Second); !known(); {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s to be known", kid)
			}
		}
	}
	if i.Found.Load() != 0 || i.Asked.Load() != 2 {
		t.Errorf("asked %d times for discovery, %d for keys", i.Found.Load(), i.Asked.Load())
	}
	tokens.fetches.documents[config.JWKSURL].at = time.Now().Add(-FetchAgain)
	i.Away.Store(true)
	if err := verify("k1"); err != nil {
		t.Errorf("what is known is not used while the issuer is away: %v", err)
	}
}

func TestAVerifiedTokenIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		i := oidctest.Silent(t, "https://login.example")
		tokens := newTokens(configOf(i), slog.New(slog.DiscardHandler))
		tokens.verifier = oidc.NewVerifier(i.URL,
			&oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{i.Key("k1").Public()}}, tokens.config())
		token := i.Token(map[string]any{"exp": began.Add(time.Second - leeway).Unix()})
		verified := func() bool {
			_, err := tokens.verify(t.Context(), token)
			return err == nil
		}
		if !verified() || tokens.known.Len() != 1 {
			t.Error("a good token is not remembered")
		}
		time.Sleep(900 * time.Millisecond) // in the bubble's time
		if !verified() {
			t.Error("forgotten early")
		}
		time.Sleep(200 * time.Millisecond)
		if verified() {
			t.Error("remembered beyond its end")
		}
		if c, err := tokens.verify(t.Context(), i.Token(nil)); err != nil || c.subject != "alice" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// configOf accepts the tokens of an issuer.
func configOf(i *oidctest.Issuer) OIDC {
	return OIDC{Issuer: i.URL, Audience: "punctual", TenantClaim: "punctual_tenant", RoleClaim: "punctual_role"}
}
