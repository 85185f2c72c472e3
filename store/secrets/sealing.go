package secrets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/vault"
)

// unknown blames a field that refers to a secret that the tenant does not have.
func unknown(field, name string) error {
	return jobspec.Blame(field, "there is no secret %q; create it with PUT /v1/secrets/%s", name, name)
}

// nothingKept blames a field that keeps a stored secret value where none is stored.
func nothingKept(field string) error {
	return jobspec.Blame(field, `"***" keeps the stored value, but no value is stored here; write the value`)
}

// Facts are what writes of jobs with secrets need to know. The zero value is for jobs without secrets.
type Facts struct {
	key   *vault.DataKey  // nil: there is no value to encrypt
	names map[string]bool // of the secrets that exist; none of them can be deleted until the transaction ends
}

// Read reports whether the facts have been read.
func (f Facts) Read() bool { return f.names != nil }

// ReadFacts reads the facts for definitions. It sends no query if none of them has secrets.
func (s *Secrets) ReadFacts(
	ctx context.Context, tx *pg.Tx, tenant int32, definitions ...jobspec.Definition,
) (Facts, error) {
	f := Facts{names: map[string]bool{}}
	asked, values := map[string]bool{}, false
	for _, d := range definitions {
		for _, name := range d.SecretNames() {
			asked[name] = true
		}
		d.EachHidden(func(_ string, v *jobspec.Hidden) {
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
	var err error
	f.names, err = pg.Map[string, bool](ctx, tx, `
		SELECT name, true FROM punctual.secrets WHERE tenant = $1 AND name = ANY($2::text[]) ORDER BY id FOR KEY SHARE`,
		tenant, slices.Collect(maps.Keys(asked)))
	return f, pg.Wrap("looking for secrets", err)
}

// KnowsSecrets blames a field of a list that names a secret which its tenant does not have.
func (s *Secrets) KnowsSecrets(ctx context.Context, tx *pg.Tx, tenant int32, list []jobspec.Notify) error {
	f, err := s.ReadFacts(ctx, tx, tenant, jobspec.Definition{Notify: list})
	if err != nil {
		return err
	}
	for field, name := range (jobspec.Definition{Notify: list}).SecretNames() {
		if !f.names[name] {
			return unknown(field, name)
		}
	}
	return nil
}

// sealedValue is an encrypted value, such as a row of job_secrets.
type sealedValue struct {
	ID         uuid.UUID
	Key        int64
	Ciphertext []byte
}

func jobSecretPlace(tenant int32, job, id uuid.UUID) vault.Place {
	return vault.Place{Tenant: tenant, Kind: "job secret", Name: job.String() + "/" + id.String()}
}

// OfJob are the secrets of a job's new definition, to be written with the job.
type OfJob struct {
	tenant int32
	job    uuid.UUID
	sealed []sealedValue
	uses   []string // names of the secrets that the definition refers to
}

// Of returns the secrets of a job without any.
func Of(tenant int32, job uuid.UUID) OfJob { return OfJob{tenant: tenant, job: job} }

// Seal returns a definition with an id in the place of every secret value. The encrypted values are kept, to be written
// by queue.
func (j *OfJob) Seal(d jobspec.Definition, f Facts) (jobspec.Definition, error) {
	if !d.HasSecrets() {
		return d, nil
	}
	for field, name := range d.SecretNames() {
		if !f.names[name] {
			return d, unknown(d.Path(field), name)
		}
		j.uses = append(j.uses, name)
	}
	var failed error
	d.EachHidden(func(field string, v *jobspec.Hidden) {
		if _, already := v.Sealed(); already || failed != nil {
			return
		}
		if v.Kept() {
			failed = nothingKept(d.Path(field))
			return
		}
		*v, failed = j.sealValue(v.Value(), f.key)
	})
	return d, failed
}

func (j *OfJob) sealValue(value string, key *vault.DataKey) (jobspec.Hidden, error) {
	if key == nil {
		return jobspec.Hidden{}, errors.New("encrypting a job's secret: no data key was read")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return jobspec.Hidden{}, fmt.Errorf("making a secret's id: %w", err)
	}
	ciphertext, err := key.Seal([]byte(value), jobSecretPlace(j.tenant, j.job, id))
	j.sealed = append(j.sealed, sealedValue{id, key.ID, ciphertext})
	return jobspec.SealedAs(id), err
}

// Queue queues the statements that write the definition's secrets. The job's row must exist by then.
func (j *OfJob) Queue(b *pgx.Batch) {
	for _, v := range j.sealed {
		b.Queue(`
			INSERT INTO punctual.job_secrets (id, tenant, job_id, data_key, ciphertext) VALUES ($1, $2, $3, $4, $5)`,
			v.ID, j.tenant, j.job, v.Key, v.Ciphertext)
	}
	for _, name := range j.uses {
		b.Queue(`
			INSERT INTO punctual.secret_uses (tenant, name, job_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			j.tenant, name, j.job)
	}
}

// KeepSecrets returns a new definition of a job with the stored values in place of those that are unchanged and those
// that the definition asks to keep. So writing a job again changes nothing. A stored value that is not in the job's old
// definition is refused.
func (s *Secrets) KeepSecrets(
	ctx context.Context, q pg.Querier, tenant int32, job uuid.UUID, old, d jobspec.Definition,
) (jobspec.Definition, error) {
	own := sealedIn(old)
	values, err := s.storedValues(ctx, q, tenant, job, d, own)
	if err != nil {
		return d, err
	}
	d.EachHidden(func(field string, v *jobspec.Hidden) {
		id, sealed := v.Sealed()
		switch stored, known := values[field]; {
		case v.Kept() && own[field] != uuid.Nil:
			*v = jobspec.SealedAs(own[field])
		case v.Kept():
			err = nothingKept(d.Path(field))
		case sealed && id != own[field]:
			err = fmt.Errorf("job %s: %s names a stored value that is not its own", job, field)
		case !sealed && known && subtle.ConstantTimeCompare([]byte(stored), []byte(v.Value())) == 1:
			*v = jobspec.SealedAs(own[field])
		}
	})
	return d, err
}

// Reopen returns a former definition of a job, to be written once more. Values that the present definition has too stay
// as they are. All others are decrypted, so that they are stored anew: a stored value is deleted with a version if the
// versions next to it do not have it.
func (s *Secrets) Reopen(
	ctx context.Context, q pg.Querier, tenant int32, job uuid.UUID, present, former jobspec.Definition,
) (jobspec.Definition, error) {
	own := sealedIn(present)
	var failed error
	former.EachHidden(func(field string, v *jobspec.Hidden) {
		id, sealed := v.Sealed()
		if !sealed || own[field] == id || failed != nil {
			return
		}
		var stored sealedValue
		var value string
		failed = q.QueryRow(ctx, `
			SELECT id, data_key, ciphertext FROM punctual.job_secrets WHERE job_id = $1 AND id = $2`, job, id).
			Scan(&stored.ID, &stored.Key, &stored.Ciphertext)
		if failed == nil {
			value, failed = s.open(ctx, q, stored.Key, stored.Ciphertext, jobSecretPlace(tenant, job, id))
		}
		if errors.Is(failed, pgx.ErrNoRows) || errors.Is(failed, vault.ErrCiphertext) {
			failed = fmt.Errorf("the value that %s had is lost: %w", field, pg.ErrState)
		}
		*v = jobspec.HiddenOf(value)
	})
	return former, failed
}

// sealedIn returns the ids of the stored values of a definition, by their fields.
func sealedIn(d jobspec.Definition) map[string]uuid.UUID {
	own := map[string]uuid.UUID{}
	d.EachHidden(func(field string, v *jobspec.Hidden) {
		if id, ok := v.Sealed(); ok {
			own[field] = id
		}
	})
	return own
}

// storedValues decrypts the stored values of the fields in which a new definition has a value too. A value that cannot
// be decrypted is left out, and so replaced.
func (s *Secrets) storedValues(
	ctx context.Context, q pg.Querier, tenant int32, job uuid.UUID, d jobspec.Definition, own map[string]uuid.UUID,
) (map[string]string, error) {
	fields := map[uuid.UUID]string{}
	d.EachHidden(func(field string, v *jobspec.Hidden) {
		if _, sealed := v.Sealed(); !sealed && !v.Kept() && own[field] != uuid.Nil {
			fields[own[field]] = field
		}
	})
	if len(fields) == 0 {
		return nil, nil
	}
	found, err := pg.All(ctx, q, pgx.RowToStructByPos[sealedValue], `
		SELECT id, data_key, ciphertext FROM punctual.job_secrets WHERE job_id = $1 AND id = ANY($2::uuid[])`,
		job, slices.Collect(maps.Keys(fields)))
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of job %s: %w", job, err)
	}
	values := map[string]string{}
	for _, v := range found {
		if value, err := s.open(ctx, q, v.Key, v.Ciphertext, jobSecretPlace(tenant, job, v.ID)); err == nil {
			values[fields[v.ID]] = value
		}
	}
	return values, nil
}
