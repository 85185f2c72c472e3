package command

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"punctual/httpapi/auth"
)

// authentication holds the flags that say how callers of the API authenticate.
type authentication struct {
	Auth            string `default:"keys" enum:"keys,none" help:"How callers authenticate: keys (API keys; with --oidc-issuer, tokens too) or none (loopback only)."`
	InsecureNoAuth  bool   `help:"With --auth=none, also listen on addresses other than loopback. Every caller that can connect may then do anything."`
	OIDCIssuer      string `name:"oidc-issuer" placeholder:"URL" help:"Also accept the JWTs of this issuer (OpenID Connect), such as https://login.example.com/realms/ops."`
	OIDCAudience    string `name:"oidc-audience" placeholder:"NAME" help:"Audience that tokens must name. Required with an issuer."`
	OIDCJWKSURL     string `name:"oidc-jwks-url" placeholder:"URL" help:"URL of the issuer's keys. Default: the one in its discovery document."`
	OIDCTenantClaim string `name:"oidc-tenant-claim" default:"punctual_tenant" help:"Claim of a token that names its tenant; dots lead into objects, as in resource.tenant."`
	OIDCRoleClaim   string `name:"oidc-role-claim" default:"punctual_role" help:"Claim of a token that names its role, or lists roles: the highest known role counts."`

	OIDCClientID         string   `name:"oidc-client-id" placeholder:"ID" help:"Let people sign in to the pages at the issuer, which knows the pages as this client. Needs --oidc-issuer, and --public-url: the issuer sends people back to /login/callback there."`
	OIDCClientSecretFile string   `name:"oidc-client-secret-file" type:"path" placeholder:"FILE" help:"File with the client's secret. Default: none; the client is a public one, which PKCE protects."`
	OIDCScopes           []string `name:"oidc-scopes" placeholder:"openid,…" help:"Scopes to ask for when people sign in, openid among them. Default: openid. Some issuers renew a session only with offline_access."`
}

// defaultScopes is what every issuer takes. Some refuse scopes that they do not know, and offline_access often means a
// session that outlives the one at the issuer.
var defaultScopes = []string{"openid"}

// signIn returns the issuer, and what it knows the pages by. It reads the secret.
func (a authentication) signIn() (c auth.SignInConfig, err error) {
	c.OIDC = auth.OIDC{
		Issuer: a.OIDCIssuer, Audience: a.OIDCAudience, JWKSURL: a.OIDCJWKSURL, TenantClaim: a.OIDCTenantClaim,
		RoleClaim: a.OIDCRoleClaim,
	}
	if c.ClientID, c.Scopes = a.OIDCClientID, a.OIDCScopes; len(c.Scopes) == 0 {
		c.Scopes = defaultScopes
	}
	if a.OIDCClientSecretFile != "" {
		c.ClientSecret, err = secretIn("--oidc-client-secret-file", a.OIDCClientSecretFile,
			"the file is empty; write the client's secret into it, or leave out the flag for a public client")
	}
	return c, err
}

func (a authentication) noAuth() bool { return a.Auth == "none" }

// Validate returns an error if the flags are wrong.
func (a authentication) Validate() error {
	if err := a.checkClient(); err != nil {
		return err
	}
	switch {
	case a.OIDCIssuer == "" && a.OIDCAudience+a.OIDCJWKSURL != "":
		return errors.New("--oidc-issuer: give the issuer too; --oidc-audience and --oidc-jwks-url need it")
	case a.OIDCIssuer == "":
		return nil
	case a.noAuth():
		return errors.New("--oidc-issuer: with --auth=none tokens are not read; leave out one of the two")
	case a.OIDCAudience == "":
		return errors.New("--oidc-audience: name the audience of the tokens for this service; " +
			"otherwise tokens for other services would be accepted here too")
	case a.OIDCTenantClaim == "" || a.OIDCRoleClaim == "":
		return errors.New("--oidc-tenant-claim and --oidc-role-claim: name the claims")
	}
	if err := trusted("--oidc-issuer", a.OIDCIssuer); err != nil || a.OIDCJWKSURL == "" {
		return err
	}
	return trusted("--oidc-jwks-url", a.OIDCJWKSURL)
}

// checkClient returns an error if the flags of the sign-in are wrong.
func (a authentication) checkClient() error {
	given := len(a.OIDCScopes) > 0 || a.OIDCClientSecretFile != ""
	switch {
	case a.OIDCClientID == "" && given:
		return errors.New("--oidc-client-id: give the client's id too; --oidc-client-secret-file and --oidc-scopes need it")
	case a.OIDCClientID != "" && a.OIDCIssuer == "":
		return errors.New("--oidc-issuer: give the issuer at which people are to sign in; --oidc-client-id needs it")
	case len(a.OIDCScopes) > 0 && !slices.Contains(a.OIDCScopes, "openid"):
		return errors.New("--oidc-scopes: openid must be among them, as in openid,offline_access; " +
			"without it the issuer gives no ID token")
	}
	return nil
}

// checkPages returns an error if the flags of the sign-in do not fit those of the pages.
func (a authentication) checkPages(r replica) error {
	switch {
	case a.OIDCClientID == "":
		return nil
	case r.NoDashboard:
		return errors.New("--oidc-client-id: with --no-dashboard there are no pages to sign in to; leave out one of the two")
	case r.PublicURL == "":
		return errors.New("--public-url: give the address at which browsers reach the pages, such as " +
			"https://punctual.example.com; with --oidc-client-id the issuer sends people back to /login/callback there")
	}
	return nil
}

// trusted rejects URLs on which a man in the middle could replace the issuer's keys with keys of his choice.
func trusted(flag, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%s: %q is not a URL such as https://login.example.com", flag, text)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%s: %s: must be https, or http on loopback", flag, text)
	}
	return nil
}
