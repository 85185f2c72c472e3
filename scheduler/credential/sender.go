package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// Source reads the secrets that attempts authenticate with. Package store implements it, and may answer from what
// it read up to 10 seconds ago. An *AuthError means that trying again soon would not help. Any other error means that
// the database cannot be asked.
type Source interface {
	// SigningKeys returns the keys that a tenant's callbacks are signed with. There is always at least one.
	SigningKeys(ctx context.Context, tenant int32) ([]SigningKey, error)
	// NamedSecret returns a tenant's secret by its name.
	NamedSecret(ctx context.Context, tenant int32, name string) (Secret, error)
	// JobSecret returns a secret that was written into a job's definition.
	JobSecret(ctx context.Context, tenant int32, job, id uuid.UUID) (Secret, error)
}

// Secret is a decrypted secret.
type Secret struct {
	Value string
	Revision
}

// Revision names one value of one secret. Whatever was derived from another revision does not fit this one.
type Revision struct {
	ID      uuid.UUID
	Version int32
}

// String returns the mask.
func (s Secret) String() string { return jobspec.Mask }

// GoString returns the mask.
func (s Secret) GoString() string { return jobspec.Mask }

// AuthError is why an attempt fails with reason auth. Its text is for people and contains no secret.
type AuthError struct{ Why string }

func (e *AuthError) Error() string { return e.Why }

func authErrorf(format string, args ...any) error { return &AuthError{fmt.Sprintf(format, args...)} }

// authTimeout bounds how long an attempt waits for its credentials; the attempt's own timeout does so too.
const authTimeout = 10 * time.Second

// Sender sends the requests of attempts with what authenticates and signs them. It keeps the tokens that it fetches and
// the clients with TLS settings of their own. Safe for concurrent use.
type Sender struct {
	secrets Source
	client  *delivery.Client
	tokens  *lru.Cache[tokenKey, *token]
	tls     *lru.Cache[tlsKey, *delivery.Client]
}

// NewSender returns a sender. Targets without TLS settings of their own are reached through client.
func NewSender(secrets Source, client *delivery.Client) *Sender {
	tokens, _ := lru.New[tokenKey, *token](mostTokens) // fails only for sizes below 1, as the next call does
	clients, _ := lru.NewWithEvict(mostTLSClients, func(_ tlsKey, c *delivery.Client) { c.Close() })
	return &Sender{secrets: secrets, client: client, tokens: tokens, tls: clients}
}

// Forget forgets the tokens and the clients with TLS settings of their own, and closes connections that none uses.
func (s *Sender) Forget() {
	s.tokens.Purge()
	s.tls.Purge()
}

// transmission is an attempt's request on its way, with its client and the secrets in it that nobody may see.
type transmission struct {
	wire.Request
	client  *delivery.Client
	secrets []string // secret values that the request contains
	token   *token   // the source of the token it carries, if any
	carried string   // the token's value when it was added
}

// ErrExpired says that an attempt expired while its secrets were read: a token endpoint may take seconds.
var ErrExpired = errors.New("expired before the secrets were read")

// Send adds credentials to an attempt's request, and sends it. Without credentials nothing is sent: the result has
// reason auth. An error means that the database could not be asked, or is ErrExpired; nothing was sent then either.
func (s *Sender) Send(
	ctx context.Context, a domain.Assignment, r wire.Request, now time.Time,
) (wire.Result, error) {
	t := transmission{Request: r, client: s.client}
	t.KeepBytes, t.WantJSON, t.Fresh = a.Job.KeepResponse, true, a.LastChance(now)
	if a.RunToken != "" {
		t.secrets = append(t.secrets, a.RunToken) // its holder speaks for the attempt
	}
	began := time.Now()
	t.Deadline = began.Add(t.Timeout)
	err := s.authorize(ctx, &t, a, now)
	if err == nil && a.Expired(now.Add(time.Since(began))) {
		return wire.Result{}, ErrExpired
	}
	if err == nil && !time.Now().Before(t.Deadline) {
		err = authErrorf("reading the secrets took longer than the timeout")
	}
	if err != nil {
		return unsent(ctx, err)
	}
	result := t.client.Send(ctx, t.Request)
	if t.token != nil && result.Status == http.StatusUnauthorized {
		t.token.drop(t.carried)
	}
	scrub(&result, t.secrets)
	return result, nil
}

// unsent is the result of an attempt without credentials.
func unsent(ctx context.Context, why error) (wire.Result, error) {
	var refused *AuthError
	var short *shortError
	switch {
	case ctx.Err() != nil:
		return wire.Result{ //nolint:nilerr // to be cancelled is a result
			Cancelled: true, Error: "cancelled before anything was sent",
		}, nil
	case errors.As(why, &short):
		return short.Result, nil
	case errors.As(why, &refused):
		return wire.Result{Reason: wire.Reason(domain.ReasonAuth), Error: refused.Why}, nil
	}
	return wire.Result{}, why
}

