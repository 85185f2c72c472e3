package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
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

// tokenOf returns the token for a job's authentication.
func (s *Sender) tokenOf(tenant int32, auth jobspec.Auth, secret Secret) *token {
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

// get returns the token. It fetches it if need be.
func (t *token) get(ctx context.Context, from fetcher) (string, error) {
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
	value, lifetime, err := t.fetch(ctx, from)
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

// A fetcher sends the requests for a token. They may take the given time together, which their context ends.
type fetcher struct {
	client *delivery.Client
	within time.Duration
}

func (f fetcher) send(ctx context.Context, r wire.Request) wire.Result {
	r.KeepBody, r.Fresh, r.Timeout = true, true, f.within
	r.Deadline, _ = ctx.Deadline()
	return f.client.Send(ctx, r)
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
		if u, err := wire.CheckURL(raw); err == nil {
			return u.Host
		}
	}
	return "the token endpoint"
}

func (t *token) errorf(format string, args ...any) error {
	return authErrorf("no token from %s: %s", t.host(), fmt.Sprintf(format, args...))
}

// shortError says that a token could not be asked for because this replica lacks something.
type shortError struct{ wire.Result }

func (e *shortError) Error() string { return e.Result.Error }

// discoveryLifetime is how long an issuer's announcement is used.
const discoveryLifetime = time.Hour

// fetch asks the token endpoint, as in RFC 6749, section 4.4. No error repeats anything of its answer.
func (t *token) fetch(ctx context.Context, from fetcher) (value string, lifetime time.Duration, err error) {
	endpoint, err := t.discover(ctx, from)
	if err != nil {
		return "", 0, err
	}
	result, err := t.ask(ctx, from, endpoint)
	if err == nil && !t.inBody && (result.Status == http.StatusBadRequest || result.Status == http.StatusUnauthorized) {
		// Most endpoints read the Authorization header, as they must. Some want the client in the body.
		t.inBody = true
		if result, err = t.ask(ctx, from, endpoint); err == nil && !result.OK() {
			t.inBody = false
		}
	}
	switch {
	case err != nil:
		return "", 0, err
	case result.Lacks != "":
		return "", 0, &shortError{result}
	case result.Reason != "" && result.Status != 0:
		return "", 0, t.errorf("it answered %d", result.Status)
	case !result.OK():
		return "", 0, t.errorf("%s", result.Error)
	}
	return t.read(result.Body)
}

// ask sends the client's credentials to the token endpoint.
func (t *token) ask(ctx context.Context, from fetcher, endpoint string) (wire.Result, error) {
	u, err := wire.CheckURL(endpoint)
	if err != nil {
		return wire.Result{}, t.errorf("the token endpoint %v", err)
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.key.scopes != "" {
		form.Set("scope", t.key.scopes)
	}
	if t.key.target != "" {
		form.Set("audience", t.key.target)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	if t.inBody {
		form.Set("client_id", t.key.client)
		form.Set("client_secret", t.secret)
	} else {
		pair := url.QueryEscape(t.key.client) + ":" + url.QueryEscape(t.secret)
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	return from.send(ctx, wire.Request{
		Tenant: t.key.tenant, Method: http.MethodPost, URL: u, Header: header, Body: []byte(form.Encode()),
	}), nil
}

// read reads the answer of a token endpoint.
func (t *token) read(body []byte) (value string, lifetime time.Duration, err error) {
	var answer struct {
		AccessToken string      `json:"access_token"`
		TokenType   string      `json:"token_type"`
		ExpiresIn   json.Number `json:"expires_in"`
	}
	switch {
	case json.Unmarshal(body, &answer) != nil, answer.AccessToken == "":
		return "", 0, t.errorf("its answer holds no token; it must be a JSON object with access_token")
	case answer.TokenType != "" && !strings.EqualFold(answer.TokenType, "bearer"):
		return "", 0, t.errorf("its tokens are not of type bearer")
	case wire.CheckHeader("Authorization", answer.AccessToken) != nil:
		return "", 0, t.errorf("its token does not fit into a header")
	}
	lifetime = tokenLifetime
	if seconds, err := answer.ExpiresIn.Float64(); err == nil && seconds > 0 {
		lifetime = time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
	}
	return answer.AccessToken, lifetime, nil
}

// discover returns the token endpoint: as it was written, or as the issuer announces it.
func (t *token) discover(ctx context.Context, from fetcher) (endpoint string, err error) {
	switch {
	case t.key.endpoint != "":
		return t.key.endpoint, nil
	case t.endpoint != "" && time.Now().Before(t.lookAt):
		return t.endpoint, nil
	}
	u, err := wire.CheckURL(strings.TrimSuffix(t.key.issuer, "/") + "/.well-known/openid-configuration")
	if err != nil {
		return "", t.errorf("the issuer %v", err)
	}
	result := from.send(ctx, wire.Request{
		Tenant: t.key.tenant, Method: http.MethodGet, URL: u, Header: http.Header{"Accept": {"application/json"}},
	})
	var announced struct {
		Issuer        string `json:"issuer"`
		TokenEndpoint string `json:"token_endpoint"`
	}
	switch {
	case result.Lacks != "":
		return "", &shortError{result}
	case result.Reason != "" && result.Status != 0:
		return "", t.errorf("/.well-known/openid-configuration answered %d", result.Status)
	case !result.OK():
		return "", t.errorf("%s", result.Error)
	case json.Unmarshal(result.Body, &announced) != nil, announced.TokenEndpoint == "":
		return "", t.errorf("/.well-known/openid-configuration names no token_endpoint")
	case strings.TrimSuffix(announced.Issuer, "/") != strings.TrimSuffix(t.key.issuer, "/"):
		return "", t.errorf("/.well-known/openid-configuration names another issuer")
	}
	// An issuer asked over https must not lead to an endpoint without it: the client's secret would go in the clear.
	if next, err := wire.CheckURL(announced.TokenEndpoint); err != nil ||
		u.Scheme == "https" && next.Scheme != "https" {
		return "", t.errorf("/.well-known/openid-configuration names a token_endpoint that Punctual may not call")
	}
	t.endpoint, t.lookAt = announced.TokenEndpoint, time.Now().Add(discoveryLifetime)
	return t.endpoint, nil
}
