package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"punctual/httpapi/problem"
)

// RedirectPath is where the pages expect people back from the issuer.
const RedirectPath = "/login/callback"

// SignInConfig configures how people sign in at the issuer. All fields but ClientSecret are required.
type SignInConfig struct {
	OIDC                  // the issuer, and which of its tokens the API accepts
	ClientID     string   // that the issuer knows these pages by
	ClientSecret string   // empty: a public client, which PKCE alone protects
	Scopes       []string // openid among them
	RedirectURL  string   // to which the issuer sends people back
	Log          *slog.Logger
}

// SignIn signs people in at an issuer, by the authorization code flow of OpenID Connect with PKCE. Safe for concurrent
// use. It remembers nothing of anybody.
type SignIn struct {
	SignInConfig
	tokens *tokens // verifies ID tokens, which name the client as their audience
	posts  *http.Client
	floods *floodgate
}

// signInFloods bounds the requests by which strangers make this replica ask the database and the issuer. A sign-in
// takes two. Many people may come through one load balancer.
var signInFloods = floodBounds{ofAddress: 10, burst: 100, ofAll: 20, burstOfAll: 200}

// NewSignIn does not contact the issuer, which may be away.
func NewSignIn(c SignInConfig) *SignIn {
	ids := c.OIDC
	ids.Audience = c.ClientID
	s := &SignIn{SignInConfig: c, tokens: newTokens(ids, c.Log), floods: newFloodgate(signInFloods)}
	s.posts = &http.Client{
		Transport: s.tokens.fetches.transport, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // codes go nowhere else
	}
	return s
}

// Attempt is what must be remembered while somebody is at the issuer. It must stay secret.
type Attempt struct {
	State    string `json:"state"`    // ties the way back to the browser that went
	Nonce    string `json:"nonce"`    // ties the ID token to the attempt
	Verifier string `json:"verifier"` // of PKCE: ties the code to the attempt
}

// NewAttempt returns an attempt that nobody can guess.
func NewAttempt() Attempt {
	return Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
}

// Host returns the issuer's host, by which people know it.
func (s *SignIn) Host() string {
	u, err := url.Parse(s.Issuer)
	if err != nil {
		return s.Issuer
	}
	return u.Host
}

// Home returns the address of the pages to which the issuer sends people back. A browser that is at another address
// of the same pages has its cookies there, and not here.
func (s *SignIn) Home() string { return strings.TrimSuffix(s.RedirectURL, RedirectPath) }

// Expected says which tokens the API accepts.
func (s *SignIn) Expected() string {
	return fmt.Sprintf("a JWT with the audience %s, the tenant in the claim %s and the role in the claim %s", s.Audience,
		s.TenantClaim, s.RoleClaim)
}

// Admit returns a problem if too many requests of the sign-in come.
func (s *SignIn) Admit(r *http.Request) error {
	if s.floods.admits(remote(r)) {
		return nil
	}
	return problem.New(problem.CodeRateLimited,
		"Too many people sign in from your address, or from all addresses; try again in a moment.").With("Retry-After", "1")
}

// Begin returns where to send somebody who wants to sign in.
func (s *SignIn) Begin(ctx context.Context, a Attempt) (string, error) {
	c, err := s.client(ctx)
	if err != nil {
		return "", err
	}
	return c.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish exchanges the code that somebody came back with. Its error is a *RefusedError, or a problem when the issuer
// cannot be asked now.
func (s *SignIn) Finish(ctx context.Context, a Attempt, code string) (Grant, error) {
	c, err := s.client(ctx)
	if err != nil {
		return Grant{}, err
	}
	given, err := c.Exchange(s.posting(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Grant{}, s.refusal(ctx, err, code, a.Verifier)
	}
	raw, _ := given.Extra("id_token").(string)
	id, _, err := s.tokens.check(ctx, raw, time.Now())
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return Grant{}, s.unfit(ctx, "the ID token is missing or not valid")
	case err != nil:
		return Grant{}, err
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1:
		return Grant{}, s.unfit(ctx, "the ID token has another nonce")
	}
	return grantOf(given), nil
}

// Renew gets the next grant. Its tokens have the subject of the token that they replace.
func (s *SignIn) Renew(ctx context.Context, refresh, replaces string) (Grant, error) {
	c, err := s.client(ctx)
	if err != nil {
		return Grant{}, err
	}
	given, err := c.TokenSource(s.posting(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Grant{}, s.refusal(ctx, err, refresh)
	}
	g, before := grantOf(given), peek(replaces)
	g.Tokens = slices.DeleteFunc(g.Tokens, func(t Token) bool { return t.Subject != before.Subject })
	return g, nil
}

// client returns the client of the issuer's endpoints. It looks at the discovery document each time, which is fetched
// no more often than fetches allows. So an issuer that is away is known before anybody is sent there.
func (s *SignIn) client(ctx context.Context) (*oauth2.Config, error) {
	provider, err := oidc.NewProvider(s.tokens.client(context.WithoutCancel(ctx)), s.Issuer)
	if err != nil {
		return nil, s.away(ctx, err)
	}
	var said struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, s.away(ctx, err)
	}
	at := provider.Endpoint()
	for _, endpoint := range []string{at.AuthURL, at.TokenURL} {
		if err := s.trusts(endpoint); err != nil {
			return nil, s.away(ctx, err)
		}
	}
	// Without this, the library would try both ways, and an issuer takes a code once only.
	at.AuthStyle = oauth2.AuthStyleInHeader
	posted := slices.Contains(said.Methods, "client_secret_post") && !slices.Contains(said.Methods, "client_secret_basic")
	if s.ClientSecret == "" || posted {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: s.ClientID, ClientSecret: s.ClientSecret, Endpoint: at, RedirectURL: s.RedirectURL, Scopes: s.Scopes,
	}, nil
}

// trusts rejects endpoints to which codes and secrets would travel in the clear. The issuer itself may be http on
// loopback only.
func (s *SignIn) trusts(endpoint string) error {
	u, err := url.Parse(endpoint)
	plain := err == nil && u.Scheme == "http" && strings.HasPrefix(s.Issuer, "http://")
	if err != nil || u.Host == "" || u.Scheme != "https" && !plain {
		return fmt.Errorf("its discovery document names the endpoint %q, which is not an https URL", endpoint)
	}
	return nil
}

// posting outlives the request of one visitor: others may wait for the same answer. The client's timeout bounds it.
func (s *SignIn) posting(ctx context.Context) context.Context {
	return oidc.ClientContext(context.WithoutCancel(ctx), s.posts)
}
