package secrets

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/vault"
)

// Secret is what may be known about a secret: neither its value nor the value's length.
type Secret struct {
	ID          uuid.UUID `json:"-"`
	Name        string    `json:"name" doc:"The name that definitions use for it." example:"billing-token"`
	Description string    `json:"description" doc:"For people." example:"of the billing team"`
	Version     int32     `json:"version" doc:"Number of its current value: 1, and one more with each new value." example:"2"`
	CreatedAt   time.Time `json:"created_at" doc:"When it was created."`
	UpdatedAt   time.Time `json:"updated_at" doc:"When it was last changed."`
}

// tries is how often a write looks again for what another transaction has just made or removed.
const tries = 5

// namedColumns stand in the order of the fields of Secret.
const namedColumns = `id, name, description, version, created_at, updated_at`

var scanSecret = pgx.RowToStructByPos[Secret]

var listed = pg.Listed[Secret]{
	What: "secrets", Letter: 's', ID: `id`, Of: func(r Secret) uuid.UUID { return r.ID }, Scan: scanSecret,
}

func secretPlace(tenant int32, id uuid.UUID, name string) vault.Place {
	return vault.Place{Tenant: tenant, Kind: "secret", Name: id.String() + "/" + name}
}

// PutSecret creates a secret or gives it another value. The same value and description change nothing.
func (s *Secrets) PutSecret(
	ctx context.Context, tenant int32, name, value, description string,
) (r Secret, created bool, err error) {
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		key, err := s.sealingKey(ctx, tx)
		if err != nil {
			return err
		}
		for range tries {
			var known bool
			if r, known, err = s.rewriteSecret(ctx, tx, key, tenant, name, value, description); known || err != nil {
				return err
			}
			if r, created, err = insertSecret(ctx, tx, key, tenant, name, value, description); created || err != nil {
				return err
			}
		}
		return fmt.Errorf("secret %q was created and deleted during every attempt to write it: %w", name, pg.ErrState)
	})
	s.ForgetSecrets() // other replicas read secrets again within seconds
	return r, created, err
}

// rewriteSecret changes the secret with a name. known is false if there is none.
func (s *Secrets) rewriteSecret(
	ctx context.Context, tx *pg.Tx, key *vault.DataKey, tenant int32, name, value, description string,
) (r Secret, known bool, err error) {
	var old int64
	var ciphertext []byte
	err = tx.QueryRow(ctx, `
		SELECT `+namedColumns+`, data_key, ciphertext FROM punctual.secrets
		WHERE tenant = $1 AND name = $2 FOR NO KEY UPDATE`, tenant, name).
		Scan(&r.ID, &r.Name, &r.Description, &r.Version, &r.CreatedAt, &r.UpdatedAt, &old, &ciphertext)
	if known, err = pg.Some(err); !known {
		return r, false, pg.Wrap(fmt.Sprintf("reading secret %q", name), err)
	}
	at := secretPlace(tenant, r.ID, name)
	// A value that does not decrypt is replaced like any other: writing it again is how to repair it.
	was, openErr := s.open(ctx, tx, old, ciphertext, at)
	same := openErr == nil && was == value
	if same && r.Description == description {
		return r, true, nil
	}
	sealed, err := key.Seal([]byte(value), at)
	if err != nil {
		return r, true, err
	}
	before := r
	r, err = pg.One(ctx, tx, scanSecret, `
		UPDATE punctual.secrets
		SET description = $2, version = version + CASE WHEN $3 THEN 0 ELSE 1 END,
			data_key = $4, ciphertext = $5, updated_at = clock_timestamp()
		WHERE id = $1
		RETURNING `+namedColumns, r.ID, description, same, key.ID, sealed)
	if err != nil {
		return r, true, fmt.Errorf("writing secret %q: %w", name, err)
	}
	return r, true, writeChange(ctx, tx, tenant, secretPut(&before, r))
}

// insertSecret creates the secret with a name, unless another transaction has just done so.
func insertSecret(
	ctx context.Context, tx *pg.Tx, key *vault.DataKey, tenant int32, name, value, description string,
) (r Secret, created bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return r, false, fmt.Errorf("making a secret's id: %w", err)
	}
	sealed, err := key.Seal([]byte(value), secretPlace(tenant, id, name))
	if err != nil {
		return r, false, err
	}
	r, err = pg.One(ctx, tx, scanSecret, `
		INSERT INTO punctual.secrets (id, tenant, name, description, data_key, ciphertext) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant, name) DO NOTHING RETURNING `+namedColumns, id, tenant, name, description, key.ID, sealed)
	if created, err = pg.Some(err); !created {
		return r, false, pg.Wrap(fmt.Sprintf("writing secret %q", name), err)
	}
	return r, true, writeChange(ctx, tx, tenant, secretPut(nil, r))
}

// GetSecret returns what may be known about a secret. The error is ErrNotFound if there is none.
func (s *Secrets) GetSecret(ctx context.Context, tenant int32, name string) (Secret, error) {
	r, err := pg.One(ctx, s.db.Callers.Reader(tenant), scanSecret, `
		SELECT `+namedColumns+` FROM punctual.secrets WHERE tenant = $1 AND name = $2`, tenant, name)
	return r, pg.Found(err, "secret %q", name)
}

