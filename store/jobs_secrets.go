package store

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
	"punctual/store/vault"
)

// UnknownSecretError says that a definition refers to a secret that its tenant does not have.
type UnknownSecretError struct{ Field, Name string }

func (e *UnknownSecretError) Error() string {
	return fmt.Sprintf("%s: there is no secret %q", e.Field, e.Name)
}

// NoStoredSecretError says that a definition keeps a stored secret value where none is stored.
type NoStoredSecretError struct{ Field string }

func (e *NoStoredSecretError) Error() string {
	return fmt.Sprintf("%s: there is no stored value to keep", e.Field)
}

// secretFacts are what writes of jobs with secrets need to know.
type secretFacts struct {
	key   *vault.DataKey  // nil: there is no value to encrypt
	names map[string]bool // of the secrets that exist; none of them can be deleted until the transaction ends
}

// hasSecrets reports whether a definition holds secrets or refers to some.
func hasSecrets(d scheduler.Definition) bool {
	return d.Target.Auth != nil || len(d.Target.SecretHeaders) > 0 || d.Target.TLS != nil ||
		slices.ContainsFunc(d.Notify, func(n scheduler.Notify) bool { return n.Secret != "" })
}

// readSecretFacts reads secretFacts if any of the definitions has secrets.
func (s *Store) readSecretFacts(
	ctx context.Context, tx *pg.Tx, tenant int32, definitions ...scheduler.Definition,
) (secretFacts, error) {
	f := secretFacts{names: map[string]bool{}}
	asked, values := map[string]bool{}, false
	for _, d := range definitions {
		for _, name := range d.SecretNames() {
			asked[name] = true
		}
		d.EachHidden(func(_ string, v *scheduler.Hidden) {
			_, sealed := v.Sealed()
			values = values || !sealed && !v.Kept()
		})
	}
	if values {
		var err error
		if f.key, err = s.sealingKey(ctx, tx); err != nil {
			return f, err
		}
	}
	if len(asked) == 0 {
		return f, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT name FROM punctual.secrets WHERE tenant = $1 AND name = ANY($2::text[]) ORDER BY id FOR KEY SHARE`,
		tenant, slices.Collect(maps.Keys(asked)))
	if err != nil {
		return f, fmt.Errorf("looking for secrets: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return f, fmt.Errorf("looking for secrets: %w", err)
	}
	for _, name := range found {
		f.names[name] = true
	}
	return f, nil
}

// sealedValue is a row of job_secrets to be written.
type sealedValue struct {
	id         uuid.UUID
	key        int64
	ciphertext []byte
}

func jobSecretPlace(tenant int32, job, id uuid.UUID) vault.Place {
	return vault.Place{Tenant: tenant, Kind: "job secret", Name: job.String() + "/" + id.String()}
}

// seal returns a definition with an id in the place of every secret value. The encrypted values are kept in h, to be
// written with the job.
func (h *held) seal(d scheduler.Definition, f secretFacts) (scheduler.Definition, error) {
	h.sealed, h.uses = nil, nil
	if !hasSecrets(d) {
		return d, nil
	}
	for field, name := range d.SecretNames() {
		if !f.names[name] {
			return d, &UnknownSecretError{Field: field, Name: name}
		}
		h.uses = append(h.uses, name)
	}
	var failed error
	d.EachHidden(func(field string, v *scheduler.Hidden) {
		if _, already := v.Sealed(); already || failed != nil {
			return
		}
		if v.Kept() {
			failed = &NoStoredSecretError{Field: field}
			return
		}
		*v, failed = h.sealValue(v.Value(), f.key)
	})
	return d, failed
}

func (h *held) sealValue(value string, key *vault.DataKey) (scheduler.Hidden, error) {
	if key == nil {
		return scheduler.Hidden{}, errors.New("encrypting a job's secret: no data key was read")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return scheduler.Hidden{}, fmt.Errorf("making a secret's id: %w", err)
	}
	ciphertext, err := key.Seal([]byte(value), jobSecretPlace(h.tenant, h.ID, id))
	h.sealed = append(h.sealed, sealedValue{id, key.ID, ciphertext})
	return scheduler.SealedAs(id), err
}

// queueSecrets queues the statements that write the definition's secrets. The job's row must exist by then.
func (h *held) queueSecrets(b *pgx.Batch) {
	for _, v := range h.sealed {
		b.Queue(`
			INSERT INTO punctual.job_secrets (id, tenant, job_id, data_key, ciphertext) VALUES ($1, $2, $3, $4, $5)`,
			v.id, h.tenant, h.ID, v.key, v.ciphertext)
	}
	for _, name := range h.uses {
		b.Queue(`
			INSERT INTO punctual.secret_uses (tenant, name, job_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			h.tenant, name, h.ID)
	}
}

