package jobspec

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"punctual/scheduler/delivery/wire"
)

// AuthType is how a request authenticates to its target.
type AuthType string

// The types of authentication.
const (
	AuthNone   AuthType = "none"
	AuthBearer AuthType = "bearer" // Authorization: Bearer and the secret
	AuthBasic  AuthType = "basic"  // Authorization: Basic with the username, and the secret as password
	AuthHeader AuthType = "header" // the secret in a header of the job's choice
	AuthOAuth2 AuthType = "oauth2" // client credentials grant; the secret is the client's
	AuthOIDC   AuthType = "oidc"   // the same, with the token endpoint that an issuer announces
)

// Auth says how a request authenticates to its target. Exactly one of Secret and Value is set, unless the type is none.
type Auth struct {
	Type     AuthType `json:"type" enum:"none,bearer,basic,header,oauth2,oidc" doc:"none; bearer; basic, with username; header, with header; oauth2 and oidc send a token of the client credentials grant as bearer." example:"bearer"`
	Secret   string   `json:"secret,omitempty" minLength:"1" doc:"Name of a secret (PUT /v1/secrets/{secret}): the token, password, header's value or client secret. A changed secret is used within 10 seconds. Absent: value holds it." example:"billing-token"`
	Value    Hidden   `json:"value,omitzero" doc:"The secret itself: stored encrypted, and shown as ***. Absent: secret names it; in a patch, it stays." example:"s3cr3t"`
	Username string   `json:"username,omitempty" minLength:"1" doc:"With basic: the user. Absent: an empty name."`
	Header   string   `json:"header,omitempty" minLength:"1" doc:"With header, which requires it: the header's name. Absent: none." example:"X-Api-Key"`
	TokenURL string   `json:"token_url,omitempty" minLength:"1" doc:"With oauth2, and with oidc unless issuer is given: the token endpoint. Absent: that of the issuer." example:"https://login.internal/oauth2/token"`
	Issuer   string   `json:"issuer,omitempty" minLength:"1" doc:"With oidc: the issuer, whose /.well-known/openid-configuration names the token endpoint. Absent: token_url is the endpoint." example:"https://login.internal"`
	ClientID string   `json:"client_id,omitempty" minLength:"1" doc:"With oauth2 and oidc, which require it: the client id. Absent: none." example:"punctual"`
	Scopes   []string `json:"scopes,omitempty" doc:"With oauth2 and oidc: the token's scopes. Absent: none." example:"[\"invoices.write\"]"`
	Audience string   `json:"audience,omitempty" minLength:"1" doc:"With oauth2 and oidc: the token's audience, if the endpoint needs one. Absent: none." example:"https://billing.internal"`
}

// TLS says how to connect to a target that needs its own settings. Both fields name secrets in PEM.
type TLS struct {
	ClientCertificate string `json:"client_certificate,omitempty" minLength:"1" doc:"Name of a secret with the certificate chain and its key, as PEM. Absent: none." example:"billing-client-certificate"`
	CA                string `json:"ca,omitempty" minLength:"1" doc:"Name of a secret with the certificate authorities that verify the target, as PEM, in place of the deployment's. Absent: the deployment's." example:"billing-ca"`
}

// Bounds of credentials.
const (
	// MaxInlineSecret bounds a secret in a definition: every such secret becomes a header value.
	MaxInlineSecret = 8 << 10 // bytes
	maxScopes       = 64
)

func (c *checker) secrets(t Target) {
	c.auth(t)
	if t.TLS != nil {
		c.tls(t)
	}
	c.secretHeaders(t)
}

func (c *checker) tls(t Target) {
	c.secretName("target.tls.client_certificate", t.TLS.ClientCertificate)
	c.secretName("target.tls.ca", t.TLS.CA)
	if *t.TLS == (TLS{}) {
		c.add("target.tls", "name a client_certificate, a ca or both; or leave it out")
	}
	if strings.HasPrefix(strings.ToLower(t.URL), "http://") {
		c.add("target.tls", "target.url is not https, so there is no TLS; leave it out")
	}
}

func (c *checker) secretName(field, name string) {
	if name != "" && !NameForm.MatchString(name) {
		c.add(field, "%q: the name of a secret is %s", clip(name), NameRule)
	}
}

