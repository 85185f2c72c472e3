-- Tenants that administer themselves: keys, roles, limits.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

ALTER TABLE punctual.tenants
    ADD COLUMN max_jobs                integer,
    ADD COLUMN max_concurrent_runs     integer,
    ADD COLUMN max_runs_per_second     integer,
    ADD COLUMN max_requests_per_second integer,
    ADD COLUMN min_interval            interval,
    ADD COLUMN allowed_targets         cidr[] NOT NULL DEFAULT '{}',
    ADD COLUMN updated_at              timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN deleted_at              timestamptz,
    ADD CONSTRAINT tenant_max_jobs_is_positive                CHECK (max_jobs > 0),
    ADD CONSTRAINT tenant_max_concurrent_runs_is_positive     CHECK (max_concurrent_runs > 0),
    ADD CONSTRAINT tenant_max_runs_per_second_is_positive     CHECK (max_runs_per_second > 0),
    ADD CONSTRAINT tenant_max_requests_per_second_is_positive CHECK (max_requests_per_second > 0),
    ADD CONSTRAINT tenant_min_interval_is_1s_or_more          CHECK (min_interval >= interval '1 second');
COMMENT ON COLUMN punctual.tenants.max_jobs                IS 'How many active and paused jobs it may have; null: as many as it likes.';
COMMENT ON COLUMN punctual.tenants.max_concurrent_runs     IS 'How many of its runs all replicas together may be sending at once; null: as many as there are worker slots. Runs beyond it wait.';
COMMENT ON COLUMN punctual.tenants.max_runs_per_second     IS 'How many of its attempts all replicas together may start in a second; null: no bound. Runs beyond it wait.';
COMMENT ON COLUMN punctual.tenants.max_requests_per_second IS 'How many API requests all replicas together answer it in a second; null: no bound. Others get 429.';
COMMENT ON COLUMN punctual.tenants.min_interval            IS 'Shortest time between two slots of one of its jobs; null: a second, as for everybody.';
COMMENT ON COLUMN punctual.tenants.allowed_targets         IS 'Networks that its jobs may call although they are not public, beside those that the deployment allows everybody.';
COMMENT ON COLUMN punctual.tenants.updated_at              IS 'When it was last changed.';
COMMENT ON COLUMN punctual.tenants.deleted_at              IS 'When it was deleted: its jobs and keys are no more, its history stays until retention takes it.';

-- The name of one that was deleted can be used again.
ALTER TABLE punctual.tenants DROP CONSTRAINT tenant_name_is_unique;
CREATE UNIQUE INDEX tenant_name_is_unique ON punctual.tenants (name) WHERE deleted_at IS NULL;

-- Not logged: after a crash or a failover each tenant has a second's worth of requests again, and none of them waits for
-- the disk.
CREATE UNLOGGED TABLE punctual.request_rates (
    tenant       integer PRIMARY KEY REFERENCES punctual.tenants,
    spent_until  timestamptz NOT NULL,
    granted      integer NOT NULL,
    CONSTRAINT request_rate_grants_something CHECK (granted > 0)
) WITH (fillfactor = 20);
COMMENT ON TABLE  punctual.request_rates             IS 'How far tenants with max_requests_per_second have spent it. Replicas draw requests from here a tenth of a second''s worth at a time.';
COMMENT ON COLUMN punctual.request_rates.tenant      IS 'Who sent them: tenants.id.';
COMMENT ON COLUMN punctual.request_rates.spent_until IS 'When all requests drawn so far would have been sent, had they come evenly: at most a second from now.';
COMMENT ON COLUMN punctual.request_rates.granted     IS 'How many the last replica drew.';

CREATE TABLE punctual.api_keys (
    id            uuid PRIMARY KEY,
    tenant        integer NOT NULL REFERENCES punctual.tenants,
    name          text NOT NULL,
    prefix        text NOT NULL,
    hash          bytea NOT NULL,
    role          text NOT NULL,
    created_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    CONSTRAINT api_key_prefix_is_unique UNIQUE (prefix),
    CONSTRAINT api_key_name_is_1_to_128_characters CHECK (length(name) BETWEEN 1 AND 128),
    CONSTRAINT api_key_hash_is_a_sha_256 CHECK (length(hash) = 32),
    CONSTRAINT api_key_role_is_known CHECK (role IN ('viewer', 'submitter', 'editor', 'admin', 'operator')),
    CONSTRAINT api_key_expires_after_it_was_made CHECK (expires_at > created_at)
);
CREATE INDEX api_keys_by_tenant ON punctual.api_keys (tenant, id);
COMMENT ON TABLE  punctual.api_keys              IS 'Keys of the API. A key itself is shown once, when it is made, and not stored.';
COMMENT ON COLUMN punctual.api_keys.id           IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.api_keys.tenant       IS 'Whom it acts for: tenants.id.';
COMMENT ON COLUMN punctual.api_keys.name         IS 'What it is for, for people.';
COMMENT ON COLUMN punctual.api_keys.prefix       IS 'Its beginning, which is no secret: it is found by that.';
COMMENT ON COLUMN punctual.api_keys.hash         IS 'SHA-256 of the whole key. It holds 256 random bits, so that a slow hash would protect nothing more.';
COMMENT ON COLUMN punctual.api_keys.role         IS 'viewer, submitter, editor, admin or operator: each may also do what those before it may.';
COMMENT ON COLUMN punctual.api_keys.created_by   IS 'Who made it.';
COMMENT ON COLUMN punctual.api_keys.created_at   IS 'When it was made.';
COMMENT ON COLUMN punctual.api_keys.expires_at   IS 'When it ceases to work; null: never.';
COMMENT ON COLUMN punctual.api_keys.last_used_at IS 'When it was last used, to the minute.';
COMMENT ON COLUMN punctual.api_keys.revoked_at   IS 'When it was revoked.';

-- +goose Down
DROP TABLE punctual.api_keys;
DROP TABLE punctual.request_rates;
DROP INDEX punctual.tenant_name_is_unique;
UPDATE punctual.tenants SET name = left(name, 100) || ':deleted-' || id WHERE deleted_at IS NOT NULL;
ALTER TABLE punctual.tenants ADD CONSTRAINT tenant_name_is_unique UNIQUE (name);
ALTER TABLE punctual.tenants DROP COLUMN max_jobs, DROP COLUMN max_concurrent_runs, DROP COLUMN max_runs_per_second, DROP COLUMN max_requests_per_second,
    DROP COLUMN min_interval, DROP COLUMN allowed_targets, DROP COLUMN updated_at, DROP COLUMN deleted_at;
