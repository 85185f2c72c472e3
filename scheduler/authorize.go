package scheduler

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// Credentials reads the secrets that attempts authenticate with. Package store implements it, and may answer from what
// it read up to 10 seconds ago. An *AuthError means that trying again soon would not help. Any other error means that
// the database cannot be asked.
type Credentials interface {
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
func (s Secret) String() string { return domain.Mask }

// GoString returns the mask.
func (s Secret) GoString() string { return domain.Mask }

// AuthError is why an attempt fails with reason auth. Its text is for people and contains no secret.
type AuthError struct{ Why string }

func (e *AuthError) Error() string { return e.Why }

func authErrorf(format string, args ...any) error { return &AuthError{fmt.Sprintf(format, args...)} }

// authTimeout bounds how long an attempt waits for its credentials; the attempt's own timeout does so too.
const authTimeout = 10 * time.Second

// transmission is an attempt's request on its way, with its client and the secrets in it that nobody may see.
type transmission struct {
	wire.Request
	client  *delivery.Client
	secrets []string // secret values that the request contains
	token   *token   // the source of the token it carries, if any
	carried string   // the token's value when it was added
}

// errExpired says that an attempt expired while its secrets were read: a token endpoint may take seconds.
var errExpired = errors.New("expired before the secrets were read")

// transmit adds credentials to an attempt's request, and sends it. Without credentials nothing is sent: the result has
// reason auth. An error means that the database could not be asked, or is errExpired; nothing was sent then either.
func (s *Scheduler) transmit(
	ctx context.Context, a domain.Assignment, r wire.Request, now time.Time,
) (wire.Result, error) {
	if r.URL.Scheme == "mailto" {
		return s.mail(ctx, a, r.Timeout)
	}
	t := transmission{Request: r, client: s.config.Client}
	t.KeepBytes, t.WantJSON, t.Fresh = a.Job.KeepResponse, true, a.LastChance(now)
	if a.RunToken != "" {
		t.secrets = append(t.secrets, a.RunToken) // its holder speaks for the attempt
	}
	began := time.Now()
	t.Deadline = began.Add(t.Timeout)
	err := s.authorize(ctx, &t, a, now)
	if err == nil && a.Expired(now.Add(time.Since(began))) {
		return wire.Result{}, errExpired
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
func (s *Scheduler) authorize(ctx context.Context, t *transmission, a domain.Assignment, now time.Time) error {
	if err := s.addRouting(ctx, t, a.Job); err != nil { // before the body is signed
		return err
	}
	keys, err := s.config.Credentials.SigningKeys(ctx, a.Job.Tenant)
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
func (s *Scheduler) addSecrets(ctx context.Context, t *transmission, a domain.Assignment) (err error) {
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
	if target.Auth != nil && target.Auth.Type != domain.AuthNone {
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
			name, domain.MaxInlineSecret)
	}
	t.Extra = append(t.Extra, wire.Header{Name: http.CanonicalHeaderKey(name), Value: value})
	t.secrets = append(t.secrets, secrets...)
	return nil
}

// authenticate adds the header that the type of authentication asks for.
func (s *Scheduler) authenticate(ctx context.Context, t *transmission, job *domain.Job, auth domain.Auth) error {
	secret, err := s.secretOf(ctx, job, auth)
	if err != nil {
		return err
	}
	switch auth.Type {
	case domain.AuthBearer:
		return t.secretHeader("Authorization", "Bearer "+secret.Value, secret.Value)
	case domain.AuthBasic:
		pair := base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + secret.Value))
		return t.secretHeader("Authorization", "Basic "+pair, pair, secret.Value)
	case domain.AuthHeader:
		return t.secretHeader(auth.Header, secret.Value, secret.Value)
	case domain.AuthOAuth2, domain.AuthOIDC:
		t.token = s.tokenOf(job.Tenant, auth, secret)
		if t.carried, err = t.token.get(ctx, fetcher{s.config.Client, min(t.Timeout, authTimeout)}); err != nil {
			return err
		}
		return t.secretHeader("Authorization", "Bearer "+t.carried, t.carried, secret.Value)
	case domain.AuthNone:
	}
	return authErrorf("this version of Punctual does not know authentication of type %s", auth.Type)
}

// secretOf returns the secret of a job's authentication.
func (s *Scheduler) secretOf(ctx context.Context, job *domain.Job, auth domain.Auth) (Secret, error) {
	if auth.Secret != "" {
		return s.config.Credentials.NamedSecret(ctx, job.Tenant, auth.Secret)
	}
	return s.hidden(ctx, job, auth.Value)
}

// hidden returns a secret of a job's definition.
func (s *Scheduler) hidden(ctx context.Context, job *domain.Job, h domain.Hidden) (Secret, error) {
	id, ok := h.Sealed()
	if !ok {
		return Secret{}, authErrorf("the definition holds a secret that was not stored")
	}
	return s.config.Credentials.JobSecret(ctx, job.Tenant, job.ID, id)
}
