package command

import (
	"errors"
	"fmt"
	"net"
	"net/url"

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
}

func (a authentication) noAuth() bool { return a.Auth == "none" }

func (a authentication) oidc() auth.OIDC {
	return auth.OIDC{
		Issuer:      a.OIDCIssuer,
		Audience:    a.OIDCAudience,
		JWKSURL:     a.OIDCJWKSURL,
		TenantClaim: a.OIDCTenantClaim,
		RoleClaim:   a.OIDCRoleClaim,
	}
}

// Validate returns an error if the flags are wrong.
func (a authentication) Validate() error {
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
	if err := trusted(a.OIDCIssuer); err != nil {
		return fmt.Errorf("--oidc-issuer: %w", err)
	}
	if a.OIDCJWKSURL != "" {
		if err := trusted(a.OIDCJWKSURL); err != nil {
			return fmt.Errorf("--oidc-jwks-url: %w", err)
		}
	}
	return nil
}

// trusted rejects URLs on which a man in the middle could replace the issuer's keys with keys of his choice.
func trusted(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is not a URL such as https://login.example.com", text)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%s: must be https, or http on loopback", text)
	}
	return nil
}
