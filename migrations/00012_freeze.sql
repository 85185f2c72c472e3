-- Freezing: nothing is claimed, for all tenants or for one, until somebody says so. And the identity of the database, by
-- which replicas notice that it was restored from a dump.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

ALTER TABLE punctual.deployment
    ADD COLUMN database_name     text NOT NULL DEFAULT '',
    ADD COLUMN system_identifier text NOT NULL DEFAULT '',
    ADD COLUMN frozen_at         timestamptz,
    ADD COLUMN frozen_by         text,
    ADD COLUMN frozen_note       text,
    ADD COLUMN frozen_reason     text,
    ADD CONSTRAINT deployment_freeze_is_whole CHECK ((frozen_at IS NULL) = (frozen_by IS NULL) AND (frozen_at IS NULL) = (frozen_reason IS NULL) AND (frozen_note IS NULL OR frozen_at IS NOT NULL)),
    ADD CONSTRAINT deployment_frozen_reason_is_known CHECK (frozen_reason IN ('asked', 'restored'));
COMMENT ON COLUMN punctual.deployment.database_name     IS 'Name of the database that runs were last dispatched from; empty: none yet. Another name than the present one: this is a copy, see is_copy().';
COMMENT ON COLUMN punctual.deployment.system_identifier IS 'System identifier of the Postgres that runs were last dispatched from (pg_control_system()); empty: none yet, or this Postgres does not tell it.';
COMMENT ON COLUMN punctual.deployment.frozen_at         IS 'Since when nothing is claimed, for no tenant; null: the deployment is not frozen.';
COMMENT ON COLUMN punctual.deployment.frozen_by         IS 'Who froze it, for people.';
COMMENT ON COLUMN punctual.deployment.frozen_note       IS 'Why, where somebody said so.';
COMMENT ON COLUMN punctual.deployment.frozen_reason     IS 'asked: somebody froze it; restored: a replica found it to be a copy.';

ALTER TABLE punctual.tenants
    ADD COLUMN frozen_at   timestamptz,
    ADD COLUMN frozen_by   text,
    ADD COLUMN frozen_note text,
    ADD CONSTRAINT tenant_freeze_is_whole CHECK ((frozen_at IS NULL) = (frozen_by IS NULL) AND (frozen_note IS NULL OR frozen_at IS NOT NULL));
COMMENT ON COLUMN punctual.tenants.frozen_at   IS 'Since when nothing of this tenant is claimed; null: it is not frozen.';
COMMENT ON COLUMN punctual.tenants.frozen_by   IS 'Who froze it, for people.';
COMMENT ON COLUMN punctual.tenants.frozen_note IS 'Why, where somebody said so.';
-- What every claim reads, and what every heartbeat does.
CREATE INDEX tenants_frozen ON punctual.tenants (id) WHERE frozen_at IS NOT NULL;
DROP INDEX punctual.tenants_with_limits;
CREATE INDEX tenants_with_limits ON punctual.tenants (id) WHERE max_concurrent_runs IS NOT NULL OR max_runs_per_second IS NOT NULL OR frozen_at IS NOT NULL;

-- +goose StatementBegin
-- The log belongs to a role that nobody is, as which it is altered.
DO $$
DECLARE
    latest constant boolean := current_setting('server_version_num')::integer >= 160000;
    owner constant name := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'punctual.audit_log'::regclass);
    mine constant boolean := pg_has_role(owner, CASE WHEN latest THEN 'SET' ELSE 'MEMBER' END);
