package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
)

const (
	// mostTokens bounds how many tokens a replica keeps.
	mostTokens = 10_000
	// tokenLifetime is the lifetime of a token whose answer states none.
	tokenLifetime = 5 * time.Minute
	// tokenMargin is how long before its end a token is fetched anew; at most a quarter of its lifetime.
	tokenMargin = time.Minute
	// refusalLifetime is how long a failure is repeated to all who want the same token: they would all get it anyway.
	refusalLifetime = time.Second
)

// tokenKey names what a token was fetched for, and with which value of the secret.
type tokenKey struct {
	tenant                                   int32
	endpoint, issuer, client, scopes, target string
	secret                                   Revision
}

// newTokens returns room for the access tokens that a replica fetches.
func newTokens() *lru.Cache[tokenKey, *token] {
	tokens, _ := lru.New[tokenKey, *token](mostTokens) // fails only for sizes below 1
	return tokens
}

// tokenOf returns the token for a job's authentication.
func (s *Scheduler) tokenOf(tenant int32, auth domain.Auth, secret Secret) *token {
	scopes := slices.Clone(auth.Scopes)
	slices.Sort(scopes)
	key := tokenKey{
		tenant, auth.TokenURL, auth.Issuer, auth.ClientID, strings.Join(slices.Compact(scopes), " "), auth.Audience,
		secret.Revision,
	}
	if known, ok := s.tokens.Get(key); ok {
		return known
	}
	fresh := &token{key: key, secret: secret.Value, turn: make(chan struct{}, 1)}
	if first, ok, _ := s.tokens.PeekOrAdd(key, fresh); ok { // another attempt was faster
		return first
	}
	return fresh
}

// token is one access token. One attempt at a time fetches it, and the others that need it wait.
type token struct {
	key    tokenKey
	secret string
	turn   chan struct{} // holds one value while an attempt fetches the token

	mu      sync.Mutex
	value   string
	until   time.Time // when to fetch the value anew
	refusal error
	retryAt time.Time // when to forget the refusal

	// Only the attempt that fetches uses these.
	endpoint string // the endpoint that the issuer announced, until lookAt
	lookAt   time.Time
	inBody   bool // the endpoint wants the client's secret in the body
}

// get returns the token. It fetches it through client if need be.
func (t *token) get(ctx context.Context, client *delivery.Client) (string, error) {
	if value, refusal := t.present(); value != "" || refusal != nil {
		return value, refusal
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", authErrorf("no token from %s: it took too long", t.host())
	}
	if value, refusal := t.present(); value != "" || refusal != nil {
		return value, refusal
	}
	value, lifetime, err := t.fetch(ctx, client)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.refusal, t.retryAt = err, time.Now().Add(refusalLifetime)
		if ctx.Err() != nil {
			t.refusal = nil // this attempt ran out of time; others may have more
		}
		return "", err
	}
	t.value, t.until, t.refusal = value, time.Now().Add(lifetime-min(tokenMargin, lifetime/4)), nil
	return value, nil
}

// present returns the token or the refusal that is at hand, without a request.
func (t *token) present() (value string, refusal error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case t.value != "" && now.Before(t.until):
		return t.value, nil
	case t.refusal != nil && now.Before(t.retryAt):
		return "", t.refusal
	}
	return "", nil
}

// drop forgets a token that a target refused, unless it has been replaced by now.
func (t *token) drop(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value == value {
		t.value = ""
	}
}

// host is where the token comes from, for people.
func (t *token) host() string {
	for _, raw := range []string{t.key.endpoint, t.key.issuer} {
		if u, err := delivery.CheckURL(raw); err == nil {
			return u.Host
		}
	}
	return "the token endpoint"
}

func (t *token) errorf(format string, args ...any) error {
	return authErrorf("no token from %s: %s", t.host(), fmt.Sprintf(format, args...))
}
