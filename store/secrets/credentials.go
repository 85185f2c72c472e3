package secrets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"

	"punctual/scheduler/credential"
	"punctual/store/cache"
	"punctual/store/vault"
)

const (
	// Bounds of a replica's decrypted secrets. Most are small, but a secret may have 64 KiB.
	mostSecrets = 4096
	mostSigners = 20_000
	openBytes   = 16 << 20

	// secretsBelieved is how long decrypted secrets count as current. After that one small query tells whether any secret
	// has changed. Together with the time that a read may take it stays below the 10 seconds promised.
	secretsBelieved = 5 * time.Second
	// secretsTimeout bounds a read that several attempts wait for together.
	secretsTimeout = 4 * time.Second
)

// secretRef names a secret: by its name, or by its job and its id in the job's definition.
type secretRef struct {
	tenant  int32
	name    string
	job, id uuid.UUID
}

// credentials are the secrets that a replica has decrypted, and until when it believes that none has changed.
type credentials struct {
	secrets *cache.Cache[secretRef, credential.Secret]
	signing *cache.Cache[int32, []credential.SigningKey]
	flights singleflight.Group // so that a burst of attempts asks once

	mu       sync.Mutex
	believed time.Time      // the secrets count as current until then
	changes  int64          // deployment.secrets_changed when it was last read
	started  time.Time      // and when the Postgres was started that it was read from
	round    int64          // counts how often all secrets were forgotten
	blocks   map[int32]bool // the first tenants of the blocks whose signing keys were read in this round
}

// Approximate sizes of cached values, in bytes.
func sizeOfSecret(s credential.Secret) int           { return 256 + len(s.Value) }
func sizeOfSigning(keys []credential.SigningKey) int { return 256 * (1 + len(keys)) }

// SigningKeys implements credential.Source.
func (s *Secrets) SigningKeys(ctx context.Context, tenant int32) ([]credential.SigningKey, error) {
	c := s.credentials
	return opened(ctx, s, c.signing, tenant, sizeOfSigning, func(ctx context.Context) ([]credential.SigningKey, error) {
		return s.readSigningKeys(ctx, tenant)
	})
}

// NamedSecret implements credential.Source.
func (s *Secrets) NamedSecret(ctx context.Context, tenant int32, name string) (credential.Secret, error) {
	return opened(ctx, s, s.credentials.secrets, secretRef{tenant: tenant, name: name}, sizeOfSecret,
		func(ctx context.Context) (credential.Secret, error) {
			return s.readToSend(ctx, fmt.Sprintf("secret %q", name),
				fmt.Sprintf("there is no secret %q; create it with PUT /v1/secrets/%s", name, name),
				func(id uuid.UUID) vault.Place { return secretPlace(tenant, id, name) }, `
				SELECT id, version, data_key, ciphertext FROM punctual.secrets WHERE tenant = $1 AND name = $2`, tenant, name)
		})
}

// JobSecret implements credential.Source.
func (s *Secrets) JobSecret(ctx context.Context, tenant int32, job, id uuid.UUID) (credential.Secret, error) {
	return opened(ctx, s, s.credentials.secrets, secretRef{tenant: tenant, job: job, id: id}, sizeOfSecret,
		func(ctx context.Context) (credential.Secret, error) {
			return s.readToSend(ctx, "a secret of the job's definition",
				"a secret of the job's definition is no longer in the database; write it again",
				func(id uuid.UUID) vault.Place { return jobSecretPlace(tenant, job, id) }, `
				SELECT id, 0, data_key, ciphertext FROM punctual.job_secrets WHERE id = $1 AND job_id = $2`, id, job)
		})
}

// readToSend reads and decrypts a secret for an attempt. The error is an AuthError if the secret is missing or was
// tampered with: another attempt would not help.
func (s *Secrets) readToSend(
	ctx context.Context, what, missing string, at func(id uuid.UUID) vault.Place, sql string, args ...any,
) (secret credential.Secret, err error) {
	var key int64
	var ciphertext []byte
	err = s.db.Runs.QueryRow(ctx, sql, args...).Scan(&secret.ID, &secret.Version, &key, &ciphertext)
	if errors.Is(err, pgx.ErrNoRows) {
		return secret, &credential.AuthError{Why: missing}
	}
	if err != nil {
		return secret, fmt.Errorf("reading %s: %w", what, err)
	}
	secret.Value, err = s.open(ctx, s.db.Runs, key, ciphertext, at(secret.ID))
	if errors.Is(err, vault.ErrCiphertext) {
		err = &credential.AuthError{Why: what + " does not decrypt: its row was changed outside Punctual; write it again"}
	}
	return secret, err
}

// opened returns the cached value of a key, or reads it.
func opened[K comparable, V any](
	ctx context.Context, s *Secrets, kept *cache.Cache[K, V], key K, size func(V) int,
	read func(context.Context) (V, error),
) (V, error) {
	c := s.credentials
	if err := s.believe(ctx); err != nil {
		var none V
		return none, err
	}
	if v, ok := kept.Get(key); ok {
		return v, nil
	}
	return share(ctx, &c.flights, fmt.Sprintf("%T %v", key, key), func(ctx context.Context) (V, error) {
		round := c.now()
		v, err := read(ctx)
		if err != nil {
			return v, err
		}
		c.keep(round, func() { kept.Add(key, v, size(v)) })
		return v, nil
	})
}

func (c *credentials) now() (round int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.round
}

// keep adds what was read in a round, unless all secrets were forgotten since: it may be older than the change.
func (c *credentials) keep(round int64, add func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if round == c.round {
		add()
	}
}

// believe makes sure that the cached secrets were current a few seconds ago: it forgets them all if any secret has
// changed since.
func (s *Secrets) believe(ctx context.Context) error {
	c := s.credentials
	c.mu.Lock()
	believed := time.Now().Before(c.believed)
	c.mu.Unlock()
	if believed {
		return nil
	}
	_, err := share(ctx, &c.flights, "changes", func(ctx context.Context) (struct{}, error) {
		asked := time.Now()
		var changes int64
		var started time.Time
		if err := s.db.Runs.QueryRow(ctx, `
			SELECT secrets_changed, pg_postmaster_start_time() FROM punctual.deployment`).
			Scan(&changes, &started); err != nil {
			return struct{}{}, fmt.Errorf("looking for changed secrets: %w", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		// Another Postgres may have lost a change, and have counted another one in its place.
		if changes != c.changes || !started.Equal(c.started) {
			c.secrets.Purge()
			c.signing.Purge()
			c.round++
			clear(c.blocks)
		}
		c.changes, c.started, c.believed = changes, started, asked.Add(secretsBelieved)
		return struct{}{}, nil
	})
	return err
}

// share runs work once for all callers that ask for the same at the same time. A caller that leaves does not end it.
func share[T any](
	ctx context.Context, flights *singleflight.Group, name string, work func(context.Context) (T, error),
) (T, error) {
	result := flights.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), secretsTimeout)
		defer cancel()
		return work(ctx)
	})
	var none T
	select {
	case r := <-result:
		if r.Err != nil {
			return none, r.Err
		}
		return r.Val.(T), nil
	case <-ctx.Done():
		return none, fmt.Errorf("reading secrets: %w", ctx.Err())
	}
}

// ForgetSecrets makes the next attempt look for changed secrets.
func (s *Secrets) ForgetSecrets() {
	c := s.credentials
	c.mu.Lock()
	defer c.mu.Unlock()
	c.believed = time.Time{}
}