BEGIN
    IF NOT mine THEN
        EXECUTE format('GRANT %I TO %I', owner, current_user) || CASE WHEN latest THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
    END IF;
    ALTER TABLE punctual.audit_log DROP CONSTRAINT audit_action_is_known, ADD CONSTRAINT audit_action_is_known CHECK (action IN ('job.create', 'job.update', 'job.pause', 'job.resume', 'job.delete', 'job.backfill', 'run.trigger', 'run.cancel',
        'dead_letter.replay', 'dead_letter.resolve', 'operation.create', 'operation.cancel', 'api_key.create', 'api_key.revoke', 'tenant.create', 'tenant.update', 'tenant.delete',
        'secret.put', 'secret.delete', 'secret.rotate', 'signing_secret.create', 'signing_secret.delete',
        'deployment.freeze', 'deployment.unfreeze', 'deployment.adopt', 'tenant.freeze', 'tenant.unfreeze')) NOT VALID;
    IF NOT mine THEN
        EXECUTE format('REVOKE %I FROM %I', owner, current_user);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION punctual.system_identifier() RETURNS text
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
BEGIN
    RETURN (SELECT system_identifier::text FROM pg_catalog.pg_control_system());
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        RETURN '';
END
$$;
COMMENT ON FUNCTION punctual.system_identifier() IS 'System identifier of this Postgres; empty where it is not told, as on some hosted ones: then the name of the database alone tells a copy.';

