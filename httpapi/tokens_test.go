package httpapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/internal/oidctest"
)

func TestTokensOfTheIssuer(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	s := guarded(t, func(c *Config) { c.OIDC = configOf(i) })
	s.tenant("alpha")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	now := time.Now()
	unsigned := strings.Split(i.Token(nil), ".")
	unsigned[0], unsigned[2] = "eyJhbGciOiJub25lIn0", ""
	for name, c := range map[string]struct {
		token string
		code  problem.Code // "": the token is accepted
		says  string
	}{
		"good":         {i.Token(nil), "", ""},
		"for several":  {i.Token(map[string]any{"aud": []string{"other", "punctual"}}), "", ""},
		"just expired": {i.Token(map[string]any{"exp": now.Add(-10 * time.Second).Unix()}), "", ""},
		"nearly begun": {i.Token(map[string]any{"nbf": now.Add(10 * time.Second).Unix()}), "", ""},
		"several roles": {
			i.Token(map[string]any{"punctual_role": []any{"viewer", "editor", "sailor", 7}}), "", "",
		},
		"expired": {
			i.Token(map[string]any{"exp": now.Add(-time.Minute).Unix()}), problem.CodeUnauthenticated, "",
		},
		"without an end":              {i.Token(map[string]any{"exp": nil}), problem.CodeUnauthenticated, ""},
		"not begun":                   {i.Token(map[string]any{"nbf": now.Add(time.Minute).Unix()}), problem.CodeUnauthenticated, ""},
		"with a strange beginning":    {i.Token(map[string]any{"nbf": "soon"}), problem.CodeUnauthenticated, ""},
		"for another":                 {i.Token(map[string]any{"aud": "other"}), problem.CodeUnauthenticated, ""},
		"of another":                  {i.Token(map[string]any{"iss": "https://other.example"}), problem.CodeUnauthenticated, ""},
		"of a subject with NUL":       {i.Token(map[string]any{"sub": "mallory\x00"}), problem.CodeUnauthenticated, ""},
		"signed by a stranger":        {oidctest.Sign(t, jose.ES256, stranger, "k1", i.Claims(nil)), problem.CodeUnauthenticated, ""},
		"signed by an unknown key":    {oidctest.Sign(t, jose.ES256, stranger, "k9", i.Claims(nil)), problem.CodeUnauthenticated, ""},
		"signed with a shared secret": {oidctest.Sign(t, jose.HS256, make([]byte, 32), "k1", i.Claims(nil)), problem.CodeUnauthenticated, ""},
		"unsigned":                    {strings.Join(unsigned, "."), problem.CodeUnauthenticated, ""},
		"rubbish":                     {"a.b.c", problem.CodeUnauthenticated, ""},
		"of an unknown role":          {i.Token(map[string]any{"punctual_role": "sailor"}), problem.CodeForbidden, "punctual_role"},
		"without a role":              {i.Token(map[string]any{"punctual_role": nil}), problem.CodeForbidden, "punctual_role"},
		"of an unknown tenant": {
			i.Token(map[string]any{"punctual_tenant": "gamma"}), problem.CodeForbidden, "punctual_tenant",
		},
		"without a tenant": {i.Token(map[string]any{"punctual_tenant": nil}), problem.CodeForbidden, "punctual_tenant"},
		"of a tenant with NUL": {
			i.Token(map[string]any{"punctual_tenant": "alpha\x00"}), problem.CodeForbidden, "punctual_tenant",
		},
		"of a strange tenant": {
			i.Token(map[string]any{"punctual_tenant": []string{"alpha"}}), problem.CodeForbidden, "punctual_tenant",
		},
		"of a viewer": {i.Token(map[string]any{"punctual_role": "viewer"}), problem.CodeForbidden, "editor"},
	} {
		r := s.with(c.token).do("PUT", "/v1/jobs/n", `{"schedule":{"every":"1h"},"target":{"url":"http://example.com"}}`,
			"X-Request-Id: same")
		if c.code == "" {
			if r.status/100 != 2 || into[Job](r).Tenant != "alpha" {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
			continue
		}
		p := r.code(c.code, c.says)
		if c.code == problem.CodeUnauthenticated && p.Detail != auth.ErrUnauthenticated.Detail {
			t.Errorf("%s: says what is wrong: %s", name, p.Detail)
		}
	}
	if n := i.Found.Load(); n != 1 {
		t.Errorf("the discovery document was fetched %d times", n)
	}
	s.as("alpha", auth.RoleViewer).do("GET", "/v1/jobs/n", "").want(200) // API keys go on working
	s.acting("alpha").with(i.Token(map[string]any{"punctual_role": "operator"})).do("GET", "/v1/tenants", "").want(200)
}

// A thousand tokens have unknown key ids. Keys are fetched once in 10 s.
//
//prove:tenants
func TestAFloodOfUnknownKeysFetchesOnce(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	s := guarded(t, func(c *Config) { c.OIDC = configOf(i) })
	s.tenant("alpha")
	s.with(i.Token(nil)).do("GET", "/v1/jobs", "").want(200)
	if n := i.Asked.Load(); n != 1 {
		t.Fatalf("the keys were fetched %d times for one token", n)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := range 125 {
				s.with(oidctest.Sign(t, jose.ES256, stranger, fmt.Sprintf("k-%d-%d", worker, n), i.Claims(nil))).
					do("GET", "/v1/jobs", "").code(problem.CodeUnauthenticated)
			}
		})
	}
	wg.Wait()
	if most := 1 + int32(time.Since(began)/auth.FetchAgain) + 1; i.Asked.Load() > most {
		t.Errorf("the keys were fetched %d times in %s, at most %d", i.Asked.Load(), time.Since(began), most)
	}
	s.with(i.Token(nil)).do("GET", "/v1/jobs", "").want(200)
}

func TestTokensWhileTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidctest.Issuer, *auth.OIDC){
		"with discovery":     func(*oidctest.Issuer, *auth.OIDC) {},
		"with a URL of keys": func(i *oidctest.Issuer, c *auth.OIDC) { c.JWKSURL = i.URL + "/keys" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := oidctest.New(t)
			i.Away.Store(true)
			config := configOf(i)
			change(i, &config)
			var logs lockedBuffer
			s := guarded(t, func(c *Config) { c.OIDC, c.Log = config, slog.New(slog.NewTextHandler(&logs, nil)) })
			s.tenant("alpha")
			token := i.Token(nil)
			for range 3 {
				if r := s.with(token).do("GET", "/v1/jobs", ""); r.code(problem.CodeIssuer).Status != 503 ||
					r.header.Get("Retry-After") == "" {
					t.Errorf("headers %v", r.header)
				}
			}
			if n := i.Asked.Load() + i.Found.Load(); n != 1 {
				t.Errorf("the issuer was asked %d times", n)
			}
			s.as("alpha", auth.RoleViewer).do("GET", "/v1/jobs", "").want(200)
			i.Away.Store(false)
			until(t, "the issuer to be asked again",
				func() bool { return s.with(token).do("GET", "/v1/jobs", "").status == 200 })
			if text := logs.String(); strings.Contains(text, token) || strings.Count(text, "the issuer of tokens") != 1 ||
				!strings.Contains(text, i.URL) {
				t.Errorf("logged %s", text)
			}
		})
	}
}

// configOf accepts the tokens of an issuer.
func configOf(i *oidctest.Issuer) auth.OIDC {
	return auth.OIDC{Issuer: i.URL, Audience: "punctual", TenantClaim: "punctual_tenant", RoleClaim: "punctual_role"}
}
