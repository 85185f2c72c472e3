package httpapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
)

// issuer is an OpenID Connect provider that counts its requests.
type issuer struct {
	t       testing.TB
	url     string
	away    atomic.Bool
	asked   atomic.Int32 // fetches of its keys
	found   atomic.Int32 // fetches of its discovery document
	mu      sync.Mutex
	signers map[string]*ecdsa.PrivateKey // by kid
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{t: t, signers: map[string]*ecdsa.PrivateKey{}}
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL
	i.rotate("k1")
	return i
}

// rotate adds a key.
func (i *issuer) rotate(kid string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signers[kid] = key
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	keys := r.URL.Path == "/keys"
	if keys {
		i.asked.Add(1)
	} else {
		i.found.Add(1)
	}
	if i.away.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var document any = map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"}
	if keys {
		var set jose.JSONWebKeySet
		i.mu.Lock()
		for kid, key := range i.signers {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Algorithm: "ES256", Use: "sig"})
		}
		i.mu.Unlock()
		document = set
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

func (i *issuer) config() OIDC {
	return OIDC{Issuer: i.url, Audience: "punctual", TenantClaim: "punctual_tenant", RoleClaim: "punctual_role"}
}

// claims returns the claims of a valid token. Those in more are added, or removed when nil.
func (i *issuer) claims(more map[string]any) map[string]any {
	all := map[string]any{
		"iss": i.url, "aud": "punctual", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "punctual_tenant": "alpha",
		"punctual_role": "editor",
	}
	for name, value := range more {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

func (i *issuer) token(more map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	key := i.signers["k1"]
	i.mu.Unlock()
	return sign(i.t, jose.ES256, key, "k1", i.claims(more))
}

func sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
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

func TestTokensOfTheIssuer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := guarded(t, func(c *Config) { c.OIDC = i.config() })
	s.tenant("alpha")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	unsigned := strings.Split(i.token(nil), ".")
	unsigned[0], unsigned[2] = "eyJhbGciOiJub25lIn0", ""
	for name, c := range map[string]struct {
		token string
		code  Code // "": the token is accepted
		says  string
	}{
		"good":         {i.token(nil), "", ""},
		"for several":  {i.token(map[string]any{"aud": []string{"other", "punctual"}}), "", ""},
		"just expired": {i.token(map[string]any{"exp": now.Add(-10 * time.Second).Unix()}), "", ""},
		"nearly begun": {i.token(map[string]any{"nbf": now.Add(10 * time.Second).Unix()}), "", ""},
		"several roles": {
			i.token(map[string]any{"punctual_role": []any{"viewer", "editor", "sailor", 7}}), "", "",
		},
		"expired": {
			i.token(map[string]any{"exp": now.Add(-time.Minute).Unix()}), CodeUnauthenticated, "",
		},
		"without an end":              {i.token(map[string]any{"exp": nil}), CodeUnauthenticated, ""},
		"not begun":                   {i.token(map[string]any{"nbf": now.Add(time.Minute).Unix()}), CodeUnauthenticated, ""},
		"with a strange beginning":    {i.token(map[string]any{"nbf": "soon"}), CodeUnauthenticated, ""},
		"for another":                 {i.token(map[string]any{"aud": "other"}), CodeUnauthenticated, ""},
		"of another":                  {i.token(map[string]any{"iss": "https://other.example"}), CodeUnauthenticated, ""},
		"of a subject with NUL":       {i.token(map[string]any{"sub": "mallory\x00"}), CodeUnauthenticated, ""},
		"signed by a stranger":        {sign(t, jose.ES256, stranger, "k1", i.claims(nil)), CodeUnauthenticated, ""},
		"signed by an unknown key":    {sign(t, jose.ES256, stranger, "k9", i.claims(nil)), CodeUnauthenticated, ""},
		"signed with a shared secret": {sign(t, jose.HS256, make([]byte, 32), "k1", i.claims(nil)), CodeUnauthenticated, ""},
		"unsigned":                    {strings.Join(unsigned, "."), CodeUnauthenticated, ""},
		"rubbish":                     {"a.b.c", CodeUnauthenticated, ""},
		"of an unknown role":          {i.token(map[string]any{"punctual_role": "sailor"}), CodeForbidden, "punctual_role"},
		"without a role":              {i.token(map[string]any{"punctual_role": nil}), CodeForbidden, "punctual_role"},
		"of an unknown tenant": {
			i.token(map[string]any{"punctual_tenant": "gamma"}), CodeForbidden, "punctual_tenant",
		},
		"without a tenant": {i.token(map[string]any{"punctual_tenant": nil}), CodeForbidden, "punctual_tenant"},
		"of a tenant with NUL": {
			i.token(map[string]any{"punctual_tenant": "alpha\x00"}), CodeForbidden, "punctual_tenant",
		},
		"of a strange tenant": {
			i.token(map[string]any{"punctual_tenant": []string{"alpha"}}), CodeForbidden, "punctual_tenant",
		},
		"of a viewer": {i.token(map[string]any{"punctual_role": "viewer"}), CodeForbidden, "editor"},
	} {
		r := s.with(c.token).do("PUT", "/v1/jobs/n", `{"schedule":{"every":"1h"},"target":{"url":"http://example.com"}}`,
			"X-Request-Id: same")
		if c.code == "" {
			if r.status/100 != 2 || into[Job](r).Tenant != "alpha" {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
			continue
		}
		p := r.code(c.code)
		if !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s: %s", name, p.Detail)
		}
		if c.code == CodeUnauthenticated && p.Detail != errUnauthenticated.Detail {
			t.Errorf("%s: says what is wrong: %s", name, p.Detail)
		}
	}
	if n := i.found.Load(); n != 1 {
		t.Errorf("the discovery document was fetched %d times", n)
	}
	s.as("alpha", RoleViewer).do("GET", "/v1/jobs/n", "").want(200) // API keys go on working
	s.acting("alpha").with(i.token(map[string]any{"punctual_role": "operator"})).do("GET", "/v1/tenants", "").want(200)
}

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
	if r, known := greatest([]string{"viewer", "operator", "editor"}); r != RoleOperator || !known {
		t.Errorf("the greatest is %s", r)
	}
}

