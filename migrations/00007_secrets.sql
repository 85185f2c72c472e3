-- Secrets at rest, named ones and those of single jobs, and what callbacks are signed with.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- One word more in the closed list: auth. Not validated, and for days that are detached too, as in the migration that
-- added failed.
-- +goose StatementBegin
DO $$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace
           AND (c.relname = 'runs' OR (c.relkind = 'r' AND c.relname ~ '^runs_\d{8}' AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))
    LOOP
        EXECUTE format($c$ALTER TABLE %s DROP CONSTRAINT run_reason_is_known,
            ADD CONSTRAINT run_reason_is_known CHECK (reason IN ('missed', 'paused', 'overlap', 'replaced', 'expired', 'limit', 'auth', 'timeout', 'connect', 'tls', 'blocked_address',
                'http_4xx', 'http_5xx', 'redirect', 'gone', 'failed', 'lost', 'poison', 'upstream_failed', 'cancelled_by_user', 'job_deleted')) NOT VALID$c$, target);
    END LOOP;
END
$$;
-- +goose StatementEnd

ALTER TABLE punctual.deployment ADD COLUMN secrets_changed bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN punctual.deployment.secrets_changed IS 'Counts the changes of secrets and signing_secrets: replicas forget what they have opened when it moves.';

CREATE TABLE punctual.data_keys (
    id          bigint PRIMARY KEY,
    number      bigint GENERATED ALWAYS AS IDENTITY,
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  punctual.data_keys            IS 'The keys that secrets are encrypted with, themselves encrypted with the master key, which is not in the database.';
COMMENT ON COLUMN punctual.data_keys.id         IS 'Tink''s id of the key, which every ciphertext begins with.';
COMMENT ON COLUMN punctual.data_keys.number     IS 'Order of making: the last one encrypts, all of them decrypt.';
COMMENT ON COLUMN punctual.data_keys.sealed     IS 'Tink keyset of one AES-256-GCM key, encrypted with the master key; the id is its associated data.';
COMMENT ON COLUMN punctual.data_keys.created_at IS 'When it was made.';

CREATE TABLE punctual.secrets (
    id           uuid PRIMARY KEY,
    tenant       integer NOT NULL REFERENCES punctual.tenants,
    name         text NOT NULL,
    description  text NOT NULL DEFAULT '',
    version      integer NOT NULL DEFAULT 1,
    data_key     bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext   bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secret_name_is_unique UNIQUE (tenant, name),
    CONSTRAINT secret_name_is_1_to_128_letters_digits_and_marks CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$')
);
COMMENT ON TABLE  punctual.secrets             IS 'Secrets that definitions refer to by name. No value is ever shown.';
COMMENT ON COLUMN punctual.secrets.id          IS 'UUIDv7 of its creation; a secret of the same name made later is another.';
COMMENT ON COLUMN punctual.secrets.tenant      IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.secrets.name        IS 'What definitions call it by.';
COMMENT ON COLUMN punctual.secrets.description IS 'For people.';
COMMENT ON COLUMN punctual.secrets.version     IS 'Counts the values it has had.';
COMMENT ON COLUMN punctual.secrets.data_key    IS 'What it is encrypted with: data_keys.id.';
COMMENT ON COLUMN punctual.secrets.ciphertext  IS 'AES-256-GCM; tenant, kind and id are its associated data.';
COMMENT ON COLUMN punctual.secrets.created_at  IS 'When it was made.';
COMMENT ON COLUMN punctual.secrets.updated_at  IS 'When it was last changed.';

CREATE TABLE punctual.secret_uses (
    tenant  integer NOT NULL,
    name    text NOT NULL,
    job_id  uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    PRIMARY KEY (tenant, name, job_id)
);
CREATE INDEX secret_uses_by_job ON punctual.secret_uses (job_id);
COMMENT ON TABLE  punctual.secret_uses        IS 'Which jobs have referred to which secrets in some version: where to look before one is deleted.';
COMMENT ON COLUMN punctual.secret_uses.tenant IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.secret_uses.name   IS 'Name of the secret.';
COMMENT ON COLUMN punctual.secret_uses.job_id IS 'The job.';

CREATE TABLE punctual.job_secrets (
    id          uuid PRIMARY KEY,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    job_id      uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    data_key    bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext  bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX job_secrets_by_job ON punctual.job_secrets (job_id);
COMMENT ON TABLE  punctual.job_secrets            IS 'Values that were written into definitions: there, {"sealed": id} stands in their place. A row never changes, another value is another row.';
COMMENT ON COLUMN punctual.job_secrets.id         IS 'What the definition refers to it by.';
COMMENT ON COLUMN punctual.job_secrets.tenant     IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.job_secrets.job_id     IS 'The job; it goes with that.';
COMMENT ON COLUMN punctual.job_secrets.data_key   IS 'What it is encrypted with: data_keys.id.';
COMMENT ON COLUMN punctual.job_secrets.ciphertext IS 'AES-256-GCM; tenant, kind, job and id are its associated data.';
COMMENT ON COLUMN punctual.job_secrets.created_at IS 'When it was written.';

CREATE TABLE punctual.signing_secrets (
    id          uuid PRIMARY KEY,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    data_key    bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext  bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz
);
CREATE INDEX signing_secrets_by_tenant ON punctual.signing_secrets (tenant);
COMMENT ON TABLE  punctual.signing_secrets            IS 'What a tenant''s callbacks are signed with: with each of its live ones. Every tenant has one that does not expire.';
COMMENT ON COLUMN punctual.signing_secrets.id         IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.signing_secrets.tenant     IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.signing_secrets.data_key   IS 'What it is encrypted with: data_keys.id.';
COMMENT ON COLUMN punctual.signing_secrets.ciphertext IS 'AES-256-GCM; tenant, kind and id are its associated data.';
COMMENT ON COLUMN punctual.signing_secrets.created_at IS 'When it was made.';
COMMENT ON COLUMN punctual.signing_secrets.expires_at IS 'When it ceases to sign; null: when it is deleted.';

-- Ciphertexts are read to be decrypted, which is nothing that SQL can do. So nothing here is granted to punctual_reader.

-- +goose Down
DROP TABLE punctual.signing_secrets, punctual.job_secrets, punctual.secret_uses, punctual.secrets, punctual.data_keys;
ALTER TABLE punctual.deployment DROP COLUMN secrets_changed;
