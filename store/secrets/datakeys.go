package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/jackc/pgx/v5"

	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/vault"
)

// ErrNoMaster means that the process was given no master key.
var ErrNoMaster = errors.New("secrets and payloads are encrypted, but this process has no master key")

// keyring holds the data keys that were opened. Data keys never change.
type keyring struct {
	mu   sync.RWMutex
	keys map[int64]*vault.DataKey
}

func (r *keyring) get(id int64) *vault.DataKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys[id]
}

func (r *keyring) add(k *vault.DataKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys = map[int64]*vault.DataKey{}
	}
	r.keys[k.ID] = k
}

// all returns a copy of the opened keys, by id.
func (r *keyring) all() map[int64]*vault.DataKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.keys)
}

// OpenVault makes sure that the master key opens all data keys, and makes the first data key. It returns
// vault.ErrMaster when the master key does not open them, and ErrNoMaster when there is no master key.
func (s *Secrets) OpenVault(ctx context.Context) error {
	if s.master == nil {
		return ErrNoMaster
	}
	found, err := s.openAll(ctx, s.db.Runs)
	if err == nil && found == 0 {
		err = s.makeFirstDataKey(ctx, s.db.Runs, forSecrets)
	}
	return err
}

// What a data key encrypts: data_keys.payloads.
const (
	forSecrets  = false
	forPayloads = true
)

// openAll opens every data key and returns how many there are.
func (s *Secrets) openAll(ctx context.Context, q pg.Querier) (found int, err error) {
	var id int64
	var sealed []byte
	rows := pg.Query(ctx, q, `SELECT id, sealed FROM punctual.data_keys ORDER BY number`)
	_, err = pgx.ForEachRow(rows, []any{&id, &sealed}, func() error {
		found++
		_, err := s.openKey(id, sealed)
		return err
	})
	return found, pg.Wrap("opening data keys", err)
}

// openKey opens a data key, or returns it if it is open already.
func (s *Secrets) openKey(id int64, sealed []byte) (*vault.DataKey, error) {
	if key := s.keyring.get(id); key != nil {
		return key, nil
	}
	if s.master == nil {
		return nil, ErrNoMaster
	}
	key, err := s.master.Open(id, sealed)
	if err != nil {
		return nil, err
	}
	s.keyring.add(key)
	return key, nil
}

// sealingKey returns the data key with which this transaction encrypts, and keeps it from being dropped until the
// transaction ends.
func (s *Secrets) sealingKey(ctx context.Context, tx *pg.Tx) (*vault.DataKey, error) {
	if s.master == nil {
		return nil, ErrNoMaster
	}
	for range tries {
		key, err := s.newestKey(ctx, tx, `FOR KEY SHARE`)
		if !errors.Is(err, pgx.ErrNoRows) {
			return key, err
		}
		// There is no key yet, or it was dropped while this transaction waited for its lock.
		if err := s.makeFirstDataKey(ctx, tx.Pool, forSecrets); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("reading the data key: it was replaced during every attempt to read it")
}

// newestKey returns the data key of secrets that was made last, under a lock if one is given.
func (s *Secrets) newestKey(ctx context.Context, q pg.Querier, lock string) (*vault.DataKey, error) {
	var id int64
	var sealed []byte
	err := q.QueryRow(ctx, `
		SELECT id, sealed FROM punctual.data_keys WHERE NOT payloads ORDER BY number DESC LIMIT 1 `+lock).Scan(&id, &sealed)
	if err != nil {
		return nil, fmt.Errorf("reading the data key: %w", err)
	}
	return s.openKey(id, sealed)
}

// dataKey returns the data key of an id. It reads a key that is not in the keyring: a rotation made it since.
func (s *Secrets) dataKey(ctx context.Context, q pg.Querier, id int64) (*vault.DataKey, error) {
	if key := s.keyring.get(id); key != nil {
		return key, nil
	}
	var sealed []byte
	if err := q.QueryRow(ctx, `SELECT sealed FROM punctual.data_keys WHERE id = $1`, id).Scan(&sealed); err != nil {
		return nil, fmt.Errorf("reading data key %d: %w", id, err)
	}
	return s.openKey(id, sealed)
}

// open decrypts the ciphertext of a place.
func (s *Secrets) open(
	ctx context.Context, q pg.Querier, key int64, ciphertext []byte, at vault.Place,
) (string, error) {
	k, err := s.dataKey(ctx, q, key)
	if err != nil {
		return "", err
	}
	value, err := k.Open(ciphertext, at)
	return string(value), err
}

// makeFirstDataKey makes a data key unless there is one, in a transaction of its own: other transactions may use it at
// once.
func (s *Secrets) makeFirstDataKey(ctx context.Context, pool *pg.Pool, payloads bool) error {
	return pool.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := lockKeyMaking(ctx, tx); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM punctual.data_keys WHERE payloads = $1)`, payloads).
			Scan(&there); err != nil {
			return fmt.Errorf("reading data keys: %w", err)
		}
		if there {
			return nil
		}
		_, err := makeDataKey(ctx, tx, s.master, payloads)
		return err
	})
}

// lockKeyMaking makes sure that only one transaction at a time makes keys.
func lockKeyMaking(ctx context.Context, tx pgx.Tx) error {
	return pg.Wrap("locking the making of keys", pg.Exec(ctx, tx, `SELECT FROM punctual.deployment FOR NO KEY UPDATE`))
}

func makeDataKey(ctx context.Context, tx pgx.Tx, master *vault.Master, payloads bool) (*vault.DataKey, error) {
	key, err := vault.NewDataKey()
	if err != nil {
		return nil, err
	}
	sealed, err := master.Seal(key)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO punctual.data_keys (id, sealed, payloads) VALUES ($1, $2, $3)`,
		key.ID, sealed, payloads)
	if err != nil {
		return nil, fmt.Errorf("writing a data key: %w", err)
	}
	// Opened again before anything is encrypted with it: what it encrypts is lost if its sealed form does not open.
	return master.Open(key.ID, sealed)
}

// writeChange adds an entry about a secret to the audit log, and tells all replicas of the change.
func writeChange(ctx context.Context, tx *pg.Tx, tenant int32, change audit.Change) error {
	if err := audit.Write(ctx, tx, tenant, change); err != nil {
		return err
	}
	return noteSecretsChanged(ctx, tx)
}

// noteSecretsChanged tells all replicas to forget the secrets they have decrypted.
func noteSecretsChanged(ctx context.Context, tx *pg.Tx) error {
	return pg.Wrap("noting that secrets changed", pg.Exec(ctx, tx,
		`UPDATE punctual.deployment SET secrets_changed = secrets_changed + 1`))
}