// The library fetches the keys for every token that no known key has signed. The number of fetches is bounded,
// whatever tokens come.
func TestAFloodOfUnknownKeysFetchesOnce(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := guarded(t, func(c *Config) { c.OIDC = i.config() })
	s.tenant("alpha")
	s.with(i.token(nil)).do("GET", "/v1/jobs", "").want(200)
	if n := i.asked.Load(); n != 1 {
		t.Fatalf("the keys were fetched %d times for one token", n)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := range 125 {
				s.with(sign(t, jose.ES256, stranger, fmt.Sprintf("k-%d-%d", worker, n), i.claims(nil))).
					do("GET", "/v1/jobs", "").code(CodeUnauthenticated)
			}
		})
	}
	wg.Wait()
	if most := 1 + int32(time.Since(began)/fetchAgain) + 1; i.asked.Load() > most {
		t.Errorf("the keys were fetched %d times in %s, at most %d", i.asked.Load(), time.Since(began), most)
	}
	s.with(i.token(nil)).do("GET", "/v1/jobs", "").want(200)
}

func TestNewKeysOfTheIssuerAreFound(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	config := i.config()
	config.JWKSURL = i.url + "/keys"
	tokens := newTokens(config, slog.New(slog.DiscardHandler))
	verify := func(kid string) error {
		tokens.known.Purge()
		_, err := tokens.verify(t.Context(), sign(t, jose.ES256, i.signers[kid], kid, i.claims(nil)))
		return err
	}
	if err := verify("k1"); err != nil {
		t.Fatal(err)
	}
	i.rotate("k2")
	if err := verify("k2"); err == nil {
		t.Error("a new key is known although nobody has asked")
	}
	tokens.fetches.documents[config.JWKSURL].at = time.Now().Add(-fetchAgain) // as if fetched long ago
	for _, kid := range []string{"k2", "k1"} {
		// For a moment, the library may still return the answer to the previous fetch.
		until(t, kid+" to be known", func() bool { return verify(kid) == nil })
	}
	if i.found.Load() != 0 || i.asked.Load() != 2 {
		t.Errorf("asked %d times for discovery, %d for keys", i.found.Load(), i.asked.Load())
	}
	tokens.fetches.documents[config.JWKSURL].at = time.Now().Add(-fetchAgain)
	i.away.Store(true)
	if err := verify("k1"); err != nil {
		t.Errorf("what is known is not used while the issuer is away: %v", err)
	}
}

func TestAVerifiedTokenIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		i := &issuer{t: t, url: "https://login.example", signers: map[string]*ecdsa.PrivateKey{}}
		i.rotate("k1")
		tokens := newTokens(i.config(), slog.New(slog.DiscardHandler))
		tokens.verifier = oidc.NewVerifier(i.url,
			&oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{i.signers["k1"].Public()}}, tokens.config())
		token := i.token(map[string]any{"exp": began.Add(time.Second - leeway).Unix()})
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
		if c, err := tokens.verify(t.Context(), i.token(nil)); err != nil || c.subject != "alice" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestTokensWhileTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*issuer, *OIDC){
		"with discovery":     func(*issuer, *OIDC) {},
		"with a URL of keys": func(i *issuer, c *OIDC) { c.JWKSURL = i.url + "/keys" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.away.Store(true)
			config := i.config()
			change(i, &config)
			var logs lockedBuffer
			s := guarded(t, func(c *Config) { c.OIDC, c.Log = config, slog.New(slog.NewTextHandler(&logs, nil)) })
			s.tenant("alpha")
			token := i.token(nil)
			for range 3 {
				if r := s.with(token).do("GET", "/v1/jobs", ""); r.code(CodeIssuer).Status != 503 ||
					r.header.Get("Retry-After") == "" {
					t.Errorf("headers %v", r.header)
				}
			}
			if n := i.asked.Load() + i.found.Load(); n != 1 {
				t.Errorf("the issuer was asked %d times", n)
			}
			s.as("alpha", RoleViewer).do("GET", "/v1/jobs", "").want(200)
			i.away.Store(false)
			until(t, "the issuer to be asked again",
				func() bool { return s.with(token).do("GET", "/v1/jobs", "").status == 200 })
			if text := logs.String(); strings.Contains(text, token) || strings.Count(text, "the issuer of tokens") != 1 ||
				!strings.Contains(text, i.url) {
				t.Errorf("logged %s", text)
			}
		})
	}
}
