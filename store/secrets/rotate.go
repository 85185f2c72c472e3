package secrets

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/vault"
)

// rotateBatch is how many values one transaction of a rotation re-encrypts.
const rotateBatch = 500

// encryptedTable is a table that holds ciphertexts, with what gives the place of a row in the vault.
type encryptedTable struct {
	table, name string // name is the SQL for the row's name within its kind, as the functions that make its place write it
	place       func(tenant int32, id uuid.UUID, name string) vault.Place
}

var encrypted = []encryptedTable{
	{"secrets", "name", secretPlace},
	{"job_secrets", "job_id::text", func(tenant int32, id uuid.UUID, job string) vault.Place {
		return jobSecretPlace(tenant, uuid.MustParse(job), id)
	}},
	{"signing_secrets", "''", func(tenant int32, id uuid.UUID, _ string) vault.Place { return signingPlace(tenant, id) }},
}

// Rotation is what a rotation did.
type Rotation struct {
	Key     int64 // id of the new data key
	Values  int   // how many values were re-encrypted
	Dropped int   // how many data keys were dropped
}

// RotateSecrets makes a data key, re-encrypts every value with it, and drops the older data keys. Payloads get a new
// data key, and their older ones stay: see payloads.go. Unless to is nil, it seals all data keys with the first key of
// to. Replicas go on working meanwhile. A rotation that was interrupted is
// simply started again.
func (s *Secrets) RotateSecrets(ctx context.Context, to *vault.Master) (r Rotation, err error) {
	if s.master == nil {
		return r, ErrNoMaster
	}
	if _, err := s.openAll(ctx, s.db.Callers); err != nil {
		return r, err
	}
	if r.Key, err = s.beginRotation(ctx, to); err != nil {
		return r, err
	}
	for _, e := range encrypted {
		n, err := s.reencrypt(ctx, s.db.Callers.For(pg.Everybody), e)
		r.Values += n
		if err != nil {
			return r, err
		}
	}
	r.Dropped, err = s.dropDataKeys(ctx, r.Key)
	return r, err
}

// beginRotation makes the new data key. If there is a new master key, it seals the existing data keys with that.
func (s *Secrets) beginRotation(ctx context.Context, to *vault.Master) (id int64, err error) {
	return pg.Do(ctx, s.db.Callers.For(pg.Everybody), func(tx *pg.Tx) (id int64, err error) {
		if err := lockKeyMaking(ctx, tx); err != nil {
			return 0, err
		}
		if _, err := s.openAll(ctx, tx); err != nil { // also the keys made since they were opened before
			return 0, err
		}
		sealer := s.master
		if to != nil {
			sealer = to
			if err := s.resealAll(ctx, tx, to); err != nil {
				return 0, err
			}
		}
		key, err := makeDataKey(ctx, tx, sealer, forSecrets)
		if err != nil {
			return 0, err
		}
		s.keyring.add(key)
		if err := s.rotatePayloadKey(ctx, tx, sealer); err != nil {
			return 0, err
		}
		return key.ID, audit.Write(ctx, tx, pg.Everybody, audit.Change{
			Action: audit.SecretRotate, After: rotationShot{DataKey: key.ID, MasterKey: to != nil},
		})
	})
}

// rotatePayloadKey makes a new data key for payloads, if there is one. What is sealed stays as it is, and the key that
// opens it stays.
func (s *Secrets) rotatePayloadKey(ctx context.Context, tx *pg.Tx, sealer *vault.Master) error {
	latest, err := s.latestPayloadKey(ctx, tx)
	if err != nil || latest == 0 {
		return err
	}
	key, err := makeDataKey(ctx, tx, sealer, forPayloads)
	if err == nil {
		s.keyring.add(key)
	}
	return err
}

func (s *Secrets) resealAll(ctx context.Context, tx pgx.Tx, to *vault.Master) error {
	for id, key := range s.keyring.all() {
		sealed, err := to.Seal(key)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE punctual.data_keys SET sealed = $2 WHERE id = $1`, id, sealed); err != nil {
			return fmt.Errorf("sealing data key %d with the new master key: %w", id, err)
		}
	}
	return nil
}

// reencrypt encrypts all values of a table with the newest data key, in the order of their ids, one batch a write.
func (s *Secrets) reencrypt(ctx context.Context, w pg.Writes, e encryptedTable) (done int, err error) {
	var last uuid.UUID
	for {
		var n int
		err := w.InTx(ctx, func(tx *pg.Tx) (err error) {
			n, last, err = s.reencryptBatch(ctx, tx, e, last)
			return err
		})
		if err != nil {
			return done, fmt.Errorf("re-encrypting %s: %w", e.table, err)
		}
		done += n
		if n < rotateBatch {
			return done, nil
		}
	}
}

func (s *Secrets) reencryptBatch(
	ctx context.Context, tx *pg.Tx, e encryptedTable, after uuid.UUID,
) (n int, last uuid.UUID, err error) {
	key, err := s.sealingKey(ctx, tx)
	if err != nil {
		return 0, after, err
	}
	type row struct {
		sealedValue
		Tenant int32
		Name   string
	}
	list, err := pg.All(ctx, tx, pgx.RowToStructByPos[row], fmt.Sprintf(`
		SELECT id, data_key, ciphertext, tenant, %s FROM punctual.%s
		WHERE id > $1 AND data_key <> $2
		ORDER BY id LIMIT %d FOR NO KEY UPDATE`, e.name, e.table, rotateBatch), after, key.ID)
	if err != nil {
		return 0, after, err
	}
	var b pgx.Batch
	for _, v := range list {
		at := e.place(v.Tenant, v.ID, v.Name)
		value, err := s.open(ctx, tx, v.Key, v.Ciphertext, at)
		if err != nil {
			return 0, after, fmt.Errorf("row %s: %w", v.ID, err)
		}
		ciphertext, err := key.Seal([]byte(value), at)
		if err != nil {
			return 0, after, err
		}
		b.Queue(`UPDATE punctual.`+e.table+` SET data_key = $2, ciphertext = $3 WHERE id = $1`, v.ID, key.ID, ciphertext)
		after = v.ID
	}
	return len(list), after, tx.SendBatch(ctx, &b).Close()
}

// dropDataKeys drops the data keys older than a given one. Transactions that write with an older key hold a lock on it.
// dropDataKeys waits for them, and re-encrypts what they wrote before it drops the key.
func (s *Secrets) dropDataKeys(ctx context.Context, before int64) (dropped int, err error) {
	err = s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		const old = `NOT payloads AND number < (SELECT number FROM punctual.data_keys WHERE id = $1)`
		if err := pg.Exec(ctx, tx, `
			SELECT FROM punctual.data_keys WHERE `+old+` ORDER BY number FOR UPDATE`, before); err != nil {
			return fmt.Errorf("locking the earlier data keys: %w", err)
		}
		for _, e := range encrypted {
			if _, err := s.reencrypt(ctx, pg.Writes{Tx: tx}, e); err != nil {
				return err
			}
		}
		done, err := tx.Exec(ctx, `DELETE FROM punctual.data_keys WHERE `+old, before)
		dropped = int(done.RowsAffected())
		return pg.Wrap("dropping the earlier data keys", err)
	})
	return dropped, err
}

// rotationShot shows which keys of the deployment a rotation has begun to use.
type rotationShot struct {
	DataKey   int64 `json:"data_key"`
	MasterKey bool  `json:"new_master_key"`
}