// keepSecrets returns a new definition of a held job with the stored values in place of those that are unchanged and
// those that the definition asks to keep. So writing a job again changes nothing. A stored value that is not this job's
// own is refused.
func (s *Store) keepSecrets(
	ctx context.Context, tx *pg.Tx, h *held, d scheduler.Definition,
) (scheduler.Definition, error) {
	own, old := map[string]uuid.UUID{}, h.Definition
	old.EachHidden(func(field string, v *scheduler.Hidden) {
		if id, ok := v.Sealed(); ok {
			own[field] = id
		}
	})
	values, err := s.jobSecrets(ctx, tx, h, d, own)
	if err != nil {
		return d, err
	}
	d.EachHidden(func(field string, v *scheduler.Hidden) {
		id, sealed := v.Sealed()
		switch stored, known := values[field]; {
		case v.Kept() && own[field] != uuid.Nil:
			*v = scheduler.SealedAs(own[field])
		case v.Kept():
			err = &NoStoredSecretError{Field: field}
		case sealed && id != own[field]:
			err = fmt.Errorf("job %s: %s names a stored value that is not its own", h.ID, field)
		case !sealed && known && subtle.ConstantTimeCompare([]byte(stored), []byte(v.Value())) == 1:
			*v = scheduler.SealedAs(own[field])
		}
	})
	return d, err
}

// jobSecrets decrypts the stored values of the fields in which a new definition has a value too. A value that cannot be
// decrypted is left out, and so replaced.
func (s *Store) jobSecrets(
	ctx context.Context, tx *pg.Tx, h *held, d scheduler.Definition, own map[string]uuid.UUID,
) (map[string]string, error) {
	fields := map[uuid.UUID]string{}
	d.EachHidden(func(field string, v *scheduler.Hidden) {
		if _, sealed := v.Sealed(); !sealed && !v.Kept() && own[field] != uuid.Nil {
			fields[own[field]] = field
		}
	})
	if len(fields) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT id, data_key, ciphertext FROM punctual.job_secrets WHERE job_id = $1 AND id = ANY($2::uuid[])`,
		h.ID, slices.Collect(maps.Keys(fields)))
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of job %s: %w", h.ID, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v sealedValue, err error) {
		return v, row.Scan(&v.id, &v.key, &v.ciphertext)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of job %s: %w", h.ID, err)
	}
	values := map[string]string{}
	for _, v := range found {
		if value, err := s.open(ctx, tx, v.key, v.ciphertext, jobSecretPlace(h.tenant, h.ID, v.id)); err == nil {
			values[fields[v.id]] = value
		}
	}
	return values, nil
}

// knowsSecrets returns an *UnknownSecretError if a list names a secret that its tenant does not have.
func (s *Store) knowsSecrets(ctx context.Context, tx *pg.Tx, tenant int32, list []scheduler.Notify) error {
	f, err := s.readSecretFacts(ctx, tx, tenant, scheduler.Definition{Notify: list})
	if err != nil {
		return err
	}
	for field, name := range (scheduler.Definition{Notify: list}).SecretNames() {
		if !f.names[name] {
			return &UnknownSecretError{Field: field, Name: name}
		}
	}
	return nil
}
