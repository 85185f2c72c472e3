-- Who changed what and when, in a table that is only added to; and rows that a tenant's requests cannot see beyond.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- The key begins with the tenant, as every list does; the time is in the id. There is no reference to tenants or jobs:
-- checking it would cost each change a look-up, and what is on record stays when its job is forgotten.
CREATE TABLE punctual.audit_log (
    id           uuid NOT NULL,
    job_id       uuid,
    resource_id  uuid,
    at           timestamptz NOT NULL,
    tenant       integer NOT NULL,
    action       text NOT NULL,
    actor_kind   text NOT NULL,
    actor        text,
    address      inet,
    request_id   text,
    name         text,
    before       json,
    after        json,
    PRIMARY KEY (tenant, id),
    CONSTRAINT audit_actor_kind_is_known CHECK (actor_kind IN ('anybody', 'key', 'token', 'command', 'system')),
    CONSTRAINT audit_action_is_known CHECK (action IN ('job.create', 'job.update', 'job.pause', 'job.resume', 'job.delete', 'job.backfill', 'run.trigger', 'run.cancel',
        'dead_letter.replay', 'dead_letter.resolve', 'operation.create', 'operation.cancel', 'api_key.create', 'api_key.revoke', 'tenant.create', 'tenant.update', 'tenant.delete',
        'secret.put', 'secret.delete', 'secret.rotate', 'signing_secret.create', 'signing_secret.delete'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX audit_log_by_job ON punctual.audit_log (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX audit_log_of_no_job ON punctual.audit_log (tenant, id) WHERE job_id IS NULL;
COMMENT ON TABLE  punctual.audit_log             IS 'Every change that somebody made, written with the change. Append-only: changing, deleting and truncating are refused, except for what punctual.forget_audit_log removes.';
COMMENT ON COLUMN punctual.audit_log.id          IS 'UUIDv7 of at: ids are in the order of time.';
COMMENT ON COLUMN punctual.audit_log.job_id      IS 'The job it is about, also of a change to one of its runs or dead letters; null: no single job.';
COMMENT ON COLUMN punctual.audit_log.resource_id IS 'What was changed, of the kind that the action names before its dot; null where that has no such id.';
COMMENT ON COLUMN punctual.audit_log.at          IS 'When, by the database''s clock. Of a change to a job: the valid_from of the version that it made.';
COMMENT ON COLUMN punctual.audit_log.tenant      IS 'Whose it is: tenants.id; -1: the whole deployment''s.';
COMMENT ON COLUMN punctual.audit_log.action      IS 'What was done: the kind of resource, a dot, a verb.';
COMMENT ON COLUMN punctual.audit_log.actor_kind  IS 'What the actor proved who it is with: key, token, command; anybody: authentication was off; system: Punctual itself.';
COMMENT ON COLUMN punctual.audit_log.actor       IS 'Who: a key''s id, a token''s subject, a login; null where nobody is known.';
COMMENT ON COLUMN punctual.audit_log.address     IS 'Where the request came from; null: from nowhere, as on the command line.';
COMMENT ON COLUMN punctual.audit_log.request_id  IS 'The request''s id, as in its answer and in the server''s log.';
COMMENT ON COLUMN punctual.audit_log.name        IS 'Name of the resource then; of a run or dead letter, its job''s.';
COMMENT ON COLUMN punctual.audit_log.before      IS 'What it was; null where there was nothing. Secrets read ***.';
COMMENT ON COLUMN punctual.audit_log.after       IS 'What it became; null where nothing is left. Secrets read ***.';

-- +goose StatementBegin
CREATE FUNCTION punctual.refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('punctual.forgetting', true) = 'on' AND OLD.at < now() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'punctual.audit_log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege',
        HINT = 'What is older than --audit-retention is removed by punctual.forget_audit_log, never the last 30 days.';
END
$$;
COMMENT ON FUNCTION punctual.refuse_audit_change() IS 'Refuses to change or delete what is on record, whoever asks; punctual.forget_audit_log may delete what is older than 30 days.';
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE ON punctual.audit_log FOR EACH ROW EXECUTE FUNCTION punctual.refuse_audit_change();
CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON punctual.audit_log FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_audit_change();

-- Tenant by tenant, so that the key finds the old rows; the tenants are those that the log has.
CREATE FUNCTION punctual.forget_audit_log(older_than interval, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until constant timestamptz := now() - greatest(older_than, interval '30 days');
    below constant uuid := rpad(lpad(to_hex(floor(extract(epoch FROM until) * 1000)::bigint), 12, '0'), 32, '0')::uuid;
    forgotten integer;
BEGIN
    PERFORM set_config('punctual.forgetting', 'on', true);
    WITH RECURSIVE tenants(id) AS (
        SELECT min(tenant) FROM punctual.audit_log
        UNION ALL
        SELECT (SELECT min(a.tenant) FROM punctual.audit_log a WHERE a.tenant > t.id) FROM tenants t WHERE t.id IS NOT NULL),
    old AS (
        SELECT o.tenant, o.id FROM tenants t CROSS JOIN LATERAL (
            SELECT a.tenant, a.id FROM punctual.audit_log a WHERE a.tenant = t.id AND a.id < below ORDER BY a.id LIMIT most) o
        LIMIT most)
    DELETE FROM punctual.audit_log a USING old WHERE a.tenant = old.tenant AND a.id = old.id AND a.at < until;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    PERFORM set_config('punctual.forgetting', 'off', true);
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION punctual.forget_audit_log(interval, integer) IS 'Removes rows of audit_log that are older than an interval, never the last 30 days, up to so many; returns how many.';
REVOKE ALL ON FUNCTION punctual.forget_audit_log(interval, integer) FROM PUBLIC;

CREATE VIEW punctual.audit AS
SELECT a.at, t.name AS tenant, a.actor_kind, coalesce(k.name, a.actor) AS actor, a.address, a.action, split_part(a.action, '.', 1) AS resource, a.name,
       a.before, a.after, a.request_id, a.id, a.resource_id, a.job_id, a.actor AS actor_id
FROM punctual.audit_log a
LEFT JOIN punctual.tenants t ON t.id = a.tenant
LEFT JOIN punctual.api_keys k ON a.actor_kind = 'key' AND k.id::text = a.actor;
COMMENT ON VIEW punctual.audit IS 'Who changed what, when, and what it was before and after. Narrow it by at, job_id or name.';
COMMENT ON COLUMN punctual.audit.at          IS 'When it was done.';
COMMENT ON COLUMN punctual.audit.tenant      IS 'Name of the tenant.';
COMMENT ON COLUMN punctual.audit.actor_kind  IS 'key, token, command; anybody: authentication was off; system: Punctual itself.';
COMMENT ON COLUMN punctual.audit.actor       IS 'Name of the key, subject of the token, login.';
COMMENT ON COLUMN punctual.audit.address     IS 'Where the request came from.';
COMMENT ON COLUMN punctual.audit.action      IS 'What was done.';
COMMENT ON COLUMN punctual.audit.resource    IS 'Kind of what was changed.';
COMMENT ON COLUMN punctual.audit.name        IS 'Its name then; of a run or dead letter, its job''s.';
COMMENT ON COLUMN punctual.audit.before      IS 'What it was.';
COMMENT ON COLUMN punctual.audit.after       IS 'What it became.';
COMMENT ON COLUMN punctual.audit.request_id  IS 'The request''s id.';
COMMENT ON COLUMN punctual.audit.id          IS 'Id of the entry.';
COMMENT ON COLUMN punctual.audit.resource_id IS 'Id of what was changed.';
COMMENT ON COLUMN punctual.audit.job_id      IS 'Id of the job it is about.';
COMMENT ON COLUMN punctual.audit.actor_id    IS 'Id of the key; else as actor.';
-- +goose StatementEnd

-- What a tenant's requests see of the other tables.

-- +goose StatementBegin
CREATE FUNCTION punctual.acting_tenant() RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT nullif(current_setting('punctual.tenant', true), '')::integer $$;
COMMENT ON FUNCTION punctual.acting_tenant() IS 'The tenant that this transaction acts for, as the role punctual_tenant: tenants.id; null: none, and then no row is seen.';

-- The log itself has no row-level security: whoever does not own a table that has it cannot make a copy of it with pg_dump.
-- The view is no security barrier: there, the newest entries would be found by sorting all.
CREATE VIEW punctual.audit_entries AS
SELECT id, job_id, resource_id, at, tenant, action, actor_kind, actor, address, request_id, name, before, after FROM punctual.audit_log
WHERE current_user <> 'punctual_tenant' OR tenant = punctual.acting_tenant()
WITH LOCAL CHECK OPTION;
COMMENT ON VIEW punctual.audit_entries IS 'What a transaction may see of audit_log and add to it: as the role punctual_tenant the acting tenant''s entries, else all.';
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT attname, col_description(attrelid, attnum) AS text FROM pg_attribute WHERE attrelid = 'punctual.audit_log'::regclass AND attnum > 0 LOOP
        EXECUTE format('COMMENT ON COLUMN punctual.audit_entries.%I IS %L', c.attname, c.text);
    END LOOP;
END
$$;

-- Volatile, so that it sees a job that the same statement has just written.
CREATE FUNCTION punctual.acts_for_job(job uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM punctual.jobs j WHERE j.id = job AND j.tenant = punctual.acting_tenant());
END
$$;
COMMENT ON FUNCTION punctual.acts_for_job(uuid) IS 'Whether a job is the acting tenant''s.';

-- Planned with the id at hand, so that it looks into one day and not into all.
CREATE FUNCTION punctual.acts_for_run(run uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM punctual.runs r WHERE r.id = run AND r.tenant = punctual.acting_tenant());
END
$$;
COMMENT ON FUNCTION punctual.acts_for_run(uuid) IS 'Whether a run is the acting tenant''s.';

-- Tables are made by their owner; an edit of a job whose slots were long due may need one.
CREATE FUNCTION punctual.create_partition_of(slot timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM punctual.create_partitions(d.day, d.day) FROM (SELECT (slot AT TIME ZONE 'UTC')::date) d(day);
END
$$;
COMMENT ON FUNCTION punctual.create_partition_of(timestamptz) IS 'Makes the partitions of the day of a slot (UTC) that are missing.';
REVOKE ALL ON FUNCTION punctual.create_partition_of(timestamptz) FROM PUBLIC;
-- +goose StatementEnd

-- +goose StatementBegin
-- The policies are for the role punctual_tenant alone: everybody else sees what they saw, the role's members too while
-- they are themselves. Tables come in the order in which they are locked by those who write.
CREATE FUNCTION punctual.guard_tenants() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    own     constant text := 'tenant = punctual.acting_tenant()';
    -- EXISTS would become a hash of all jobs where the planner expects many rows.
    by_job  constant text := '(SELECT j.tenant FROM punctual.jobs j WHERE j.id = job_id) = punctual.acting_tenant()';
    by_run  constant text := 'punctual.acts_for_run(run_id)';
    -- table, what may be done, which rows, and which new ones where that is another question
    guarded constant text[] := ARRAY[
        ['operations',       'SELECT, INSERT, UPDATE',         own, NULL],
        ['dead_letters',     'SELECT, UPDATE',                 own, NULL],
        ['schedules',        'SELECT, INSERT, UPDATE',         own, NULL],
        ['exclusive',        'SELECT, INSERT, UPDATE',         by_job, 'punctual.acts_for_job(job_id)'],
        ['jobs',             'SELECT, INSERT, UPDATE',         own, NULL],
        -- A job that is there has its first version already, and a job is written with it in one statement.
        ['job_versions',     'SELECT, INSERT',                 by_job, 'version = 1 OR ' || by_job],
        ['ready',            'SELECT, INSERT, UPDATE, DELETE', own, NULL],
        ['runs',             'SELECT, INSERT, UPDATE',         own, NULL],
        ['attempts',         'SELECT',                         by_run, NULL],
        ['run_data',         'SELECT, INSERT',                 by_run, NULL],
        ['cancels',          'SELECT, INSERT, UPDATE',         by_run, NULL],
        ['notified',         'SELECT',                         by_job, NULL],
        ['notices',          'SELECT, INSERT',                 own, NULL],
        ['idempotency_keys', 'SELECT, INSERT, UPDATE',         own, NULL],
        -- What nothing is changed in but rows are locked of needs the right to change something.
        ['tenants',          'SELECT, UPDATE (updated_at)',    'id = punctual.acting_tenant()', NULL]];
    entry text[];
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'punctual_tenant') THEN
        RAISE NOTICE 'there is no role punctual_tenant';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA punctual TO punctual_tenant;
    GRANT SELECT ON punctual.queues TO punctual_tenant;
    GRANT SELECT, UPDATE (secrets_changed) ON punctual.deployment TO punctual_tenant;
    GRANT SELECT, UPDATE (created_at) ON punctual.data_keys TO punctual_tenant; -- sealed, and locked by those who use them
    GRANT SELECT, INSERT ON punctual.audit_entries TO punctual_tenant;
    GRANT EXECUTE ON FUNCTION punctual.create_partition_of(timestamptz) TO punctual_tenant;
    FOREACH entry SLICE 1 IN ARRAY guarded LOOP
        PERFORM punctual.guard_table(entry[1], entry[2], entry[3], coalesce(entry[4], entry[3]));
    END LOOP;
    -- Whatever else says whose it is: keys, secrets.
    PERFORM punctual.guard_table(c.relname, 'SELECT, INSERT, UPDATE, DELETE', own, own)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND a.atttypid = 'integer'::regtype
    WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT c.relrowsecurity AND c.relname <> 'audit_log' AND c.relname !~ '_\d{8}(_failures)?$';
END
$$;
COMMENT ON FUNCTION punctual.guard_tenants() IS 'Gives the role punctual_tenant what the API does for a tenant, on that tenant''s rows. To be called again once that role was made later, by the owner of the tables or a superuser.';

CREATE FUNCTION punctual.guard_table(relation text, privileges text, visible text, writable text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE punctual.%I ENABLE ROW LEVEL SECURITY', relation);
    EXECUTE format('DROP POLICY IF EXISTS everybody ON punctual.%I', relation);
    EXECUTE format('DROP POLICY IF EXISTS own_rows_of_a_tenant ON punctual.%I', relation);
    EXECUTE format('CREATE POLICY everybody ON punctual.%I USING (true)', relation);
    EXECUTE format('CREATE POLICY own_rows_of_a_tenant ON punctual.%I AS RESTRICTIVE TO punctual_tenant USING (current_user <> ''punctual_tenant'' OR %s) WITH CHECK (current_user <> ''punctual_tenant'' OR %s)',
        relation, visible, writable);
    EXECUTE format('REVOKE ALL ON punctual.%I FROM punctual_tenant', relation);
    EXECUTE format('GRANT %s ON punctual.%I TO punctual_tenant', privileges, relation);
END
$$;
COMMENT ON FUNCTION punctual.guard_table(text, text, text, text) IS 'Lets the role punctual_tenant do something to those rows of a table that meet a condition, and nothing to others.';

-- Roles belong to the cluster, and making one needs a privilege; without it everything else still works.
DO $$
DECLARE
    granted constant text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
    how constant text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant') THEN
            CREATE ROLE punctual_tenant NOLOGIN;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_tenant was not made: the migrating user may not create roles';
        WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this cluster is being migrated at the same moment
    END;
    BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant') AND NOT pg_has_role('punctual_tenant', how) THEN
            EXECUTE format('GRANT punctual_tenant TO %I', current_user) || granted;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_tenant was not granted: the migrating user may not grant it';
        WHEN unique_violation THEN
            NULL; -- likewise
    END;
    PERFORM punctual.guard_tenants();
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whoever owns a table may do anything to it. So the log is given to a role that nobody is, and all that is left to the
-- owner of the schema, as which Punctual connects, is to add to it and to read it.
DO $$
DECLARE
    me constant name := current_user;
    latest constant boolean := current_setting('server_version_num')::integer >= 160000;
    mine boolean;
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.audit_log, punctual.audit TO punctual_reader;
    END IF;
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_audit') THEN
            CREATE ROLE punctual_audit NOLOGIN;
        END IF;
    EXCEPTION
        WHEN duplicate_object OR unique_violation THEN
            NULL;
    END;
    mine := pg_has_role('punctual_audit', CASE WHEN latest THEN 'SET' ELSE 'MEMBER' END);
    IF NOT mine THEN
        EXECUTE format('GRANT punctual_audit TO %I', me) || CASE WHEN latest THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
    END IF;
    GRANT USAGE, CREATE ON SCHEMA punctual TO punctual_audit;
    ALTER TABLE punctual.audit_log OWNER TO punctual_audit;
    ALTER FUNCTION punctual.forget_audit_log(interval, integer) OWNER TO punctual_audit;
    ALTER FUNCTION punctual.refuse_audit_change() OWNER TO punctual_audit;
    EXECUTE format('GRANT SELECT, INSERT ON punctual.audit_log TO %I', me);
    EXECUTE format('GRANT EXECUTE ON FUNCTION punctual.forget_audit_log(interval, integer) TO %I', me);
    REVOKE CREATE ON SCHEMA punctual FROM punctual_audit;
    IF NOT mine THEN
        EXECUTE format('REVOKE punctual_audit FROM %I', me);
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'punctual.audit_log stays with the migrating user, who may not make or use the role punctual_audit; its triggers protect it all the same';
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '500ms';

-- +goose StatementBegin
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN SELECT polrelid FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = 'punctual'::regnamespace AND polname = 'everybody' LOOP
        EXECUTE format('DROP POLICY everybody ON %s', relation);
        EXECUTE format('DROP POLICY own_rows_of_a_tenant ON %s', relation);
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('REVOKE ALL ON %s FROM punctual_tenant', relation);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant') THEN
        REVOKE ALL ON punctual.queues, punctual.deployment, punctual.data_keys FROM punctual_tenant;
        REVOKE ALL ON SCHEMA punctual FROM punctual_tenant;
    END IF;
END
$$;
-- The owner of the schema may drop what is in it, also what is others'.
DROP VIEW punctual.audit, punctual.audit_entries;
DROP TABLE punctual.audit_log;
DROP FUNCTION punctual.forget_audit_log(interval, integer), punctual.refuse_audit_change(), punctual.guard_tenants(), punctual.guard_table(text, text, text, text),
    punctual.create_partition_of(timestamptz), punctual.acts_for_run(uuid), punctual.acts_for_job(uuid), punctual.acting_tenant();
-- +goose StatementEnd
