package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

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

// Grants lists the grants of a tenant, by which roles of the database make runs of its jobs.
func (c *Client) Grants(ctx context.Context, tenant string, query url.Values) (httpapi.List[tenants.Grant], error) {
	return get[httpapi.List[tenants.Grant]](ctx, c, grantPath(tenant, ""), query)
}

// PutGrant lets a role of the database make runs of a tenant's jobs, by the functions of a schema.
func (c *Client) PutGrant(
	ctx context.Context, tenant, schema string, in httpapi.GrantInput,
) (grant tenants.Grant, err error) {
	_, err = c.Do(ctx, http.MethodPut, grantPath(tenant, schema), in, &grant)
	return grant, err
}

// DeleteGrant takes a grant back.
func (c *Client) DeleteGrant(ctx context.Context, tenant, schema string) error {
	return c.remove(ctx, grantPath(tenant, schema))
}

func grantPath(tenant, schema string) string {
	return strings.TrimSuffix(at("/v1/tenants/%s/grants/", tenant)+url.PathEscape(schema), "/")
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
