package tenants

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/audit"
	"punctual/store/pg"
)

// keyStart is how every API key begins, so that people and scanners for leaked secrets recognise one. After it come the
// prefix, which the key is found by, and the secret.
const keyStart = "punctual_"

const (
	prefixBytes = 8
	secretBytes = 32 // 256 random bits
)

// Key is an API key without its secret.
type Key struct {
	ID         uuid.UUID  `json:"id" format:"uuid" doc:"Never reused." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Tenant     string     `json:"tenant" doc:"The tenant that it acts for." example:"billing"`
	Name       string     `json:"name" doc:"The purpose of the key." example:"ci"`
	Prefix     string     `json:"prefix" doc:"The beginning of the key, which is not secret." example:"punctual_5f0e8b110c6d9a44"`
	Role       string     `json:"role" enum:"metrics,viewer,submitter,editor,admin,operator" doc:"Its permissions." example:"editor"`
	State      string     `json:"state" enum:"active,expired,revoked" doc:"Whether it works." example:"active"`
	CreatedBy  string     `json:"created_by" doc:"Who created it." example:"command:alice"`
	CreatedAt  time.Time  `json:"created_at" doc:"When it was created."`
	ExpiresAt  *time.Time `json:"expires_at" doc:"When it stops working. Null: never."`
	LastUsedAt *time.Time `json:"last_used_at" doc:"When it was last used, to the minute. Null: never."`
	RevokedAt  *time.Time `json:"revoked_at" doc:"When it was revoked."`

	ExpiresSoon bool `json:"expires_soon" doc:"Whether it is in its last 30 days, or in the last third of a shorter life. False for a key that was made for a week or less." example:"false"`
}

// NewKey describes a key to be created. Without an end it works for DefaultKeyAge.
type NewKey struct {
	Name      string
	Role      string
	ExpiresAt *time.Time
	Lifetime  time.Duration // in place of ExpiresAt: counts from now; 0: none
	Never     bool          // in place of both: it works until it is revoked
}

// keyColumns stand in the order of the fields of Key.
const keyColumns = `k.id, t.name, k.name, '` + keyStart + `' || k.prefix, k.role,
	CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'active' END,
	k.created_by, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, ` + soon + ` IS TRUE`

var scanKey = pgx.RowToStructByPos[Key]

var listOfKeys = pg.Listed[Key]{
	What: "keys", Letter: 'k', ID: `k.id`, Of: func(k Key) uuid.UUID { return k.ID }, Scan: scanKey,
}

const selectKeys = `SELECT ` + keyColumns + ` FROM punctual.api_keys k JOIN punctual.tenants t ON t.id = k.tenant`

// makeKey returns a new key and its prefix, which the key is found by.
func makeKey() (key, prefix string) {
	var random [prefixBytes + secretBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	prefix = hex.EncodeToString(random[:prefixBytes])
	return keyStart + prefix + "_" + base64.RawURLEncoding.EncodeToString(random[prefixBytes:]), prefix
}

// keyPrefix returns the prefix that a key is found by. A malformed key gets a prefix that no key has, so refusing it
// takes the same lookup and the same time.
func keyPrefix(key string) string {
	rest, ok := strings.CutPrefix(key, keyStart)
	prefix, secret, _ := strings.Cut(rest, "_")
	if !ok || len(prefix) != 2*prefixBytes || len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return strings.Repeat("-", 2*prefixBytes)
	}
	return strings.ToValidUTF8(strings.ReplaceAll(prefix, "\x00", "-"), "-")
}

// CreateKey creates a key of a tenant, and returns it with its record. The key is not stored and cannot be read again.
func (s *Tenants) CreateKey(ctx context.Context, tenant int32, n NewKey) (key string, k Key, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", k, fmt.Errorf("making a key's id: %w", err)
	}
	key, prefix := makeKey()
	hash := sha256.Sum256([]byte(key))
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		expires, err := s.expiry(ctx, tx, tenant, n)
		if err != nil {
			return err
		}
		// The lock keeps the tenant from being deleted meanwhile.
		k, err = pg.One(ctx, tx, scanKey, `
			WITH t AS (SELECT id, name FROM punctual.tenants WHERE id = $2 AND deleted_at IS NULL FOR KEY SHARE),
			k AS (INSERT INTO punctual.api_keys (id, tenant, name, prefix, hash, role, created_by, expires_at)
			      SELECT $1, t.id, $3, $4, $5::bytea, $6, $7, $8 FROM t RETURNING *)
			SELECT `+keyColumns+` FROM k JOIN t ON t.id = k.tenant`,
			id, tenant, n.Name, prefix, hash[:], n.Role, audit.ActorOf(ctx).String(), expires)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("tenant %d: %w", tenant, pg.ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("writing key %q: %w", n.Name, err)
		}
		return audit.Write(ctx, tx, tenant, k.change(audit.KeyCreate))
	})
	if err != nil {
		return "", Key{}, err
	}
	return key, k, nil
}

// ListKeys returns a tenant's keys, newest first, including revoked and expired ones; with expiring only those that
// expire soon.
func (s *Tenants) ListKeys(
	ctx context.Context, tenant int32, expiring bool, p pg.Page,
) (keys []Key, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`k.tenant = ?`, tenant)
	c.AddIf(expiring, soon)
	return listOfKeys.Page(ctx, s.db.Callers.Reader(tenant), p, selectKeys, c)
}

// GetKey returns a key of a tenant by its id.
func (s *Tenants) GetKey(ctx context.Context, tenant int32, id uuid.UUID) (Key, error) {
	k, err := pg.One(ctx, s.db.Callers.Reader(tenant), scanKey,
		selectKeys+` WHERE k.id = $1 AND k.tenant = $2`, id, tenant)
	return k, pg.Found(err, "key %s", id)
}

// RevokeKey revokes a key of a tenant for good. Revoking it again changes nothing.
func (s *Tenants) RevokeKey(ctx context.Context, tenant int32, id uuid.UUID) error {
	return s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		k, err := s.GetKey(ctx, tenant, id)
		if err != nil || k.RevokedAt != nil {
			return err
		}
		done, err := tx.Exec(ctx, `
			UPDATE punctual.api_keys SET revoked_at = now()
			WHERE id = $1 AND tenant = $2 AND revoked_at IS NULL`, id, tenant)
		if err != nil {
			return fmt.Errorf("revoking key %s: %w", id, err)
		}
		if done.RowsAffected() == 0 { // another transaction was faster
			return nil
		}
		return audit.Write(ctx, tx, tenant, k.change(audit.KeyRevoke))
	})
}

// FindKey returns the key of any tenant that ref means: its id, its prefix, or its beginning with the prefix. It is for
// users of the command line, who own the database.
func (s *Tenants) FindKey(ctx context.Context, ref string) (tenant int32, id uuid.UUID, err error) {
	prefix, _, _ := strings.Cut(strings.TrimPrefix(ref, keyStart), "_")
	byID, _ := pg.ParseID(ref)
	err = s.db.Callers.Reader(pg.Everybody).QueryRow(ctx, `
		SELECT tenant, id FROM punctual.api_keys WHERE prefix = $1 OR id = $2`, prefix, byID).Scan(&tenant, &id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, uuid.Nil, fmt.Errorf("key: %w", pg.ErrNotFound) // not named: it may be the whole key
	}
	return tenant, id, pg.Wrap("looking for a key", err)
}

// HasKeys reports whether any key is valid.
func (s *Tenants) HasKeys(ctx context.Context) (bool, error) {
	var found bool
	err := s.db.Callers.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM punctual.api_keys k JOIN punctual.tenants t ON t.id = k.tenant
			WHERE k.revoked_at IS NULL AND (k.expires_at > now()) IS NOT FALSE AND t.deleted_at IS NULL)`).Scan(&found)
	return found, pg.Wrap("looking for keys", err)
}