// ListSecrets returns a page of secrets, newest first.
func (s *Secrets) ListSecrets(
	ctx context.Context, tenant int32, p pg.Page,
) (list []Secret, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`tenant = ?`, tenant)
	return listed.Page(ctx, s.db.Callers.Reader(tenant), p, `SELECT `+namedColumns+` FROM punctual.secrets`, c)
}

// DeleteSecret deletes a secret. The error is *names.InUseError while active or paused jobs refer to the secret, a
// *jobspec.Refusal while the tenant's notify does, and ErrNotFound if there is none.
func (s *Secrets) DeleteSecret(ctx context.Context, tenant int32, name string) error {
	defer s.ForgetSecrets()
	return s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		// A transaction that writes a job with a reference to the secret shares this lock until it ends: see ReadFacts.
		var id uuid.UUID
		err := tx.QueryRow(ctx, `
			SELECT id FROM punctual.secrets WHERE tenant = $1 AND name = $2 FOR UPDATE`, tenant, name).Scan(&id)
		if err != nil {
			return pg.Found(err, "secret %q", name)
		}
		jobs, err := usersOf(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if err := names.Unused("secret", name, jobs); err != nil {
			return err
		}
		if err := unusedByTenant(ctx, tx, tenant, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM punctual.secrets WHERE id = $1`, id); err != nil {
			return fmt.Errorf("deleting secret %q: %w", name, err)
		}
		return writeChange(ctx, tx, tenant, audit.Change{Action: audit.SecretDelete, ID: id, Name: name})
	})
}

// usersOf returns the names of active and paused jobs whose definition refers to a secret, one more than are shown.
func usersOf(ctx context.Context, tx *pg.Tx, tenant int32, name string) (users []string, err error) {
	var job string
	var text []byte
	rows := pg.Query(ctx, tx, `
		SELECT j.name, v.definition FROM punctual.secret_uses x
		JOIN punctual.jobs j ON j.id = x.job_id
		LEFT JOIN punctual.schedules s ON s.job_id = j.id
		JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
		WHERE x.tenant = $1 AND x.name = $2 AND j.tenant = $1
		  AND punctual.job_state(j, s) IN ('active', 'paused')
		ORDER BY j.name`, tenant, name)
	_, err = pgx.ForEachRow(rows, []any{&job, &text}, func() error {
		var d jobspec.Definition
		if len(users) > names.MostUsers {
			return nil
		}
		// A definition that this binary cannot read may refer to it as any version of the job has.
		if json.Unmarshal(text, &d) != nil || slices.Contains(slices.Collect(maps.Values(d.SecretNames())), name) {
			users = append(users, job)
		}
		return nil
	})
	return users, pg.Wrap(fmt.Sprintf("looking for jobs that use secret %q", name), err)
}

// unusedByTenant refuses a secret that the tenant's own notify names.
func unusedByTenant(ctx context.Context, tx *pg.Tx, tenant int32, name string) error {
	var list []jobspec.Notify
	err := tx.QueryRow(ctx, `SELECT notify FROM punctual.tenants WHERE id = $1`, tenant).Scan(&list)
	if err != nil {
		return fmt.Errorf("reading the notify of the tenant: %w", err)
	}
	if slices.ContainsFunc(list, func(n jobspec.Notify) bool { return n.Secret == name }) {
		return &jobspec.Refusal{
			Code: "state", Reason: fmt.Sprintf("secret %q is named in the notify of the tenant; take it out there first", name),
		}
	}
	return nil
}

// secretShot is a secret as the audit log shows it: never with the secret itself, nor with anything made of it.
type secretShot struct {
	Description string `json:"description"`
	Version     int32  `json:"version"`
}

// secretPut is the change that gave a secret its value or its description. before is nil for a new secret.
func secretPut(before *Secret, after Secret) audit.Change {
	c := audit.Change{
		Action: audit.SecretPut, ID: after.ID, Name: after.Name,
		After: secretShot{after.Description, after.Version},
	}
	if before != nil {
		c.Before = secretShot{before.Description, before.Version}
	}
	return c
}

// QueueForget queues the removal of all secrets of deleted tenants. Notices need them, so they stay while recipients of
// a tenant are yet to be told that its trouble is over, for a day at most.
func QueueForget(b *pgx.Batch) {
	for _, table := range []string{"secrets", "signing_secrets"} {
		b.Queue(`
			DELETE FROM punctual.` + table + ` WHERE tenant IN (
			    SELECT t.id FROM punctual.tenants t
			    WHERE t.deleted_at < now() - interval '1 day' OR t.deleted_at IS NOT NULL AND NOT EXISTS (
			        SELECT FROM punctual.outbox o
			        WHERE o.tenant = t.id AND (o.causes <> '{}' OR EXISTS (
			            SELECT FROM punctual.notice_states s WHERE s.recipient_id = o.id))))`)
	}
}

// ForgetOfDeleted removes the secrets of deleted tenants that are needed no more.
func (s *Secrets) ForgetOfDeleted(ctx context.Context) (forgotten int, left bool, err error) {
	var b pgx.Batch
	QueueForget(&b)
	return 0, false, pg.Wrap("removing secrets of deleted tenants", s.db.Chores.SendBatch(ctx, &b).Close())
}
