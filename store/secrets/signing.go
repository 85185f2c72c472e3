package secrets

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/credential"
	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/vault"
)

// SigningSecret is a signing secret as it may be known after it was shown once.
type SigningSecret struct {
	ID        uuid.UUID  `json:"id" format:"uuid" doc:"Never reused." example:"019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e"`
	CreatedAt time.Time  `json:"created_at" doc:"When it was created."`
	ExpiresAt *time.Time `json:"expires_at" doc:"When it stops signing. Null: when it is deleted."`
}

const (
	// signingSecretSize is the number of random bytes in a signing secret: Standard Webhooks recommends 24 to 64.
	signingSecretSize = 32
	// signingBlock is how many tenants' signing secrets are read together. Many tenants' jobs are often due together, and
	// a statement for each tenant would cost the database more than claiming them.
	signingBlock = 128
	// mostSigningSecrets bounds a tenant's live signing secrets: each adds a signature to every callback.
	mostSigningSecrets = 10
)

func signingPlace(tenant int32, id uuid.UUID) vault.Place {
	return vault.Place{Tenant: tenant, Kind: "signing secret", Name: id.String()}
}

// lockSigning lets one transaction at a time change a tenant's signing secrets, and deletes the expired ones.
func lockSigning(ctx context.Context, tx *pg.Tx, tenant int32) error {
	if err := pg.Exec(ctx, tx, `SELECT FROM punctual.tenants WHERE id = $1 FOR NO KEY UPDATE`, tenant); err != nil {
		return fmt.Errorf("locking the signing secrets of tenant %d: %w", tenant, err)
	}
	return pg.Wrap("forgetting expired signing secrets", pg.Exec(ctx, tx, `
		DELETE FROM punctual.signing_secrets WHERE tenant = $1 AND expires_at <= now()`, tenant))
}

// MakeSigningSecret creates another signing secret of a tenant, which signs beside the others from now on. The secret
// is returned only this once. The error is ErrState if there are ten already.
func (s *Secrets) MakeSigningSecret(ctx context.Context, tenant int32) (r SigningSecret, secret string, err error) {
	defer s.ForgetSecrets()
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		if err := lockSigning(ctx, tx, tenant); err != nil {
			return err
		}
		var live int
		if err := tx.QueryRow(ctx, `
			SELECT count(*) FROM punctual.signing_secrets WHERE tenant = $1`, tenant).Scan(&live); err != nil {
			return fmt.Errorf("counting signing secrets: %w", err)
		}
		if live >= mostSigningSecrets {
			return fmt.Errorf("there are %d live signing secrets; delete one first: %w", live, pg.ErrState)
		}
		if r, secret, err = s.insertSigningSecret(ctx, tx, tenant); err != nil {
			return err
		}
		return noteSecretsChanged(ctx, tx)
	})
	return r, secret, err
}

// MakeFirstSigningSecret creates the signing secret of a new tenant, so that no callback waits for it. A process that
// cannot encrypt leaves it to the first callback.
func (s *Secrets) MakeFirstSigningSecret(ctx context.Context, tx *pg.Tx, tenant int32) error {
	if s.master == nil {
		return nil
	}
	_, _, err := s.insertSigningSecret(ctx, tx, tenant)
	return err
}

