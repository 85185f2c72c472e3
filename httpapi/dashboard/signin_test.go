package dashboard

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/httpapi/auth"
	"punctual/internal/oidctest"
)

// house is the pages and the API, and an issuer at which people sign in. alice is an editor of the tenant alpha.
type house struct {
	site
	issuer *oidctest.Issuer
	how    oidctest.SignIn
	logs   *logs
}

// welcoming returns a house whose API accepts tokens for punctual.
func welcoming(t *testing.T, how oidctest.SignIn) house {
	t.Helper()
	return welcomingAt(t, "127.0.0.1", "punctual", how)
}

// welcomingAt returns a house whose API accepts tokens for an audience. People come to it at a host.
func welcomingAt(t *testing.T, host, audience string, how oidctest.SignIn) house {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	at := "http://" + strings.Replace(server.Listener.Addr().String(), "127.0.0.1", host, 1)
	how.Client, how.Redirect = "pages", at+"/login/callback"
	h := house{issuer: oidctest.New(t), how: how, logs: &logs{}}
	h.issuer.SignsIn(how)
	tokens := auth.OIDC{
		Issuer: h.issuer.URL, Audience: audience, TenantClaim: "punctual_tenant", RoleClaim: "punctual_role",
	}
	log := slog.New(slog.NewTextHandler(h.logs, nil))
	h.site = serveWith(t, Config{Log: log, SignIn: auth.NewSignIn(auth.SignInConfig{
		OIDC: tokens, ClientID: "pages", ClientSecret: how.Secret, Scopes: []string{"openid"}, RedirectURL: how.Redirect,
		Log: log,
	})}, tokens, server)
	h.url = at
	h.tenant("alpha")
	return h
}

// signsIn changes how the issuer signs people in.
func (h *house) signsIn(change func(*oidctest.SignIn)) {
	change(&h.how)
	h.issuer.SignsIn(h.how)
}

type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(line)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// leave begins to sign in, and returns the path at which the issuer sends the visitor back.
func (b browser) leave(next string) string {
	b.t.Helper()
	to := b.get("/login/oidc?" + url.Values{"next": {next}}.Encode()).want(303).to()
	back := b.visit(http.MethodGet, to, "", nil).want(302).to()
	path, ours := strings.CutPrefix(back, b.url)
	if !ours {
		b.t.Fatalf("sent back to %s", back)
	}
	return path
}

// welcomed returns a visitor who has signed in at the issuer.
func (h house) welcomed() browser {
	h.t.Helper()
	b := h.browser()
	b.get(b.leave("/")).want(200)
	return b
}

// jar returns the value of a cookie that the browser keeps.
func (b browser) jar(name, path string) string {
	b.t.Helper()
	at, _ := url.Parse(b.url + path)
	for _, c := range b.client.Jar.Cookies(at) {
		if c.Name == name {
			return c.Value
		}
	}
	b.t.Fatalf("the browser has no cookie %s", name)
	return ""
}

// alter changes what a cookie holds.
func alter[T any](b browser, name, path string, change func(*T)) {
	b.t.Helper()
	plain, err := b.store.Secrets.OpenSession(b.t.Context(), b.jar(name, path))
	must(b.t, err)
	var v T
	must(b.t, json.Unmarshal(plain, &v))
	change(&v)
	if plain, err = json.Marshal(v); err != nil {
		b.t.Fatal(err)
	}
	sealed, err := b.store.Secrets.SealSession(b.t.Context(), plain)
	must(b.t, err)
	b.keep(name, path, sealed)
}

// ends makes the token of a visitor's session end.
func (b browser) ends(in time.Duration) {
	b.t.Helper()
	alter(b, sessionCookie, "/", func(s *session) { s.Expires = time.Now().Add(in) })
}

func TestAVisitorSignsInAtTheIssuer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		audience string
		how      oidctest.SignIn
	}{
		"as a public client":         {"punctual", oidctest.SignIn{}},
		"as a confidential client":   {"punctual", oidctest.SignIn{Secret: "s3cret&+ /"}},
		"with an opaque token":       {"pages", oidctest.SignIn{Opaque: true}},
		"with a token for others":    {"pages", oidctest.SignIn{Access: map[string]any{"aud": "userinfo"}}},
		"with tokens to renew later": {"punctual", oidctest.SignIn{Refresh: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := welcomingAt(t, "127.0.0.1", c.audience, c.how)
			b := h.browser()
			host := strings.TrimPrefix(h.issuer.URL, "http://")
			const next = `/jobs?search=a'b+%22c%22%3Bd`
			sound(b.get("/login?"+url.Values{"next": {next}}.Encode()).want(200).
				shows("Sign in with "+host, `/login/oidc?next=%2fjobs%3fsearch%3da%27b%2b%2522c%2522%253Bd"`, "API key"))
			path := b.leave(next)
			p := sound(b.get(path).want(200).shows("Signed in").hides(`href="/settings"`))
			if at := onward(p); at != next {
				t.Errorf("goes on to %q", at)
			}
			b.get(next).want(200).shows("alice · alpha", `class="badge">editor<`, "Sign out")
			b.post("/new", "name", "n", "kind", "every", "every", "1h", "url", "http://example.com/").want(303)
			b.get("/audit").want(403) // an editor may not
			b.post("/logout").want(303)
			b.get("/").want(303)
			sealed, _ := url.ParseQuery(path)
			h.tellsNobody(t, p, sealed.Get("state"))
		})
	}
}

