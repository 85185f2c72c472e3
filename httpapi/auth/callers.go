package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"punctual/httpapi/problem"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/tenants"
)

const (
	// HeaderTenant names the tenant that an operator acts for.
	HeaderTenant = "Punctual-Tenant"
	// HeaderKeyExpires tells the caller when the key of the request expires, if that is soon.
	HeaderKeyExpires = "Punctual-Key-Expires"
)

// Config says who may call.
type Config struct {
	Store  *store.Store
	Log    *slog.Logger
	NoAuth bool   // no authentication: every caller is an operator
	Tenant string // of requests with NoAuth that name none
	OIDC   OIDC   // whose tokens are accepted beside keys
}

// Callers recognises callers. Safe for concurrent use.
type Callers struct {
	config  Config
	keys    *keyring
	tokens  *tokens
	tenants *tenantBook
	rates   *rates
}

// New returns the callers of a deployment. It does not contact the issuer of tokens, which may be away.
func New(c Config) *Callers {
	return &Callers{
		config: c, keys: newKeyring(c.Store), tokens: newTokens(c.OIDC, c.Log), tenants: newTenantBook(c.Store),
		rates: newRates(c.Store),
	}
}

// Caller is the authenticated sender of a request, and the tenant that it acts for.
type Caller struct {
	Role   Role
	Home   tenants.Brief // owner of the key or token; its rate limit counts the request
	Tenant tenants.Brief // tenant that the request acts for
	Actor  audit.Actor

	KeyExpires *time.Time // when its key expires, if that is soon
}

type callerKey struct{}

// CallerOf returns the caller of a request. Operations that need no key have the zero caller.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Within returns a context whose writes are recorded as the caller's.
func (c Caller) Within(ctx context.Context) context.Context {
	return audit.WithActor(context.WithValue(ctx, callerKey{}, c), c.Actor)
}

// Admit returns the caller of a request and the tenant it acts for. It refuses callers whose role does not suffice. It
// writes how many requests the tenant may still send into the header of the answer. An error is a *problem.Problem, or
// the store's.
func (a *Callers) Admit(ctx context.Context, answer http.Header, r *http.Request, role Role) (Caller, error) {
	c, err := a.identify(ctx, r, answer.Get(problem.HeaderRequestID))
	if err != nil {
		return c, err
	}
	if c.KeyExpires != nil {
		answer.Set(HeaderKeyExpires, c.KeyExpires.UTC().Format(time.RFC3339))
	}
	if err := a.rates.spend(ctx, c.Home, answer); err != nil {
		return c, err
	}
	if !c.Role.Includes(role) {
		return c, Forbidden(role, c.Role)
	}
	return a.actFor(ctx, c, r.Header.Values(HeaderTenant))
}

// Forbidden is the problem of a caller whose role does not suffice.
func Forbidden(needed, has Role) *problem.Problem {
	return problem.New(problem.CodeForbidden,
		fmt.Sprintf("This operation needs the role %s%s; the caller's role is %s.", needed, OrOperator(needed), has))
}

// OrOperator adds that operators may do it too, for the role metrics: no role between the two includes it.
func OrOperator(needed Role) string {
	if needed == RoleMetrics {
		return " or " + string(RoleOperator)
	}
	return ""
}

// identify authenticates a request and returns its caller, acting for its own tenant.
func (a *Callers) identify(ctx context.Context, r *http.Request, requestID string) (Caller, error) {
	c := Caller{Actor: audit.Actor{Kind: audit.Anybody, Address: remote(r), RequestID: requestID}}
	token := bearer(r)
	var err error
	switch {
	case a.config.NoAuth:
		c.Role = RoleOperator
		c.Home, err = a.tenants.find(ctx, a.config.Tenant)
		if errors.Is(err, store.ErrNotFound) { // a wrong configuration, not a wrong request
			err = fmt.Errorf("the configured tenant %q does not exist", a.config.Tenant)
		}
	case a.tokens.reads(token):
		err = a.byToken(ctx, token, &c)
	default:
		err = a.byKey(ctx, token, &c)
	}
	c.Tenant = c.Home
	return c, err
}

func (a *Callers) byKey(ctx context.Context, key string, c *Caller) error {
	known, err := a.keys.find(ctx, c.Actor.Address, key)
	if errors.Is(err, store.ErrNotFound) {
		return ErrUnauthenticated
	}
	c.Role, c.Home, c.KeyExpires = Role(known.Role), known.Tenant, known.ExpiresSoon
	c.Actor.Kind, c.Actor.Name, c.Actor.KeyName = audit.Key, known.Key.String(), known.Name
	return err
}

// byToken verifies a token and sets the caller's role and tenant from its claims.
func (a *Callers) byToken(ctx context.Context, token string, c *Caller) error {
	claims, err := a.tokens.verify(ctx, token)
	if err != nil {
		return err
	}
	c.Actor.Kind, c.Actor.Name = audit.Token, claims.subject
	var known bool
	if c.Role, known = Greatest(claims.roles); !known {
		return problem.New(problem.CodeForbidden,
			fmt.Sprintf("The claim %s of the token names none of the roles %s.", a.config.OIDC.RoleClaim, roleNames()))
	}
	c.Home, err = a.tenants.find(ctx, claims.tenant)
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.CodeForbidden,
			fmt.Sprintf("The claim %s of the token names a tenant that does not exist.", a.config.OIDC.TenantClaim))
	}
	return err
}

// actFor returns the caller as acting for the tenant that the header names, if there is one.
func (a *Callers) actFor(ctx context.Context, c Caller, named []string) (Caller, error) {
	if len(named) == 0 {
		return c, nil
	}
	name := named[0]
	switch {
	case len(named) > 1:
		return c, problem.Invalid(problem.At("header."+HeaderTenant, "must come once"))
	case name == c.Home.Name:
		return c, nil
	case !c.Role.Includes(RoleOperator):
		return c, ForbiddenTenant(c.Role)
	}
	var err error
	c.Tenant, err = a.tenants.find(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return c, problem.New(problem.CodeNotFound, fmt.Sprintf("There is no tenant %q, which the header %s names.",
			strings.ToValidUTF8(problem.Clip(name), "?"), HeaderTenant))
	}
	return c, err
}

// ForbiddenTenant is the problem of a caller who acts for another tenant and is no operator.
func ForbiddenTenant(has Role) *problem.Problem {
	return problem.New(problem.CodeForbidden,
		fmt.Sprintf("Acting for another tenant with the header %s needs the role %s; the caller's role is %s.",
			HeaderTenant, RoleOperator, has))
}

// bearer returns the key or token of a request; empty when there is none.
func bearer(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// remote returns the address of the other end of the connection. It may be a load balancer's.
func remote(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr) // invalid when it cannot be parsed
	return at.Addr().Unmap()
}