func (s *Secrets) insertSigningSecret(
	ctx context.Context, tx *pg.Tx, tenant int32,
) (r SigningSecret, secret string, err error) {
	key, err := s.sealingKey(ctx, tx)
	if err != nil {
		return r, "", err
	}
	raw := make([]byte, signingSecretSize)
	_, _ = rand.Read(raw) // never fails
	secret = credential.SigningSecretPrefix + base64.StdEncoding.EncodeToString(raw)
	if r.ID, err = uuid.NewV7(); err != nil {
		return r, "", fmt.Errorf("making a signing secret's id: %w", err)
	}
	sealed, err := key.Seal([]byte(secret), signingPlace(tenant, r.ID))
	if err != nil {
		return r, "", err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO punctual.signing_secrets (id, tenant, data_key, ciphertext) VALUES ($1, $2, $3, $4)
		RETURNING created_at`,
		r.ID, tenant, key.ID, sealed).Scan(&r.CreatedAt)
	if err != nil {
		return r, "", fmt.Errorf("writing a signing secret: %w", err)
	}
	return r, secret, audit.Write(ctx, tx, tenant, audit.Change{
		Action: audit.SigningSecretCreate, ID: r.ID, After: signingSecretShot{},
	})
}

// ListSigningSecrets returns a tenant's live signing secrets, oldest first.
func (s *Secrets) ListSigningSecrets(ctx context.Context, tenant int32) ([]SigningSecret, error) {
	if _, err := s.SigningKeys(ctx, tenant); err != nil { // creates the first one
		return nil, err
	}
	list, err := pg.All(ctx, s.db.Callers.Reader(tenant), pgx.RowToStructByPos[SigningSecret], `
		SELECT id, created_at, expires_at FROM punctual.signing_secrets
		WHERE tenant = $1 AND (expires_at IS NULL OR expires_at > now()) ORDER BY id`, tenant)
	return list, pg.Wrap("listing signing secrets", err)
}

// DeleteSigningSecret ends a signing secret: it signs for the time in, or is deleted at once. The error is ErrState for
// the last one that does not expire, and ErrNotFound if there is none with the id.
func (s *Secrets) DeleteSigningSecret(ctx context.Context, tenant int32, id uuid.UUID, in time.Duration) error {
	defer s.ForgetSecrets()
	return s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		if err := lockSigning(ctx, tx, tenant); err != nil {
			return err
		}
		var others int
		err := tx.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM punctual.signing_secrets o
			        WHERE o.tenant = $1 AND o.id <> s.id AND o.expires_at IS NULL)
			FROM punctual.signing_secrets s WHERE s.tenant = $1 AND s.id = $2`, tenant, id).Scan(&others)
		if err != nil {
			return pg.Found(err, "signing secret %s", id)
		}
		if others == 0 {
			return fmt.Errorf(
				"signing secret %s is the last one that does not expire; create another first: %w", id, pg.ErrState)
		}
		sql := `
			UPDATE punctual.signing_secrets SET expires_at = clock_timestamp() + $3::interval
			WHERE tenant = $1 AND id = $2 RETURNING expires_at`
		args := []any{tenant, id, in}
		if in <= 0 {
			sql, args = `
				DELETE FROM punctual.signing_secrets
				WHERE tenant = $1 AND id = $2 RETURNING NULL::timestamptz`, args[:2]
		}
		var ends *time.Time
		if err := tx.QueryRow(ctx, sql, args...).Scan(&ends); err != nil {
			return fmt.Errorf("deleting signing secret %s: %w", id, err)
		}
		change := audit.Change{Action: audit.SigningSecretDelete, ID: id, Before: signingSecretShot{}}
		if ends != nil { // it signs until then
			change.After = signingSecretShot{ends}
		}
		return writeChange(ctx, tx, tenant, change)
	})
}

// readSigningKeys reads the keys that sign a tenant's callbacks. If none of them lasts, it creates one.
func (s *Secrets) readSigningKeys(ctx context.Context, tenant int32) ([]credential.SigningKey, error) {
	block, err := s.signersAround(ctx, tenant)
	found := block[tenant]
	if err != nil || found.lasting {
		return found.keys, err
	}
	if found.err != nil {
		return nil, found.err
	}
	err = s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := lockSigning(ctx, tx, tenant); err != nil {
			return err
		}
		var there bool
		err := tx.QueryRow(ctx, `
			SELECT EXISTS (
				SELECT FROM punctual.signing_secrets WHERE tenant = $1 AND expires_at IS NULL)`, tenant).Scan(&there)
		if err != nil || there {
			return err
		}
		if _, _, err = s.insertSigningSecret(ctx, tx, tenant); err != nil || len(found.keys) == 0 {
			return err // no replica has keys of the tenant that it would have to forget
		}
		return noteSecretsChanged(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("making a signing secret of tenant %d: %w", tenant, err)
	}
	made, err := s.openSigningKeys(ctx, tenant, tenant)
	if err != nil {
		return nil, err
	}
	return made[tenant].keys, made[tenant].err
}

