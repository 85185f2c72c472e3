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

// PatchOwnTenant changes the settings of the tenant that the patch names (JSON Merge Patch).
func (c *Client) PatchOwnTenant(ctx context.Context, patch any) (tenants.Tenant, error) {
	return merge[tenants.Tenant](ctx, c, "/v1/tenant", patch)
}

// Tenants lists tenants.
func (c *Client) Tenants(ctx context.Context, query url.Values) (httpapi.List[tenants.Tenant], error) {
	return get[httpapi.List[tenants.Tenant]](ctx, c, "/v1/tenants", query)
}

// Tenant returns the tenant with a name.
func (c *Client) Tenant(ctx context.Context, name string) (httpapi.TenantWithUsage, error) {
	return get[httpapi.TenantWithUsage](ctx, c, at("/v1/tenants/%s", name), nil)
}

// CreateTenant creates a tenant.
func (c *Client) CreateTenant(ctx context.Context, tenant httpapi.TenantInput) (tenants.Tenant, error) {
	return post[tenants.Tenant](ctx, c, "/v1/tenants", tenant)
}

// PatchTenant changes the settings of a tenant that the patch names (JSON Merge Patch).
func (c *Client) PatchTenant(ctx context.Context, name string, patch any) (tenants.Tenant, error) {
	return merge[tenants.Tenant](ctx, c, at("/v1/tenants/%s", name), patch)
}

// DeleteTenant deletes a tenant that has no jobs.
func (c *Client) DeleteTenant(ctx context.Context, name string) error {
	return c.remove(ctx, at("/v1/tenants/%s", name))
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

// APIKey returns an API key, without its secret.
func (c *Client) APIKey(ctx context.Context, key string) (tenants.Key, error) {
	return get[tenants.Key](ctx, c, at("/v1/api-keys/%s", key), nil)
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

// Secret returns a named secret, without its value.
func (c *Client) Secret(ctx context.Context, name string) (secrets.Secret, error) {
	return get[secrets.Secret](ctx, c, at("/v1/secrets/%s", name), nil)
}

// PutSecret creates a named secret, or replaces its value. A value is not part of what a SecretInput shows, so it is
// given apart.
func (c *Client) PutSecret(ctx context.Context, name, value, description string) (secrets.Secret, error) {
	in := map[string]string{"value": value, "description": description}
	return put[secrets.Secret](ctx, c, at("/v1/secrets/%s", name), in)
}

// DeleteSecret deletes a named secret that no job refers to.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	return c.remove(ctx, at("/v1/secrets/%s", name))
}

// SigningSecrets lists the signing secrets of the tenant, without their values.
func (c *Client) SigningSecrets(ctx context.Context) (httpapi.SigningSecretList, error) {
	return get[httpapi.SigningSecretList](ctx, c, "/v1/signing-secrets", nil)
}

// CreateSigningSecret creates a signing secret. Its value is shown this once.
func (c *Client) CreateSigningSecret(ctx context.Context) (httpapi.NewSigningSecret, error) {
	return post[httpapi.NewSigningSecret](ctx, c, "/v1/signing-secrets", nil)
}

// DeleteSigningSecret ends a signing secret, after a grace such as 24h; at once if it is empty.
func (c *Client) DeleteSigningSecret(ctx context.Context, secret, grace string) error {
	path := at("/v1/signing-secrets/%s", secret)
	if grace != "" {
		path += "?" + url.Values{"in": {grace}}.Encode()
	}
	return c.remove(ctx, path)
}