// Credential is a valid key, and what it gives access to.
type Credential struct {
	Key       uuid.UUID
	Name      string // what the key is for
	Role      string
	Tenant    Brief
	ExpiresIn time.Duration // only of a key that expires within the hour; 0: not so soon

	ExpiresSoon *time.Time // when it does; nil: not soon
}

// Authenticate returns the credential of a key. If the key is not valid, the error is ErrNotFound, which does not say
// why: whatever is wrong with the key, Authenticate reads the same and compares the same.
func (s *Tenants) Authenticate(ctx context.Context, key string) (Credential, error) {
	hash := sha256.Sum256([]byte(key))
	var c Credential
	var stored []byte
	var works bool
	var left *time.Duration
	err := s.db.Callers.QueryRow(ctx, `
		SELECT k.id, k.name, k.hash, k.role, least(k.expires_at - now(), interval '1 hour'),
		       CASE WHEN `+soon+` THEN k.expires_at END,
		       k.revoked_at IS NULL AND (k.expires_at > now()) IS NOT FALSE AND t.deleted_at IS NULL,
		       t.id, t.name, coalesce(t.max_requests_per_second, 0)
		FROM punctual.api_keys k JOIN punctual.tenants t ON t.id = k.tenant WHERE k.prefix = $1`,
		pg.Prepared{}, keyPrefix(key)).
		Scan(&c.Key, &c.Name, &stored, &c.Role, &left, &c.ExpiresSoon, &works,
			&c.Tenant.ID, &c.Tenant.Name, &c.Tenant.MaxRequestsPerSecond)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Credential{}, fmt.Errorf("looking for a key: %w", err)
	}
	if stored == nil {
		stored = make([]byte, sha256.Size)
	}
	if same := subtle.ConstantTimeCompare(stored, hash[:]) == 1; !same || !works {
		return Credential{}, fmt.Errorf("key: %w", pg.ErrNotFound)
	}
	if left != nil && *left < time.Hour {
		c.ExpiresIn = *left
	}
	return c, nil
}

// usedKeys are the keys that requests to this process have used since it last wrote them down.
type usedKeys struct {
	mu  sync.Mutex
	ids map[uuid.UUID]bool
}

// KeyUsed notes that a key was used. A chore of the replica writes it; the note is lost with the process.
func (s *Tenants) KeyUsed(id uuid.UUID) {
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	s.used.ids[id] = true
}

// NoteKeysUsed writes which keys were used since the last call. The instant is exact to the minute, so it is enough if
// one of several replicas writes it.
func (s *Tenants) NoteKeysUsed(ctx context.Context) error {
	s.used.mu.Lock()
	ids := slices.Collect(maps.Keys(s.used.ids))
	clear(s.used.ids)
	s.used.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	_, err := s.db.Chores.Exec(ctx, `
		WITH used AS (
			SELECT id FROM punctual.api_keys
			WHERE id = ANY($1::uuid[]) AND (last_used_at < date_trunc('minute', now())) IS NOT FALSE
			ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE punctual.api_keys k SET last_used_at = date_trunc('minute', now()) FROM used WHERE k.id = used.id`, ids)
	return pg.Wrap("noting which keys were used", err)
}