// signers are a tenant's live signing keys.
type signers struct {
	keys    []credential.SigningKey
	lasting bool  // one of them does not expire
	err     error // a key of this tenant cannot be opened
}

// blockTimeout bounds the read of a block. Then the tenant's own keys are read.
const blockTimeout = time.Second

// signersAround reads the signing keys of a tenant. Once in a round it reads those of its block as well, and keeps
// those that last. After that what a block has not brought, because it is new or cannot be opened, is read alone.
func (s *Secrets) signersAround(ctx context.Context, tenant int32) (map[int32]signers, error) {
	c := s.credentials
	first := tenant - tenant%signingBlock
	last := first + signingBlock - 1
	c.mu.Lock()
	round, read := c.round, c.blocks[first]
	c.mu.Unlock()
	if read {
		first, last = tenant, tenant
	}
	// The round is in the name, because a read that began before the secrets were forgotten may not have the change.
	return share(ctx, &c.flights, fmt.Sprintf("signers %d to %d in round %d", first, last, round),
		func(ctx context.Context) (map[int32]signers, error) {
			limited, cancel := context.WithTimeout(ctx, blockTimeout)
			defer cancel()
			block, err := s.openSigningKeys(limited, first, last)
			if err != nil && first != last { // a row of another tenant may be one that cannot be read
				c.keep(round, func() { c.blocks[first] = true })
				return s.openSigningKeys(ctx, tenant, tenant)
			}
			if err != nil {
				return nil, err
			}
			c.keep(round, func() {
				c.blocks[first] = true
				for tenant, found := range block {
					if found.lasting {
						c.signing.Add(tenant, found.keys, sizeOfSigning(found.keys))
					}
				}
			})
			return block, nil
		})
}

// openSigningKeys returns the live signing keys of a range of tenants.
func (s *Secrets) openSigningKeys(ctx context.Context, first, last int32) (map[int32]signers, error) {
	type row struct {
		Tenant int32
		sealedValue
		Expires *time.Time
	}
	list, err := pg.All(ctx, s.db.Runs, pgx.RowToStructByPos[row], `
		SELECT tenant, id, data_key, ciphertext, expires_at FROM punctual.signing_secrets
		WHERE tenant BETWEEN $1 AND $2 AND (expires_at IS NULL OR expires_at > now()) ORDER BY id`, first, last)
	if err != nil {
		return nil, fmt.Errorf("reading signing secrets: %w", err)
	}
	found := map[int32]signers{}
	for _, r := range list {
		of := found[r.Tenant]
		key, err := s.openSigningKey(ctx, r.Tenant, r.sealedValue, r.Expires)
		if err != nil {
			of.err = fmt.Errorf("opening signing secret %s: %w", r.ID, err)
		} else {
			of.keys = append(of.keys, key)
		}
		of.lasting = of.err == nil && (of.lasting || r.Expires == nil)
		found[r.Tenant] = of
	}
	return found, nil
}

func (s *Secrets) openSigningKey(
	ctx context.Context, tenant int32, sealed sealedValue, expires *time.Time,
) (credential.SigningKey, error) {
	secret, err := s.open(ctx, s.db.Runs, sealed.Key, sealed.Ciphertext, signingPlace(tenant, sealed.ID))
	if err != nil {
		return credential.SigningKey{}, err
	}
	return credential.NewSigningKey(secret, pg.OrZero(expires))
}

// signingSecretShot is a signing secret as the audit log shows it.
type signingSecretShot struct {
	ExpiresAt *time.Time `json:"expires_at"`
}
