package client

import (
	"context"
	"net/url"

	"punctual/httpapi"
	"punctual/store/notices"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// Caller says what the credentials of this client may do, and for which tenant.
func (c *Client) Caller(ctx context.Context) (httpapi.Caller, error) {
	return get[httpapi.Caller](ctx, c, "/v1/caller", nil)
}

// OwnTenant returns the tenant that requests act for.
func (c *Client) OwnTenant(ctx context.Context) (httpapi.TenantWithUsage, error) {
	return get[httpapi.TenantWithUsage](ctx, c, "/v1/tenant", nil)
}

// Notices lists notices that recipients took, and what waits for recipients.
func (c *Client) Notices(ctx context.Context, query url.Values) (httpapi.Notices, error) {
	return get[httpapi.Notices](ctx, c, "/v1/notices", query)
}

// Notice returns a notice with the jobs that it told of.
func (c *Client) Notice(ctx context.Context, id string) (notices.Detail, error) {
	return get[notices.Detail](ctx, c, at("/v1/notices/%s", id), nil)
}

// TestNotify sends test notices.
func (c *Client) TestNotify(ctx context.Context, test httpapi.NotifyTest) (httpapi.NotifyResults, error) {
	return post[httpapi.NotifyResults](ctx, c, "/v1/notify/test", test)
}

// APIKeys lists the API keys of the tenant.
func (c *Client) APIKeys(ctx context.Context, query url.Values) (httpapi.List[tenants.Key], error) {
	return get[httpapi.List[tenants.Key]](ctx, c, "/v1/api-keys", query)
}

// CreateAPIKey creates an API key. Its secret is shown this once.
func (c *Client) CreateAPIKey(ctx context.Context, key httpapi.KeyInput) (httpapi.NewKey, error) {
	return post[httpapi.NewKey](ctx, c, "/v1/api-keys", key)
}

// RevokeAPIKey ends an API key.
func (c *Client) RevokeAPIKey(ctx context.Context, key string) error {
	return c.remove(ctx, at("/v1/api-keys/%s", key))
}

// Secrets lists the named secrets of the tenant, without their values.
func (c *Client) Secrets(ctx context.Context, query url.Values) (httpapi.List[secrets.Secret], error) {
	return get[httpapi.List[secrets.Secret]](ctx, c, "/v1/secrets", query)
}

// SigningSecrets lists the signing secrets of the tenant, without their values.
func (c *Client) SigningSecrets(ctx context.Context) (httpapi.SigningSecretList, error) {
	return get[httpapi.SigningSecretList](ctx, c, "/v1/signing-secrets", nil)
}
