package scheduler

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"punctual/scheduler/delivery"
)

// discoveryLifetime is how long an issuer's announcement is used.
const discoveryLifetime = time.Hour

// fetch asks the token endpoint, as in RFC 6749, section 4.4. No error repeats anything of its answer.
func (t *token) fetch(ctx context.Context, client *delivery.Client) (value string, lifetime time.Duration, err error) {
	endpoint, err := t.discover(ctx, client)
	if err != nil {
		return "", 0, err
	}
	result, err := t.ask(ctx, client, endpoint)
	if err == nil && !t.inBody && (result.Status == http.StatusBadRequest || result.Status == http.StatusUnauthorized) {
		// Most endpoints read the Authorization header, as they must. Some want the client in the body.
		t.inBody = true
		if result, err = t.ask(ctx, client, endpoint); err == nil && !result.OK() {
			t.inBody = false
		}
	}
	switch {
	case err != nil:
		return "", 0, err
	case result.Reason != "" && result.Status != 0:
		return "", 0, t.errorf("it answered %d", result.Status)
	case !result.OK():
		return "", 0, t.errorf("%s", result.Error)
	}
	return t.read(result.Body)
}

// ask sends the client's credentials to the token endpoint.
func (t *token) ask(ctx context.Context, client *delivery.Client, endpoint string) (delivery.Result, error) {
	u, err := delivery.CheckURL(endpoint)
	if err != nil {
		return delivery.Result{}, t.errorf("the token endpoint %v", err)
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
	return client.Send(ctx, delivery.Request{
		Tenant: t.key.tenant, Method: http.MethodPost, URL: u, Header: header, Body: []byte(form.Encode()),
		Timeout: left(ctx), KeepBody: true,
	}), nil
}

// left is how much time is left until the deadline of a context.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return authTimeout
	}
	return max(time.Until(deadline), time.Millisecond)
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
	case delivery.CheckHeader("Authorization", answer.AccessToken) != nil:
		return "", 0, t.errorf("its token does not fit into a header")
	}
	lifetime = tokenLifetime
	if seconds, err := answer.ExpiresIn.Float64(); err == nil && seconds > 0 {
		lifetime = time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
	}
	return answer.AccessToken, lifetime, nil
}

// discover returns the token endpoint: as it was written, or as the issuer announces it.
func (t *token) discover(ctx context.Context, client *delivery.Client) (endpoint string, err error) {
	switch {
	case t.key.endpoint != "":
		return t.key.endpoint, nil
	case t.endpoint != "" && time.Now().Before(t.lookAt):
		return t.endpoint, nil
	}
	u, err := delivery.CheckURL(strings.TrimSuffix(t.key.issuer, "/") + "/.well-known/openid-configuration")
	if err != nil {
		return "", t.errorf("the issuer %v", err)
	}
	result := client.Send(ctx, delivery.Request{
		Tenant: t.key.tenant, Method: http.MethodGet, URL: u, Header: http.Header{"Accept": {"application/json"}},
		Timeout: left(ctx), KeepBody: true,
	})
	var announced struct {
		Issuer        string `json:"issuer"`
		TokenEndpoint string `json:"token_endpoint"`
	}
	switch {
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
	if next, err := delivery.CheckURL(announced.TokenEndpoint); err != nil ||
		u.Scheme == "https" && next.Scheme != "https" {
		return "", t.errorf("/.well-known/openid-configuration names a token_endpoint that Punctual may not call")
	}
	t.endpoint, t.lookAt = announced.TokenEndpoint, time.Now().Add(discoveryLifetime)
	return t.endpoint, nil
}