// authorize adds the signature and credentials to a request. The signature covers the body alone.
func (s *Sender) authorize(ctx context.Context, t *transmission, a domain.Assignment, now time.Time) error {
	if err := s.addRouting(ctx, t, a.Job); err != nil { // before the body is signed
		return err
	}
	if err := s.fillBody(ctx, t, a); err != nil { // this, too
		return err
	}
	keys, err := s.secrets.SigningKeys(ctx, a.Job.Tenant)
	if err != nil {
		return err
	}
	signature, err := sign(keys, a.MessageID(), now, t.Body)
	if err != nil {
		return err
	}
	t.Extra = append(t.Extra, signature...)
	if target := a.Job.Target; target.Auth == nil && target.SecretHeaders == nil && target.TLS == nil {
		return nil // as most jobs have none
	}
	ctx, cancel := context.WithTimeout(ctx, min(t.Timeout, authTimeout))
	defer cancel()
	return s.addSecrets(ctx, t, a)
}

// addSecrets adds the credentials that a job's target asks for.
func (s *Sender) addSecrets(ctx context.Context, t *transmission, a domain.Assignment) (err error) {
	target := a.Job.Target
	for _, name := range slices.Sorted(maps.Keys(target.SecretHeaders)) {
		value, err := s.hidden(ctx, a.Job, target.SecretHeaders[name])
		if err != nil {
			return err
		}
		if err := t.secretHeader(name, value.Value, value.Value); err != nil {
			return err
		}
	}
	if target.Auth != nil && target.Auth.Type != jobspec.AuthNone {
		if err := s.authenticate(ctx, t, a.Job, *target.Auth); err != nil {
			return err
		}
	}
	if target.TLS != nil {
		if t.client, err = s.tlsClient(ctx, a.Job.Tenant, *target.TLS); err != nil {
			return err
		}
	}
	return nil
}

// secretHeader adds a header that contains secrets.
func (t *transmission) secretHeader(name, value string, secrets ...string) error {
	if wire.CheckHeader(name, value) != nil {
		return authErrorf(
			"a secret does not fit into header %s: it must be one line without control characters or spaces at its ends, of at most %d bytes",
			name, jobspec.MaxInlineSecret)
	}
	t.Extra = append(t.Extra, wire.Header{Name: http.CanonicalHeaderKey(name), Value: value})
	t.secrets = append(t.secrets, secrets...)
	return nil
}

// authenticate adds the header that the type of authentication asks for.
func (s *Sender) authenticate(ctx context.Context, t *transmission, job *domain.Job, auth jobspec.Auth) error {
	secret, err := s.secretOf(ctx, job, auth)
	if err != nil {
		return err
	}
	switch auth.Type {
	case jobspec.AuthBearer:
		return t.secretHeader("Authorization", "Bearer "+secret.Value, secret.Value)
	case jobspec.AuthBasic:
		pair := base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + secret.Value))
		return t.secretHeader("Authorization", "Basic "+pair, pair, secret.Value)
	case jobspec.AuthHeader:
		return t.secretHeader(auth.Header, secret.Value, secret.Value)
	case jobspec.AuthOAuth2, jobspec.AuthOIDC:
		t.token = s.tokenOf(job.Tenant, auth, secret)
		if t.carried, err = t.token.get(ctx, fetcher{s.client, min(t.Timeout, authTimeout)}); err != nil {
			return err
		}
		return t.secretHeader("Authorization", "Bearer "+t.carried, t.carried, secret.Value)
	case jobspec.AuthNone:
	}
	return authErrorf("this version of Punctual does not know authentication of type %s", auth.Type)
}

// secretOf returns the secret of a job's authentication.
func (s *Sender) secretOf(ctx context.Context, job *domain.Job, auth jobspec.Auth) (Secret, error) {
	if auth.Secret != "" {
		return s.secrets.NamedSecret(ctx, job.Tenant, auth.Secret)
	}
	return s.hidden(ctx, job, auth.Value)
}

// hidden returns a secret of a job's definition.
func (s *Sender) hidden(ctx context.Context, job *domain.Job, h jobspec.Hidden) (Secret, error) {
	id, ok := h.Sealed()
	if !ok {
		return Secret{}, authErrorf("the definition holds a secret that was not stored")
	}
	return s.secrets.JobSecret(ctx, job.Tenant, job.ID, id)
}

// addRouting adds the routing key that a notice names to its body, a PagerDuty event.
func (s *Sender) addRouting(ctx context.Context, t *transmission, job *domain.Job) error {
	if job.RoutingSecret() == "" {
		return nil
	}
	secret, err := s.secrets.NamedSecret(ctx, job.Tenant, job.RoutingSecret())
	if err != nil {
		return err
	}
	event := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.Body, &event); err != nil {
		return authErrorf("the notice is not a JSON object, so the routing key cannot be added")
	}
	if event["routing_key"], err = json.Marshal(secret.Value); err != nil {
		return authErrorf("the routing key is not text")
	}
	if t.Body, err = json.Marshal(event); err != nil {
		return authErrorf("the notice cannot be written with its routing key")
	}
	t.secrets = append(t.secrets, secret.Value)
	return nil
}

// fillBody puts the secrets into the body that the job's definition asks for there.
func (s *Sender) fillBody(ctx context.Context, t *transmission, a domain.Assignment) (err error) {
	all := a.BodySecrets(t.Body)
	if all == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(t.Timeout, authTimeout))
	defer cancel()
	t.Body, err = placeholder.FillSecrets(t.Body, all, func(name string) (string, error) {
		secret, err := s.secrets.NamedSecret(ctx, a.Job.Tenant, name)
		if err == nil && !utf8.ValidString(secret.Value) {
			err = authErrorf("secret %q is not valid UTF-8, so it does not fit into a body", name)
		}
		t.secrets = append(t.secrets, secret.Value)
		return secret.Value, err
	})
	return err
}
