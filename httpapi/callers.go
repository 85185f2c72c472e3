package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"punctual/store"
	"punctual/store/audit"
	"punctual/store/tenants"
)

// headerTenant names the tenant that an operator acts for.
const headerTenant = "Punctual-Tenant"

// caller is the authenticated sender of a request, and the tenant that it acts for.
type caller struct {
	role   Role
	home   tenants.Brief // owner of the key or token; its rate limit counts the request
	tenant tenants.Brief // tenant that the request acts for
	actor  audit.Actor
}

type callerKey struct{}

// callerOf returns the caller of a request. Operations that need no key have the zero caller.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// within returns a context whose writes are recorded as the caller's.
func (c caller) within(ctx context.Context) context.Context {
	return audit.WithActor(context.WithValue(ctx, callerKey{}, c), c.actor)
}

// authorize admits callers whose role suffices for an operation. It runs before anything else of the request is read.
func (s *server) authorize(role Role) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(hc)
		ctx := hc.Context()
		c, err := s.admit(ctx, w, r, role)
		if err != nil {
			s.problem(ctx, err).write(w)
			return
		}
		next(huma.WithContext(hc, c.within(ctx)))
	}
}

// only is authorize for handlers that are not described as operations.
func (s *server) only(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r.Context(), w, r, role)
		if err != nil {
			s.problem(r.Context(), err).write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(c.within(r.Context())))
	})
}

// admit returns the caller of a request and the tenant it acts for. It refuses callers whose role does not suffice.
func (s *server) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, role Role) (caller, error) {
	c, err := s.identify(ctx, r)
	if err != nil {
		return c, err
	}
	if err := s.rates.spend(ctx, c.home, w.Header()); err != nil {
		return c, err
	}
	if !c.role.includes(role) {
		return c, forbidden(role, c.role)
	}
	if c, err = s.actFor(ctx, c, r.Header.Values(headerTenant)); err == nil {
		s.freezes.tell(ctx, c, w.Header())
	}
	return c, err
}

// forbidden is the problem of a caller whose role does not suffice.
func forbidden(needed, has Role) *Problem {
	return newProblem(CodeForbidden,
		fmt.Sprintf("This operation needs the role %s%s; the caller's role is %s.", needed, orOperator(needed), has))
}

// orOperator adds that operators may do it too, for the role metrics: no role between the two includes it.
func orOperator(needed Role) string {
	if needed == RoleMetrics {
		return " or " + string(RoleOperator)
	}
	return ""
}

// identify authenticates a request and returns its caller, acting for its own tenant.
func (s *server) identify(ctx context.Context, r *http.Request) (caller, error) {
	c := caller{actor: audit.Actor{Kind: audit.Anybody, Address: remote(r), RequestID: requestID(ctx)}}
	token := bearer(r)
	var err error
	switch {
	case s.NoAuth:
		c.role = RoleOperator
		c.home, err = s.tenants.find(ctx, s.Tenant)
		if errors.Is(err, store.ErrNotFound) { // a wrong configuration, not a wrong request
			err = fmt.Errorf("the configured tenant %q does not exist", s.Tenant)
		}
	case s.tokens.reads(token):
		err = s.byToken(ctx, token, &c)
	default:
		err = s.byKey(ctx, token, &c)
	}
	c.tenant = c.home
	return c, err
}

func (s *server) byKey(ctx context.Context, key string, c *caller) error {
	known, err := s.keys.find(ctx, c.actor.Address, key)
	if errors.Is(err, store.ErrNotFound) {
		return errUnauthenticated
	}
	c.role, c.home = Role(known.Role), known.Tenant
	c.actor.Kind, c.actor.Name = audit.Key, known.Key.String()
	return err
}

// byToken verifies a token and sets the caller's role and tenant from its claims.
func (s *server) byToken(ctx context.Context, token string, c *caller) error {
	claims, err := s.tokens.verify(ctx, token)
	if err != nil {
		return err
	}
	c.actor.Kind, c.actor.Name = audit.Token, claims.subject
	var known bool
	if c.role, known = greatest(claims.roles); !known {
		return newProblem(CodeForbidden,
			fmt.Sprintf("The claim %s of the token names none of the roles %s.", s.OIDC.RoleClaim, roleNames()))
	}
	if !nameForm.MatchString(claims.tenant) { // such as one with NUL, which the database cannot take
		err = store.ErrNotFound
	} else {
		c.home, err = s.tenants.find(ctx, claims.tenant)
	}
	if errors.Is(err, store.ErrNotFound) {
		return newProblem(CodeForbidden,
			fmt.Sprintf("The claim %s of the token names a tenant that does not exist.", s.OIDC.TenantClaim))
	}
	return err
}

// greatest returns the greatest of the known roles among the names.
func greatest(names []string) (role Role, known bool) {
	for _, r := range Roles {
		for _, name := range names {
			if Role(name) == r {
				role, known = r, true
			}
		}
	}
	return role, known
}

func roleNames() string {
	names := make([]string, len(Roles))
	for i, r := range Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// actFor returns the caller as acting for the tenant that the header names, if there is one.
func (s *server) actFor(ctx context.Context, c caller, named []string) (caller, error) {
	if len(named) == 0 {
		return c, nil
	}
	name := named[0]
	switch {
	case len(named) > 1:
		return c, invalid([]FieldError{{"header." + headerTenant, "must come once"}})
	case name == c.home.Name:
		return c, nil
	case !c.role.includes(RoleOperator):
		return c, forbiddenTenant(c.role)
	}
	var err error
	if nameForm.MatchString(name) {
		c.tenant, err = s.tenants.find(ctx, name)
	} else {
		err = store.ErrNotFound
	}
	if errors.Is(err, store.ErrNotFound) {
		return c, newProblem(CodeNotFound,
			fmt.Sprintf("There is no tenant %q, which the header %s names.", strings.ToValidUTF8(clip(name), "?"), headerTenant))
	}
	return c, err
}

func forbiddenTenant(has Role) *Problem {
	return newProblem(CodeForbidden,
		fmt.Sprintf("Acting for another tenant with the header %s needs the role %s; the caller's role is %s.",
			headerTenant, RoleOperator, has))
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
