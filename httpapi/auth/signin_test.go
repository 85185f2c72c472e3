package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/problem"
	"punctual/internal/oidctest"
)

// stub is an issuer that answers as a test says.
func stub(
	t *testing.T, secret string, discovery func(url string) string, token http.HandlerFunc,
) (*SignIn, *strings.Builder) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, discovery(server.URL))
	})
	mux.HandleFunc("/token", token)
	var logs strings.Builder
	return NewSignIn(SignInConfig{
		OIDC: OIDC{Issuer: server.URL, Audience: "punctual"}, ClientID: "pages", ClientSecret: secret,
		Scopes: []string{"openid"}, RedirectURL: "http://localhost/login/callback",
		Log: slog.New(slog.NewTextHandler(&logs, nil)),
	}), &logs
}

func described(url, more string) string {
	return fmt.Sprintf(`{"issuer":%q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token",`+
		`"jwks_uri":"%[1]s/keys"%[2]s}`, url, more)
}

func TestTheSecretGoesTheWayThatTheIssuerTakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secret, methods, basic, posted string
	}{
		"by default":              {"s3cret", ``, "s3cret", ""},
		"in the header if it can": {"s3cret", `,"token_endpoint_auth_methods_supported":["client_secret_post","client_secret_basic"]`, "s3cret", ""},
		"in the body":             {"s3cret", `,"token_endpoint_auth_methods_supported":["client_secret_post"]`, "", "s3cret"},
		"of a public client":      {"", ``, "", ""},
	} {
		asked := 0
		s, _ := stub(t, test.secret, func(url string) string { return described(url, test.methods) },
			func(w http.ResponseWriter, r *http.Request) {
				asked++
				_, basic, _ := r.BasicAuth()
				if posted := r.PostFormValue("client_secret"); basic != test.basic || posted != test.posted {
					t.Errorf("%s: the secrets are %q and %q", name, basic, posted)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":"invalid_grant"}`)
			})
		var refused *RefusedError
		if _, err := s.Finish(t.Context(), NewAttempt(), "code"); !errors.As(err, &refused) || asked != 1 {
			t.Errorf("%s: asked %d times: %v", name, asked, err)
		}
	}
}

func TestWhatTheIssuerSaysIsLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		away   bool
	}{
		"a refusal":    {400, `{"error":"invalid_grant","error_description":"the-code of s3cret is no good"}`, false},
		"a wrong page": {400, `the-code is no good`, true},
		"trouble":      {500, `{"error":"server_error","error_description":"the-code"}`, true},
		"a flood":      {429, `{"error":"slow_down","error_description":"the-code"}`, true},
		"no token":     {200, `{"refresh_token":"the-code"}`, true},
		"no JSON":      {200, `the-code`, true},
	} {
		s, logs := stub(t, "s3cret", func(url string) string { return described(url, "") },
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			})
		_, err := s.Finish(t.Context(), NewAttempt(), "the-code")
		if p, is := errors.AsType[*problem.Problem](err); is != test.away || test.away && p.Code != problem.CodeIssuer {
			t.Errorf("%s: %v", name, err)
		}
		if text := logs.String() + err.Error(); strings.Contains(text, "the-code") || strings.Contains(text, "s3cret") ||
			!strings.Contains(text, s.Issuer) {
			t.Errorf("%s: logged %s", name, text)
		}
	}
}

// Codes and secrets do not travel in the clear, wherever a discovery document leads.
func TestEndpointsAreTrustedAsTheIssuerIs(t *testing.T) {
	t.Parallel()
	for issuer, endpoints := range map[string]map[string]bool{
		"https://login.example": {
			"https://login.example/token": true, "https://elsewhere.example/token": true, "http://login.example/token": false,
			"javascript:alert(1)": false, "//login.example/token": false, "": false, "https:///token": false,
		},
		"http://127.0.0.1:1": {"http://127.0.0.1:1/token": true, "https://login.example/token": true, "ftp://x/": false},
	} {
		s := NewSignIn(SignInConfig{OIDC: OIDC{Issuer: issuer}, Log: slog.New(slog.DiscardHandler)})
		for endpoint, want := range endpoints {
			if err := s.trusts(endpoint); (err == nil) != want {
				t.Errorf("%s with %q: %v", issuer, endpoint, err)
			}
		}
	}
}

func TestAnIssuerThatSaysItIsAnotherIsNotUsed(t *testing.T) {
	t.Parallel()
	s, logs := stub(t, "", func(string) string { return described("https://login.example", "") }, neverAsked)
	if _, err := s.Begin(t.Context(), NewAttempt()); err == nil || !strings.Contains(logs.String(), "https://login.example") {
		t.Errorf("%v, logged %s", err, logs)
	}
}

func neverAsked(http.ResponseWriter, *http.Request) {}

// Strangers cannot make a replica ask the issuer at will.
func TestAFloodOfSignIns(t *testing.T) {
	t.Parallel()
	s := NewSignIn(SignInConfig{Log: slog.New(slog.DiscardHandler)})
	from := func(address string) error {
		r := httptest.NewRequest(http.MethodGet, "/login/oidc", nil)
		r.RemoteAddr = address
		return s.Admit(r)
	}
	var p *problem.Problem
	for n := 0; !errors.As(from("192.0.2.1:1234"), &p); n++ {
		if n > 100_000 {
			t.Fatal("a flood is not stopped")
		}
	}
	if p.Code != problem.CodeRateLimited {
		t.Error(p)
	}
	if err := from("192.0.2.2:1234"); err != nil {
		t.Errorf("a flood stops others: %v", err)
	}
}

func TestPeekingIntoTokens(t *testing.T) {
	t.Parallel()
	i := oidctest.Silent(t, "https://login.example")
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	if got := peek(i.Token(map[string]any{"exp": end.Unix()})); got.Subject != "alice" || !got.Expires.Equal(end) {
		t.Errorf("%+v", got)
	}
	for _, raw := range []string{"", "opaque", "a.b.c", "a.e30", "a.bnVsbA.c.d", "a.W10.c", "a.eyJleHAiOiJ4In0.c"} {
		if got := peek(raw); got.Raw != "" {
			t.Errorf("%q is a token: %+v", raw, got)
		}
	}
	// {"exp":1e300}, which no clock reaches
	if got := peek("a.eyJleHAiOjFlMzAwfQ.c"); got.Raw == "" || got.Expires.Before(end) {
		t.Errorf("%+v", got)
	}
}
