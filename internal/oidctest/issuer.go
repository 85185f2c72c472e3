// Package oidctest is an OpenID Connect provider for tests.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer is an OpenID Connect provider that counts its requests.
type Issuer struct {
	URL   string
	Away  atomic.Bool  // it answers 502
	Asked atomic.Int32 // fetches of its keys
	Found atomic.Int32 // fetches of its discovery document

	t       testing.TB
	mu      sync.Mutex
	signers map[string]*ecdsa.PrivateKey // by kid
	desk    desk
}

// New starts an issuer whose first key is k1.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := Silent(t, "")
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Silent returns an issuer that nobody can ask: tests give its keys to who verifies its tokens.
func Silent(t testing.TB, url string) *Issuer {
	t.Helper()
	i := &Issuer{t: t, URL: url, signers: map[string]*ecdsa.PrivateKey{}}
	i.Rotate("k1")
	return i
}

// Rotate adds a key.
func (i *Issuer) Rotate(kid string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signers[kid] = key
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	keys := r.URL.Path == "/keys"
	signIn := map[string]http.HandlerFunc{"/authorize": i.authorize, "/token": i.token}[r.URL.Path]
	switch {
	case keys:
		i.Asked.Add(1)
	case signIn == nil:
		i.Found.Add(1)
	}
	if i.Away.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if signIn != nil {
		signIn(w, r)
		return
	}
	var document any = map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
		"token_endpoint": i.URL + "/token",
	}
	if keys {
		var set jose.JSONWebKeySet
		i.mu.Lock()
		for kid, key := range i.signers {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Algorithm: "ES256", Use: "sig"})
		}
		i.mu.Unlock()
		document = set
	}
	answer(w, http.StatusOK, document)
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // the client may be gone
}

// Claims returns the claims of a valid token. Those in more are added, or removed when nil.
func (i *Issuer) Claims(more map[string]any) map[string]any {
	all := map[string]any{
		"iss": i.URL, "aud": "punctual", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "punctual_tenant": "alpha",
		"punctual_role": "editor",
	}
	alter(all, more)
	return all
}

// alter adds claims, or removes those that are nil.
func alter(claims, more map[string]any) {
	for name, value := range more {
		claims[name] = value
		if value == nil {
			delete(claims, name)
		}
	}
}

// Token returns a valid token, with other claims as in Claims.
func (i *Issuer) Token(more map[string]any) string {
	i.t.Helper()
	return Sign(i.t, jose.ES256, i.Key("k1"), "k1", i.Claims(more))
}

// Sign signs the claims of a token.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Key returns the key with an id.
func (i *Issuer) Key(kid string) *ecdsa.PrivateKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.signers[kid]
}