CREATE FUNCTION punctual.is_copy(database_name text, system_identifier text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    here text;
BEGIN
    IF database_name = '' OR database_name <> current_database() THEN
        RETURN database_name <> '';
    END IF;
    here := punctual.system_identifier();
    RETURN system_identifier <> '' AND here <> '' AND here <> system_identifier;
END
$$;
COMMENT ON FUNCTION punctual.is_copy(text, text) IS 'Whether this database is another one than that of a name and system identifier: a restored dump, a clone, an upgraded server. A promoted standby is not.';

CREATE FUNCTION punctual.frozen_since(tenant integer) RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT least((SELECT d.frozen_at FROM punctual.deployment d), (SELECT t.frozen_at FROM punctual.tenants t WHERE t.id = $1)) $$;
COMMENT ON FUNCTION punctual.frozen_since(integer) IS 'Since when nothing of a tenant (tenants.id) is claimed, because it or the deployment is frozen; null: neither is.';
-- +goose StatementEnd

CREATE OR REPLACE VIEW punctual.overdue AS
WITH queues AS (SELECT id, name, punctual.is_served(name) AS served FROM punctual.queues)
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for, s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue,
       CASE WHEN t.frozen_at IS NOT NULL OR (SELECT d.frozen_at FROM punctual.deployment d) IS NOT NULL THEN 'frozen'
            ELSE punctual.waits_for(q.served, q.name, NULL, NULL, punctual.held_by(u.held_by, u.held_at), s.next_run_at) END AS held_by, NULL::timestamptz AS held_until
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN queues q ON q.id = s.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = s.tenant
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', r.scheduled_for, r.due_at, now() - r.due_at, q.name,
       CASE WHEN t.frozen_at IS NOT NULL OR (SELECT d.frozen_at FROM punctual.deployment d) IS NOT NULL THEN 'frozen'
            ELSE punctual.waits_for(q.served, q.name, y.held_by, g.active_run, punctual.held_by(u.held_by, u.held_at), y.due_at) END, CASE WHEN y.held_by IS NOT NULL THEN y.held_until END
FROM punctual.ready y JOIN punctual.runs r ON r.id = y.run_id AND r.accepted_at IS NULL LEFT JOIN punctual.jobs j ON j.id = y.job_id
JOIN punctual.tenants t ON t.id = y.tenant JOIN queues q ON q.id = y.lane / 4
LEFT JOIN punctual.exclusive g ON g.job_id = y.job_id AND g.active_run <> y.run_id
LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
WHERE y.due_at <= now() OR y.held_by IS NOT NULL OR g.active_run IS NOT NULL;
COMMENT ON COLUMN punctual.overdue.held_by    IS 'What it waits for: frozen (nothing of the deployment or its tenant is claimed), breaker HOST (the host cannot be reached), hanging HOST or PATH (its requests time out), gate (another run of the job is active), limit NAME (of its tenant), slots (all worker slots are taken), or that no live replica serves its queue; null: nothing, a replica is about to take it.';

-- +goose Down
SET LOCAL lock_timeout = '500ms';

CREATE OR REPLACE VIEW punctual.overdue AS
WITH queues AS (SELECT id, name, punctual.is_served(name) AS served FROM punctual.queues)
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for, s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue,
       punctual.waits_for(q.served, q.name, NULL, NULL, punctual.held_by(u.held_by, u.held_at), s.next_run_at) AS held_by, NULL::timestamptz AS held_until
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN queues q ON q.id = s.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = s.tenant
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', r.scheduled_for, r.due_at, now() - r.due_at, q.name,
       punctual.waits_for(q.served, q.name, y.held_by, g.active_run, punctual.held_by(u.held_by, u.held_at), y.due_at), CASE WHEN y.held_by IS NOT NULL THEN y.held_until END
FROM punctual.ready y JOIN punctual.runs r ON r.id = y.run_id AND r.accepted_at IS NULL LEFT JOIN punctual.jobs j ON j.id = y.job_id
JOIN punctual.tenants t ON t.id = y.tenant JOIN queues q ON q.id = y.lane / 4
LEFT JOIN punctual.exclusive g ON g.job_id = y.job_id AND g.active_run <> y.run_id
LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
WHERE y.due_at <= now() OR y.held_by IS NOT NULL OR g.active_run IS NOT NULL;
COMMENT ON COLUMN punctual.overdue.held_by    IS 'What it waits for: breaker HOST (the host cannot be reached), hanging HOST or PATH (its requests time out), gate (another run of the job is active), limit NAME (of its tenant), slots (all worker slots are taken), or that no live replica serves its queue; null: nothing, a replica is about to take it.';
-- +goose StatementBegin
DROP FUNCTION punctual.frozen_since(integer), punctual.is_copy(text, text), punctual.system_identifier();
DROP INDEX punctual.tenants_frozen, punctual.tenants_with_limits;
ALTER TABLE punctual.tenants DROP COLUMN frozen_note, DROP COLUMN frozen_by, DROP COLUMN frozen_at;
CREATE INDEX tenants_with_limits ON punctual.tenants (id) WHERE max_concurrent_runs IS NOT NULL OR max_runs_per_second IS NOT NULL;
ALTER TABLE punctual.deployment DROP COLUMN frozen_reason, DROP COLUMN frozen_note, DROP COLUMN frozen_by, DROP COLUMN frozen_at, DROP COLUMN system_identifier, DROP COLUMN database_name;
-- +goose StatementEnd

-- +goose StatementBegin
-- The log belongs to a role that nobody is, as which it is altered.
DO $$
DECLARE
    latest constant boolean := current_setting('server_version_num')::integer >= 160000;
    owner constant name := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'punctual.audit_log'::regclass);
    mine constant boolean := pg_has_role(owner, CASE WHEN latest THEN 'SET' ELSE 'MEMBER' END);
BEGIN
    IF NOT mine THEN
        EXECUTE format('GRANT %I TO %I', owner, current_user) || CASE WHEN latest THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
    END IF;
    ALTER TABLE punctual.audit_log DROP CONSTRAINT audit_action_is_known, ADD CONSTRAINT audit_action_is_known CHECK (action IN ('job.create', 'job.update', 'job.pause', 'job.resume', 'job.delete', 'job.backfill', 'run.trigger', 'run.cancel',
        'dead_letter.replay', 'dead_letter.resolve', 'operation.create', 'operation.cancel', 'api_key.create', 'api_key.revoke', 'tenant.create', 'tenant.update', 'tenant.delete',
        'secret.put', 'secret.delete', 'secret.rotate', 'signing_secret.create', 'signing_secret.delete')) NOT VALID;
    IF NOT mine THEN
        EXECUTE format('REVOKE %I FROM %I', owner, current_user);
    END IF;
END
$$;
-- +goose StatementEnd