func (c *checker) secretHeaders(t Target) {
	if len(t.Headers)+len(t.SecretHeaders) > MaxHeaders && len(t.Headers) <= MaxHeaders {
		c.add("target.secret_headers", "%d headers with those of target.headers; at most %d",
			len(t.Headers)+len(t.SecretHeaders), MaxHeaders)
	}
	written := map[string]bool{}
	for name := range t.Headers {
		written[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	for _, name := range sortedNames(t.SecretHeaders) {
		field := "target.secret_headers." + clip(name)
		value := t.SecretHeaders[name]
		c.hidden(field, value)
		c.check(field, wire.CheckHeader(name, value.Value()))
		if written[textproto.CanonicalMIMEHeaderKey(name)] {
			c.add(field, "is given twice; give a header once")
		}
		written[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	if header := CredentialHeader(t.Auth); header != "" && written[textproto.CanonicalMIMEHeaderKey(header)] {
		c.add("target.auth", "sends the header %s, which is among headers or secret_headers too; give it once", clip(header))
	}
}

// hidden checks a secret value. No message repeats the value.
func (c *checker) hidden(field string, h Hidden) {
	if h.Value() == Mask {
		c.add(field, `"***" is the mask, not the value: leave the field out to keep it (PATCH), or write the value`)
	}
	c.atMost(field, len(h.Value()), "bytes", MaxInlineSecret)
	c.text(field, h.Value())
}

// CredentialHeader names the header that carries the credentials; empty: none.
func CredentialHeader(a *Auth) string {
	switch {
	case a == nil, a.Type == AuthNone:
		return ""
	case a.Type == AuthHeader:
		return a.Header
	}
	return "Authorization"
}

func (c *checker) auth(t Target) {
	if t.Auth == nil {
		return
	}
	a := *t.Auth
	if a.Type == "" {
		c.add("target.auth.type", "is required: none, bearer, basic, header, oauth2 or oidc")
		return
	}
	oneOf(c, "target.auth.type", a.Type, AuthNone, AuthBearer, AuthBasic, AuthHeader, AuthOAuth2, AuthOIDC)
	c.hidden("target.auth.value", a.Value)
	c.secretName("target.auth.secret", a.Secret)
	switch {
	case a.Type == AuthNone && (a.Secret != "" || !a.Value.IsZero()):
		c.add("target.auth", "type none has no secret; leave secret and value out")
	case a.Type != AuthNone && (a.Secret == "") == a.Value.IsZero():
		c.add("target.auth", "give exactly one of secret (the name of one) and value")
	}
	c.authFields(a)
	if err := wire.CheckHeader("Authorization", a.Value.Value()); err != nil &&
		a.Value.Value() != "" && (a.Type == AuthBearer || a.Type == AuthHeader) {
		c.add("target.auth.value",
			"must fit into a header: one line without control characters or spaces at its ends, of at most %d bytes",
			MaxInlineSecret)
	}
}

// authFields checks the fields that only some types have.
func (c *checker) authFields(a Auth) {
	token := a.Type == AuthOAuth2 || a.Type == AuthOIDC
	for _, f := range []struct {
		field    string
		set      bool
		allowed  bool
		required bool
		what     string
	}{
		{"username", a.Username != "", a.Type == AuthBasic, false, "type basic"},
		{"header", a.Header != "", a.Type == AuthHeader, true, "type header"},
		{"token_url", a.TokenURL != "", token, a.Type == AuthOAuth2, "types oauth2 and oidc"},
		{"issuer", a.Issuer != "", a.Type == AuthOIDC, false, "type oidc"},
		{"client_id", a.ClientID != "", token, true, "types oauth2 and oidc"},
		{"scopes", len(a.Scopes) > 0, token, false, "types oauth2 and oidc"},
		{"audience", a.Audience != "", token, false, "types oauth2 and oidc"},
	} {
		switch {
		case f.set && !f.allowed:
			c.add("target.auth."+f.field, "only %s has it; leave it out", f.what)
		case !f.set && f.allowed && f.required:
			c.add("target.auth."+f.field, "is required with type %s", clip(string(a.Type)))
		}
	}
	if a.Type == AuthOIDC && (a.Issuer == "") == (a.TokenURL == "") {
		c.add("target.auth", "type oidc needs exactly one of issuer and token_url")
	}
	c.tokenFields(a)
	if a.Type == AuthHeader && a.Header != "" {
		c.check("target.auth.header", wire.CheckHeader(a.Header, ""))
	}
	if strings.ContainsFunc(a.Username, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }) {
		c.add("target.auth.username", "must have no colon and no control characters")
	}
	c.short("target.auth.username", a.Username)
}

func (c *checker) tokenFields(a Auth) {
	if a.TokenURL != "" {
		_, err := wire.CheckURL(a.TokenURL)
		c.check("target.auth.token_url", err)
	}
	if a.Issuer != "" {
		u, err := wire.CheckURL(a.Issuer)
		c.check("target.auth.issuer", err)
		if err == nil && (u.RawQuery != "" || u.ForceQuery) {
			c.add("target.auth.issuer", "must not have a query, as a path is added to it")
		}
	}
	c.short("target.auth.client_id", a.ClientID)
	c.short("target.auth.audience", a.Audience)
	c.atMost("target.auth.scopes", len(a.Scopes), "scopes", maxScopes)
	for i, scope := range a.Scopes {
		if scope == "" ||
			strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			c.add("target.auth.scopes", "scope %d must be visible ASCII without spaces, quotes and backslashes", i+1)
		}
		c.short("target.auth.scopes", scope)
	}
}

// short bounds texts that are sent along with a secret.
func (c *checker) short(field, text string) {
	c.atMost(field, len(text), "bytes", 1024)
	c.text(field, text)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