// tellsNobody checks that no code, token or other secret of a sign-in is logged or shown.
func (h house) tellsNobody(t *testing.T, p reply, others ...string) {
	t.Helper()
	for _, secret := range append(h.issuer.Given(), others...) {
		if strings.Contains(h.logs.text()+p.body, secret) {
			t.Errorf("%s is logged or shown", secret)
		}
	}
}

// onward returns where a page goes by itself.
func onward(p reply) string {
	p.t.Helper()
	_, rest, _ := strings.Cut(p.body, `<meta http-equiv="refresh" content="0;url=`)
	at, _, found := strings.Cut(rest, `">`)
	if !found {
		p.t.Fatalf("%s does not go on: %s", p.path, p.body)
	}
	return strings.NewReplacer("&amp;", "&", "&#39;", "'", "&#43;", "+", "&#34;", `"`).Replace(at)
}

func TestTheCookiesOfASignIn(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	b := h.browser()
	begun := b.get("/login/oidc").want(303)
	want := func(p reply, name string, parts ...string) {
		t.Helper()
		cookies := p.header.Values("Set-Cookie")
		at := slices.IndexFunc(cookies, func(c string) bool { return strings.HasPrefix(c, name+"=") })
		if at < 0 {
			t.Fatalf("%s sets no %s: %s", p.path, name, cookies)
		}
		for _, part := range parts {
			if !strings.Contains(cookies[at], part) {
				t.Errorf("the cookie has no %s: %s", part, cookies[at])
			}
		}
	}
	want(begun, attemptCookie, "; HttpOnly", "; SameSite=Lax", "; Path=/login", "; Max-Age=600")
	to, err := url.Parse(begun.to())
	must(t, err)
	asked := to.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": "pages", "scope": "openid", "code_challenge_method": "S256",
		"redirect_uri": h.url + "/login/callback",
	} {
		if asked.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, asked.Get(name), value)
		}
	}
	for _, secret := range []string{"state", "nonce", "code_challenge"} {
		if len(asked.Get(secret)) < 20 || strings.Contains(begun.header.Get("Set-Cookie"), asked.Get(secret)) {
			t.Errorf("%s is %q, the cookie %q", secret, asked.Get(secret), begun.header.Get("Set-Cookie"))
		}
	}
	ended := b.get(b.leave("/")).want(200)
	want(ended, sessionCookie, "; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=35") // a token of an hour
	want(ended, attemptCookie, "; Path=/login", "; Max-Age=0")
}

// Only the browser that went to the issuer comes back signed in, and only once.
func TestNobodyElseComesBack(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	b := h.browser()
	b.get("/login/callback").want(400).shows("was not begun in this browser", "at "+h.url+".")
	back := b.leave("/")
	h.browser().get(back).want(400) // another browser
	code, _ := url.Parse(back)
	query := code.Query()
	for _, state := range []string{"", "wrong", query.Get("state") + "x"} {
		b.get("/login/callback?" + url.Values{"code": query["code"], "state": {state}}.Encode()).want(400).
			shows("was not begun in this browser").hides(query.Get("code"))
	}
	used := b.jar(attemptCookie, "/login")
	b.get(back).want(200)
	b.get("/").want(200)
	b.get(back).want(400) // the attempt is over
	b.keep(attemptCookie, "/login", used)
	b.get(back).want(403).shows("has not signed you in: invalid_grant") // and so is the code
	late := h.browser()
	back = late.leave("/")
	alter(late, attemptCookie, "/login", func(a *attempt) { a.Until = time.Now().Add(-time.Second) })
	late.get(back).want(400).shows("taken too long")
	late.get("/").want(303)
	// A session is no attempt, and an attempt is no session.
	late.keep(attemptCookie, "/login", b.jar(sessionCookie, "/"))
	late.get("/login/callback?state=").want(400)
	late.keep(sessionCookie, "/", used)
	late.get("/").want(303)
}

func TestASignInThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how    oidctest.SignIn
		change func(*attempt)
		says   []string
	}{
		"somebody says no at the issuer": {how: oidctest.SignIn{Refuse: "access_denied"}, says: []string{"access_denied"}},
		"hostile words":                  {how: oidctest.SignIn{Refuse: "<script>"}, says: []string{"&lt;script&gt;"}},
		"another nonce": {
			how: oidctest.SignIn{ID: map[string]any{"nonce": "another"}}, says: []string{"another nonce"},
		},
		"no nonce":                  {how: oidctest.SignIn{ID: map[string]any{"nonce": nil}}, says: []string{"another nonce"}},
		"an ID token for others":    {how: oidctest.SignIn{ID: map[string]any{"aud": "others"}}, says: []string{"ID token"}},
		"an ID token that is over":  {how: oidctest.SignIn{ID: map[string]any{"exp": 1}}, says: []string{"ID token"}},
		"another verifier":          {change: func(a *attempt) { a.Verifier += "x" }, says: []string{"invalid_grant"}},
		"no role":                   {how: withAccess("punctual_role", nil), says: []string{"The claim punctual_role"}},
		"an unknown role":           {how: withAccess("punctual_role", "sailor"), says: []string{"The claim punctual_role"}},
		"a role that sees no pages": {how: withAccess("punctual_role", "metrics"), says: []string{"needs the role viewer"}},
		"no tenant":                 {how: withAccess("punctual_tenant", nil), says: []string{"The claim punctual_tenant"}},
		"an access token for others": {
			how:  withAccess("aud", "others"),
			says: []string{"accepts none of the tokens", "the audience punctual", "punctual_tenant", "punctual_role"},
		},
		"an opaque access token": {how: oidctest.SignIn{Opaque: true}, says: []string{"accepts none of the tokens", "a JWT"}},
		"a token that no cookie holds": {
			how: withAccess("groups", strings.Repeat("g", 3000)), says: []string{"too large", "leave out claims"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := welcoming(t, c.how)
			b := h.browser()
			back := b.leave("/jobs?search=x")
			if c.change != nil {
				alter(b, attemptCookie, "/login", c.change)
			}
			p := b.get(back).want(403).shows(c.says...).shows("Sign in with", `name="next" value="/jobs?search=x"`)
			sound(p)
			b.get("/").want(303)
			b.post("/login", "key", h.key("default", "viewer"), "next", "/jobs").want(303)
			h.tellsNobody(t, p)
		})
	}
}

// The API allows for clocks that differ by 30 s, and a session does not.
func TestATokenThatIsOverMakesNoSession(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	b := h.browser()
	back := b.leave("/")
	h.signsIn(func(how *oidctest.SignIn) { how.Access = map[string]any{"exp": time.Now().Unix()} })
	b.get(back).want(403).shows("has ended already")
}

// withAccess returns a sign-in whose access tokens have another claim.
func withAccess(claim string, value any) oidctest.SignIn {
	return oidctest.SignIn{Access: map[string]any{claim: value}}
}

func TestNobodySignsInAtTheIssuerToAnotherSite(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	for _, next := range []string{
		"//evil.example/", "https://evil.example/", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)",
		"/" + strings.Repeat("long", 1000),
	} {
		b := h.browser()
		if at := onward(b.get(b.leave(next)).want(200)); at != "/" {
			t.Errorf("%q leads to %s", next, at)
		}
	}
}

func TestWithoutAnIssuerNobodyIsSentThere(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	s.browser().get("/login").want(200).hides("Sign in with <", "/login/oidc")
	s.browser().get("/login/oidc").want(404)
	s.browser().get("/login/callback").want(404)
}

func TestTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	gone := h.browser()
	back := gone.leave("/")
	h.issuer.Away.Store(true)
	gone.get(back).want(503).shows("cannot be reached right now", "sign in with an API key")
	h = welcoming(t, oidctest.SignIn{})
	h.issuer.Away.Store(true)
	b := h.browser()
	b.get("/login").want(200).shows("Sign in with", "API key")
	sound(b.get("/login/oidc?next=%2Fjobs").want(503).shows("cannot be reached right now", `name="next" value="/jobs"`))
	b.get("/login/oidc").want(503)
	if asked := h.issuer.Found.Load(); asked != 1 {
		t.Errorf("an issuer that is away was asked %d times", asked)
	}
	b.post("/login", "key", h.key("default", "viewer"), "next", "/jobs").want(303)
	b.get("/jobs").want(200)
}
