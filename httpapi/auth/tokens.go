package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/httpapi/problem"
)

// OIDC configures whose tokens are accepted beside keys. Without an issuer no tokens are accepted.
type OIDC struct {
	Issuer      string
	Audience    string // that tokens must name
	JWKSURL     string // of the issuer's keys; empty: the one in its discovery document
	TenantClaim string // name of the claim with the tenant's name; dots lead into objects
	RoleClaim   string // name of the claim with the role or a list of them
}

// leeway is how far the issuer's clock and this machine's may differ.
const leeway = 30 * time.Second

// asymmetric are the algorithms that tokens may be signed with. With a shared secret, whoever can check a token could
// make one.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// tokens verifies the tokens of an issuer.
type tokens struct {
	OIDC
	log     *slog.Logger
	fetches *fetches
	known   *lru.Cache[[sha256.Size]byte, remembered[claims]] // recently verified: a signature costs 0.1 ms

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil: the location of the issuer's keys is not known yet
}

// newTokens does not contact the issuer, which may be away.
func newTokens(c OIDC, log *slog.Logger) *tokens {
	known, _ := lru.New[[sha256.Size]byte, remembered[claims]](mostKeys) // fails for sizes below 1 only
	t := &tokens{OIDC: c, log: log, fetches: newFetches(), known: known}
	if c.JWKSURL != "" {
		t.verifier = t.verifierBy(c.JWKSURL)
	}
	return t
}

// verifierBy returns a verifier by the keys at a URL. It does not fetch them yet.
func (t *tokens) verifierBy(jwks string) *oidc.IDTokenVerifier {
	keys := oidc.NewRemoteKeySet(t.client(context.Background()), jwks)
	return oidc.NewVerifier(t.Issuer, tellingKeys{keys}, t.config())
}

func (t *tokens) client(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Transport: t.fetches})
}

// config leaves checking the times to current: the library allows no leeway for expiry and five minutes for nbf.
func (t *tokens) config() *oidc.Config {
	return &oidc.Config{ClientID: t.Audience, SupportedSigningAlgs: asymmetric, SkipExpiryCheck: true}
}

// reads reports whether a credential is a token that the issuer may have signed, rather than a key.
func (t *tokens) reads(token string) bool {
	return t.Issuer != "" && strings.Count(token, ".") == 2 && !strings.HasPrefix(token, "punctual_")
}

// claims is what a verified token says.
type claims struct {
	subject, tenant string
	roles           []string
}

// verify returns what a token says. It returns ErrUnauthenticated when the token is not valid, and a problem when
// that cannot be known now.
func (t *tokens) verify(ctx context.Context, raw string) (claims, error) {
	hash := sha256.Sum256([]byte(raw))
	now := time.Now()
	if known, ok := t.known.Get(hash); ok && now.Before(known.until) {
		return known.value, nil
	}
	token, said, err := t.check(ctx, raw, now)
	if err != nil {
		return claims{}, err
	}
	c := claims{subject: token.Subject, roles: texts(claimed(said, t.RoleClaim))}
	c.tenant, _ = claimed(said, t.TenantClaim).(string)
	until := now.Add(Remembered)
	if ends := token.Expiry.Add(leeway); ends.Before(until) {
		until = ends
	}
	t.known.Add(hash, remembered[claims]{c, until})
	return c, nil
}

// check verifies a token. It returns all of its claims too.
func (t *tokens) check(ctx context.Context, raw string, now time.Time) (*oidc.IDToken, map[string]any, error) {
	verifier, err := t.ready(ctx)
	if err != nil {
		return nil, nil, t.away(ctx, err)
	}
	var failed error
	token, err := verifier.Verify(context.WithValue(ctx, fetchFailedKey{}, &failed), raw)
	switch {
	case failed != nil:
		return nil, nil, t.away(ctx, failed)
	case err != nil:
		return nil, nil, ErrUnauthenticated
	}
	var said map[string]any
	if err := token.Claims(&said); err != nil || !current(token.Expiry, said["nbf"], now) {
		return nil, nil, ErrUnauthenticated
	}
	if strings.ContainsRune(token.Subject, 0) { // the database cannot record an actor with NUL
		return nil, nil, ErrUnauthenticated
	}
	return token, said, nil
}

// current reports whether a token is valid at this time. A token that never expires is not accepted.
func current(expiry time.Time, notBefore any, now time.Time) bool {
	if expiry.IsZero() || now.After(expiry.Add(leeway)) {
		return false
	}
	switch from := notBefore.(type) {
	case nil:
		return true
	case float64:
		return from <= float64(now.Add(leeway).Unix())
	}
	return false
}

// claimed returns the claim with a name, or at a dotted path into objects.
func claimed(said map[string]any, name string) any {
	if v, ok := said[name]; ok { // also a name with dots, such as a URL
		return v
	}
	first, rest, nested := strings.Cut(name, ".")
	if inner, ok := said[first].(map[string]any); nested && ok {
		return claimed(inner, rest)
	}
	return nil
}

// texts returns the strings of a claim that is a string or a list.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, element := range v {
			if text, ok := element.(string); ok {
				list = append(list, text)
			}
		}
		return list
	}
	return nil
}

// ready returns the verifier. The first time, it asks the issuer where its keys are.
func (t *tokens) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verifier != nil {
		return t.verifier, nil
	}
	provider, err := oidc.NewProvider(t.client(context.WithoutCancel(ctx)), t.Issuer)
	if err != nil {
		return nil, err
	}
	var said struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, err
	}
	t.verifier = t.verifierBy(said.JWKS)
	return t.verifier, nil
}

// away is the answer while the issuer's keys cannot be fetched.
func (t *tokens) away(ctx context.Context, err error) error {
	if t.fetches.news(err) {
		t.log.WarnContext(ctx, "the issuer of tokens does not say what its keys are; asked again when the next token comes",
			"issuer", t.Issuer, "error", err)
	}
	return problem.New(problem.CodeIssuer, "The keys of the token issuer cannot be fetched right now; try again.").
		With("Retry-After", fmt.Sprint(int(FetchAgain.Seconds())))
}

// tellingKeys tell a wrong signature from keys that could not be fetched. The verifier itself does not.
type tellingKeys struct{ oidc.KeySet }

type fetchFailedKey struct{}

func (k tellingKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	var failed *fetchError
	if told, ok := ctx.Value(fetchFailedKey{}).(*error); ok && errors.As(err, &failed) {
		*told = failed
	}
	return payload, err
}
