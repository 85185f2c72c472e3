-- Trust: what holds runs back, who is told, what a run's page shows, freezing, and who may read the metrics.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- What holds runs back: hosts that cannot be reached, and requests that hang.

-- Two words more in the closed list: unreachable and silent. Not validated, and for days that are detached too, as in
-- the migration that added failed.
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
            ADD CONSTRAINT run_reason_is_known CHECK (reason IN ('missed', 'paused', 'overlap', 'replaced', 'expired', 'limit', 'auth', 'timeout', 'connect', 'tls', 'unreachable',
                'blocked_address', 'http_4xx', 'http_5xx', 'redirect', 'gone', 'failed', 'lost', 'silent', 'poison', 'upstream_failed', 'cancelled_by_user', 'job_deleted')) NOT VALID$c$, target);
    END LOOP;
END
$$;
-- +goose StatementEnd

ALTER TABLE punctual.ready ADD COLUMN held_by text, ADD COLUMN held_since timestamptz, ADD COLUMN held_until timestamptz,
    ADD CONSTRAINT held_run_has_its_instants CHECK (held_by IS NULL OR held_since IS NOT NULL AND held_until IS NOT NULL);
-- Runs that wait for one host, the longest unsent first.
CREATE INDEX ready_held ON punctual.ready (tenant, held_by, held_since) WHERE held_by IS NOT NULL;
COMMENT ON COLUMN punctual.ready.held_by    IS 'What the run waits for, such as "breaker billing.internal:443" or "hanging billing.internal:443/invoices"; null: for a worker slot, or for due_at.';
COMMENT ON COLUMN punctual.ready.held_since IS 'Since when it has waited for that without an attempt.';
COMMENT ON COLUMN punctual.ready.held_until IS 'It waits until then at most, and is dead when its host cannot be reached even then.';

CREATE TABLE punctual.holds (
    replica    uuid NOT NULL REFERENCES punctual.replicas ON DELETE CASCADE,
    tenant     integer NOT NULL REFERENCES punctual.tenants,
    held_by    text NOT NULL,
    state      text NOT NULL,
    host       text NOT NULL,
    path       text NOT NULL,
    failures   integer NOT NULL,
    last_error text NOT NULL,
    since      timestamptz NOT NULL,
    probe_at   timestamptz,
    reset_at   timestamptz,
    PRIMARY KEY (replica, tenant, held_by),
    CONSTRAINT hold_state_is_known CHECK (state IN ('open', 'recovering', 'hanging'))
);
CREATE INDEX holds_of_tenant ON punctual.holds (tenant, held_by);
COMMENT ON TABLE  punctual.holds            IS 'What replicas hold runs back for, each by what it has seen itself. A row goes when its replica holds nothing back for it any more, or is gone.';
COMMENT ON COLUMN punctual.holds.replica    IS 'Who holds runs back: replicas.id.';
COMMENT ON COLUMN punctual.holds.tenant     IS 'Whose runs: tenants.id.';
COMMENT ON COLUMN punctual.holds.held_by    IS 'As in ready.held_by.';
COMMENT ON COLUMN punctual.holds.state      IS 'open: the host cannot be reached. recovering: it can be reached again, and is sent more and more. hanging: its requests time out.';
COMMENT ON COLUMN punctual.holds.host       IS 'Host and port.';
COMMENT ON COLUMN punctual.holds.path       IS 'The path that hangs; empty: the whole host.';
COMMENT ON COLUMN punctual.holds.failures   IS 'How many requests in a row could not be sent, or timed out.';
COMMENT ON COLUMN punctual.holds.last_error IS 'Why the latest of them failed.';
COMMENT ON COLUMN punctual.holds.since      IS 'Since when runs are held back.';
COMMENT ON COLUMN punctual.holds.probe_at   IS 'When the next probe is sent; null: one is under way, or the host is not probed.';
COMMENT ON COLUMN punctual.holds.reset_at   IS 'When somebody asked for a reset, which the replica has not carried out yet.';

-- +goose StatementBegin
-- Not as its caller: tenants see no replicas.
CREATE FUNCTION punctual.is_served(queue text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT EXISTS (SELECT FROM punctual.replicas r WHERE r.queues ? queue AND NOT r.draining AND r.renewed_at > now() - interval '15 s') $$;
-- +goose StatementEnd
COMMENT ON FUNCTION punctual.is_served(text) IS 'Whether a live replica serves the queue.';

-- +goose StatementBegin
CREATE FUNCTION punctual.waits_for(served boolean, queue text, held text, active uuid, limit_of_tenant text, due timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN NOT served THEN 'no live replica serves the queue "' || queue || '"'
                      WHEN held IS NOT NULL THEN held
                      WHEN active IS NOT NULL THEN 'gate'
                      WHEN limit_of_tenant IS NOT NULL THEN 'limit ' || limit_of_tenant
                      WHEN due < now() - interval '5 s' THEN 'slots' END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION punctual.waits_for(boolean, text, text, uuid, text, timestamptz) IS 'What due work waits for, in words; null: nothing, a replica is about to take it.';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.holds TO punctual_reader;
    END IF;
    PERFORM punctual.guard_tenants();
END
$$;
-- +goose StatementEnd

-- Notices that reach a person: of the first failure, of jobs without success, in the forms of those who are told; and a
-- default per tenant.

-- As in the second migration: a lock that is not to be had soon is given up, and the migration is tried again.

-- Days that are detached, because their removal has begun, are changed too: they may be attached again.
-- +goose StatementBegin
DO $$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace
           AND (c.relname = 'run_data' OR (c.relkind = 'r' AND c.relname ~ '^run_data_\d{8}' AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))
    LOOP
        EXECUTE format('ALTER TABLE %s ADD COLUMN notify_secret text', target);
    END LOOP;
END
$$;
COMMENT ON COLUMN punctual.run_data.notify_secret IS 'On a notice whose body is to get a routing key: name of the secret that holds it.';
ALTER TABLE punctual.dead_letters ADD COLUMN notify_secret text;
COMMENT ON COLUMN punctual.dead_letters.notify_secret IS 'Of a notice whose body is to get a routing key: name of the secret that holds it.';

ALTER TABLE punctual.tenants ADD COLUMN notify json;
COMMENT ON COLUMN punctual.tenants.notify IS 'Who is told of what happens to its jobs that do not say so themselves, in the form of a definition''s notify; null: nobody.';

ALTER TABLE punctual.notices
    DROP CONSTRAINT notice_event_is_known,
    ADD CONSTRAINT notice_event_is_known CHECK (event IN ('failing', 'dead', 'missed', 'late', 'stale', 'recovered')),
    ALTER COLUMN run_id DROP NOT NULL,
    ALTER COLUMN scheduled_for DROP NOT NULL,
    ADD CONSTRAINT only_a_stale_job_needs_no_run CHECK ((run_id IS NULL) = (event = 'stale') AND (scheduled_for IS NULL) = (event = 'stale')),
    ADD COLUMN http_status smallint,
    ADD COLUMN response text,
    ADD COLUMN since timestamptz,
    ADD COLUMN failures integer;
COMMENT ON COLUMN punctual.notices.event         IS 'failing, dead, missed, late, stale or recovered.';
COMMENT ON COLUMN punctual.notices.run_id        IS 'The run it is about; for missed, the recorded skip; for stale, null.';
COMMENT ON COLUMN punctual.notices.scheduled_for IS 'Its slot; for missed, the last one; for stale, null.';
COMMENT ON COLUMN punctual.notices.reason        IS 'For failing and dead: why its last attempt failed.';
COMMENT ON COLUMN punctual.notices.error         IS 'For failing and dead: its last error.';
COMMENT ON COLUMN punctual.notices.http_status   IS 'For failing and dead: HTTP status of the last response, if there was one.';
COMMENT ON COLUMN punctual.notices.response      IS 'For failing and dead: start of the last response.';
COMMENT ON COLUMN punctual.notices.since         IS 'For failing and dead: when the first attempt failed since the last success; for stale: the last success, or from when it was counted; for recovered: since when the job was not well.';
COMMENT ON COLUMN punctual.notices.failures      IS 'Failed attempts in a row when it happened.';
COMMENT ON COLUMN punctual.notices.tell_at       IS 'When to look whether it may be told; notified.sent decides.';

ALTER TABLE punctual.notified
    DROP COLUMN failing,
    DROP COLUMN sent_at,
    ADD COLUMN failing_since timestamptz,
    ADD COLUMN failures integer NOT NULL DEFAULT 0,
    ADD COLUMN stale_since timestamptz,
    ADD COLUMN success_at timestamptz,
    ADD COLUMN look_at timestamptz,
    ADD COLUMN sent jsonb NOT NULL DEFAULT '{}',
    ADD CONSTRAINT failing_job_has_failures CHECK ((failing_since IS NULL) = (failures = 0));
ALTER TABLE punctual.notified SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX notified_to_look_at ON punctual.notified (look_at) WHERE look_at IS NOT NULL;
COMMENT ON TABLE  punctual.notified               IS 'How jobs are that somebody is told of, where there is anything to say: a job that is well, of which nothing was told and from which no success is expected in time has no row.';
COMMENT ON COLUMN punctual.notified.failing_since IS 'When the first attempt failed since the last success; null: the job is well.';
COMMENT ON COLUMN punctual.notified.failures      IS 'Failed attempts in a row since then.';
COMMENT ON COLUMN punctual.notified.stale_since   IS 'Since when the job has had no success, once it is stale; null: it is not.';
COMMENT ON COLUMN punctual.notified.success_at    IS 'The success that ended the last trouble.';
COMMENT ON COLUMN punctual.notified.look_at       IS 'When to look whether the job is stale; null: never.';
COMMENT ON COLUMN punctual.notified.sent          IS 'When each event was last told: more of the same within 5 minutes are told together.';

-- Every version of a job that expects success in time has the job looked at: it was created, edited or resumed. Deferred,
-- so that the row is locked last, as those do who finish runs.
CREATE FUNCTION punctual.expect_success() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO punctual.notified AS n (job_id, look_at) SELECT j.id, now() FROM punctual.jobs j WHERE j.id = NEW.job_id
    ON CONFLICT (job_id) DO UPDATE SET look_at = excluded.look_at;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.expect_success() IS 'Has a job looked at that expects a success in time.';
CREATE CONSTRAINT TRIGGER expect_success AFTER INSERT ON punctual.job_versions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state = 'active' AND NEW.definition -> 'expect_success_within' IS NOT NULL) EXECUTE FUNCTION punctual.expect_success();

-- Notices are no runs of their jobs. Those who want to see them ask runs.
CREATE OR REPLACE VIEW punctual.run_history AS
SELECT t.name AS tenant, j.name AS job, r.id, r.trigger, r.scheduled_for, r.status, r.reason, r.late, r.attempt, r.http_status, r.error,
       q.name AS queue, punctual.priority_name(r.lane) AS priority, r.due_at, r.claimed_at, r.started_at, r.finished_at, r.next_attempt_at,
       r.started_at - r.due_at AS lateness, r.finished_at - r.started_at AS duration,
       r.job_version, r.replica, r.blocked_by, r.skipped_first, r.skipped_last, r.skipped_count, r.replay_of, r.parent_run, r.step, r.job_id
FROM punctual.runs r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.jobs j ON j.id = r.job_id
WHERE r.trigger <> 'notify';
COMMENT ON VIEW punctual.run_history IS 'Every run and skip but for notices, with the names of its job, tenant and queue. Narrow it by id or scheduled_for and job_id.';

CREATE OR REPLACE VIEW punctual.failures AS
SELECT t.name AS tenant, d.job_name AS job, d.job_id, d.run_id, d.scheduled_for, d.died_at, d.reason, d.attempts, d.http_status, d.error, d.trigger, d.resolved_at, d.note, d.replayed_as
FROM punctual.dead_letters d JOIN punctual.tenants t ON t.id = d.tenant
WHERE d.trigger <> 'notify';
COMMENT ON VIEW punctual.failures IS 'The dead-letter list but for notices: runs that exhausted their attempts, resolved ones included.';
-- +goose StatementEnd

-- What a run's page shows: responses and results that are kept, reruns; work that is completed async, and targets that fall silent.

-- Days that are detached, because their removal has begun, are changed too: they may be attached again.
-- +goose StatementBegin
DO $$
DECLARE
    parent text;
    target regclass;
    changes constant jsonb := jsonb_build_object(
        'runs', 'ADD COLUMN rerun_of uuid',
        'attempts', 'ADD COLUMN response_headers jsonb, ADD COLUMN response_truncated boolean',
        'run_data', $c$ADD COLUMN result json, ADD COLUMN result_note text, ADD COLUMN response text, ADD COLUMN response_headers jsonb,
            ADD COLUMN response_truncated boolean, ADD COLUMN response_fence bigint$c$);
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
        FOR target IN
            SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace
               AND (c.relname = parent OR (c.relkind = 'r' AND c.relname ~ ('^' || parent || '_\d{8}') AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))
        LOOP
            EXECUTE format('ALTER TABLE %s %s', target, changes ->> parent);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- The word for completion that was "callback" is "async". The last one in the text is meant: a body comes before it.
UPDATE punctual.job_versions SET definition = regexp_replace(definition::text, '^(.*"completion":\s*)"callback"', '\1"async"')::json
WHERE definition ->> 'completion' = 'callback';

COMMENT ON COLUMN punctual.runs.scheduled_for          IS 'The slot: nominal fire time. Of a manual run, when it was asked for; of a replay or rerun, that of the run it repeats.';
COMMENT ON COLUMN punctual.runs.rerun_of               IS 'On a rerun: the run that somebody wanted made again.';
COMMENT ON COLUMN punctual.runs.accepted_at            IS 'With completion async: when the target answered the latest attempt with 202; from then on no replica holds the run. Null: it did not.';
COMMENT ON TABLE  punctual.attempts                    IS 'One row per unsuccessful attempt; a success is on its run, and what is kept of its response in run_data. Append-only, partitioned like runs.';
COMMENT ON COLUMN punctual.attempts.outcome            IS 'failed, timed_out, lost (its replica vanished or its target fell silent), interrupted (its replica was stopped) or cancelled.';
COMMENT ON COLUMN punctual.attempts.response           IS 'Start of the response body, as much as the job''s keep_response says; by default 1 KiB. Secrets read ***.';
COMMENT ON COLUMN punctual.attempts.response_headers   IS 'Headers of the response, those of a closed list, by name in lower case; null: none are kept.';
COMMENT ON COLUMN punctual.attempts.response_truncated IS 'The body was longer than response; null: it was not.';
COMMENT ON TABLE  punctual.run_data                    IS 'What a single run sends in place of what its job says, and what came of it besides its status; only where there is any. Partitioned like runs.';
COMMENT ON COLUMN punctual.run_data.webhook_id         IS 'On a replay, and a rerun with the same keys: the webhook-id of the run that it repeats; null: the run''s id.';
COMMENT ON COLUMN punctual.run_data.idempotency_key    IS 'On a replay, and a rerun with the same keys: the Idempotency-Key of the run that it repeats; null: what follows from the run itself.';
COMMENT ON COLUMN punctual.run_data.progress           IS 'With completion async: the last progress that the target reported; the next attempt may read it.';
COMMENT ON COLUMN punctual.run_data.result             IS 'What the run succeeded with: from a 2xx JSON answer, or reported by its target; null: nothing.';
COMMENT ON COLUMN punctual.run_data.result_note        IS 'Why a result that there was is not kept; null: it is, or there was none.';
COMMENT ON COLUMN punctual.run_data.response           IS 'Of a job with keep_response: start of the response body of the attempt that succeeded, or was accepted last. Secrets read ***.';
COMMENT ON COLUMN punctual.run_data.response_headers   IS 'Headers of that response, as in attempts.';
COMMENT ON COLUMN punctual.run_data.response_truncated IS 'The body of that response was longer; null: it was not.';
COMMENT ON COLUMN punctual.run_data.response_fence     IS 'Fencing token of the attempt that the response is of.';

-- Freezing: nothing is claimed, for all tenants or for one, until somebody says so. And the identity of the database, by
-- which replicas notice that it was restored from a dump.

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
        'deployment.freeze', 'deployment.unfreeze', 'deployment.adopt', 'tenant.freeze', 'tenant.unfreeze', 'breaker.reset')) NOT VALID;
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

DROP VIEW punctual.overdue;
CREATE VIEW punctual.overdue AS
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
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits: slots not claimed yet, and runs in ready. When all is well it is empty, or milliseconds old.';
COMMENT ON COLUMN punctual.overdue.tenant     IS 'Name of the tenant.';
COMMENT ON COLUMN punctual.overdue.job        IS 'Name of the job.';
COMMENT ON COLUMN punctual.overdue.job_id     IS 'Id of the job.';
COMMENT ON COLUMN punctual.overdue.run_id     IS 'Id of the run; null: it is a slot.';
COMMENT ON COLUMN punctual.overdue.scheduled_for IS 'Its slot.';
COMMENT ON COLUMN punctual.overdue.queue      IS 'Name of the queue.';
COMMENT ON COLUMN punctual.overdue.what       IS 'slot: not claimed yet; run: waiting in ready.';
COMMENT ON COLUMN punctual.overdue.due_at     IS 'When it was due.';
COMMENT ON COLUMN punctual.overdue.overdue_by IS 'For how long it has been due.';
COMMENT ON COLUMN punctual.overdue.held_until IS 'Until when it waits for its host at most.';
COMMENT ON COLUMN punctual.overdue.held_by    IS 'What it waits for: frozen (nothing of the deployment or its tenant is claimed), breaker HOST (the host cannot be reached), hanging HOST or PATH (its requests time out), gate (another run of the job is active), limit NAME (of its tenant), slots (all worker slots are taken), or that no live replica serves its queue; null: nothing, a replica is about to take it.';
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.overdue TO punctual_reader;
    END IF;
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id, punctual.job_state(j.state, s.scheduled_for, s.completed_at) AS state, j.kind, q.name AS queue, punctual.priority_name(s.lane) AS priority, j.version,
       v.definition -> 'schedule' AS schedule, v.definition #>> '{target,url}' AS url,
       CASE WHEN s.enabled THEN s.next_run_at END AS next_run_at, CASE WHEN s.enabled THEN s.scheduled_for END AS next_scheduled_for,
       r.id AS last_run_id, r.status AS last_status, r.reason AS last_reason, r.scheduled_for AS last_scheduled_for, r.finished_at AS last_finished_at,
       j.labels, j.paused_at, j.paused_until, j.pause_note, j.created_at, j.updated_at,
       w.runs AS waiting_runs, CASE WHEN w.runs > 0 THEN w.held_by END AS waiting_for
FROM punctual.jobs j
JOIN punctual.tenants t ON t.id = j.tenant
JOIN punctual.queues q ON q.id = j.queue
JOIN punctual.schedules s ON s.job_id = j.id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
LEFT JOIN LATERAL (SELECT n.id, n.status, n.reason, n.scheduled_for, n.finished_at FROM punctual.runs n
    WHERE n.job_id = j.id AND n.trigger <> 'notify'
    ORDER BY n.id DESC LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT count(*) AS runs, (array_agg(o.held_by ORDER BY o.due_at))[1] AS held_by FROM (
    SELECT y.due_at, CASE WHEN punctual.frozen_since(j.tenant) IS NOT NULL THEN 'frozen'
                          ELSE punctual.waits_for(punctual.is_served(q.name), q.name, y.held_by, g.active_run, punctual.held_by(u.held_by, u.held_at), y.due_at) END AS held_by
    FROM punctual.ready y LEFT JOIN punctual.exclusive g ON g.job_id = y.job_id AND g.active_run <> y.run_id LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
    WHERE y.job_id = j.id AND (y.due_at <= now() OR y.held_by IS NOT NULL OR g.active_run IS NOT NULL)) o) w ON true
WHERE j.state <> 'deleted';
COMMENT ON COLUMN punctual.job_status.waiting_runs IS 'Runs that are due and wait.';
COMMENT ON COLUMN punctual.job_status.waiting_for  IS 'What the one waits for that has waited longest, as in overdue.held_by; null: none waits, or it is about to be sent.';

-- A role that reads the metrics and nothing else.

ALTER TABLE punctual.api_keys
    DROP CONSTRAINT api_key_role_is_known,
    ADD CONSTRAINT api_key_role_is_known CHECK (role IN ('metrics', 'viewer', 'submitter', 'editor', 'admin', 'operator'));
COMMENT ON COLUMN punctual.api_keys.role IS 'viewer, submitter, editor, admin or operator: each may also do what those before it may. metrics: reads the metrics of the deployment and nothing else.';

-- +goose Down
SET LOCAL lock_timeout = '500ms';

DROP VIEW punctual.overdue;
DROP VIEW punctual.job_status;

-- No role of before may do so little.
DELETE FROM punctual.api_keys WHERE role = 'metrics';
ALTER TABLE punctual.api_keys
    DROP CONSTRAINT api_key_role_is_known,
    ADD CONSTRAINT api_key_role_is_known CHECK (role IN ('viewer', 'submitter', 'editor', 'admin', 'operator'));
COMMENT ON COLUMN punctual.api_keys.role IS 'viewer, submitter, editor, admin or operator: each may also do what those before it may.';

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

UPDATE punctual.job_versions SET definition = regexp_replace(definition::text, '^(.*"completion":\s*)"async"', '\1"callback"')::json
WHERE definition ->> 'completion' = 'async';
ALTER TABLE punctual.run_data DROP COLUMN result, DROP COLUMN result_note, DROP COLUMN response, DROP COLUMN response_headers, DROP COLUMN response_truncated, DROP COLUMN response_fence;
ALTER TABLE punctual.attempts DROP COLUMN response_headers, DROP COLUMN response_truncated;
ALTER TABLE punctual.runs DROP COLUMN rerun_of;

-- +goose StatementBegin
CREATE OR REPLACE VIEW punctual.failures AS
SELECT t.name AS tenant, d.job_name AS job, d.job_id, d.run_id, d.scheduled_for, d.died_at, d.reason, d.attempts, d.http_status, d.error, d.trigger, d.resolved_at, d.note, d.replayed_as
FROM punctual.dead_letters d JOIN punctual.tenants t ON t.id = d.tenant;
CREATE OR REPLACE VIEW punctual.run_history AS
SELECT t.name AS tenant, j.name AS job, r.id, r.trigger, r.scheduled_for, r.status, r.reason, r.late, r.attempt, r.http_status, r.error,
       q.name AS queue, punctual.priority_name(r.lane) AS priority, r.due_at, r.claimed_at, r.started_at, r.finished_at, r.next_attempt_at,
       r.started_at - r.due_at AS lateness, r.finished_at - r.started_at AS duration,
       r.job_version, r.replica, r.blocked_by, r.skipped_first, r.skipped_last, r.skipped_count, r.replay_of, r.parent_run, r.step, r.job_id
FROM punctual.runs r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.jobs j ON j.id = r.job_id;
DROP TRIGGER expect_success ON punctual.job_versions;
DROP FUNCTION punctual.expect_success();
ALTER TABLE punctual.notified
    DROP CONSTRAINT failing_job_has_failures, DROP COLUMN failing_since, DROP COLUMN failures, DROP COLUMN stale_since, DROP COLUMN success_at,
    DROP COLUMN look_at, DROP COLUMN sent,
    ADD COLUMN failing boolean NOT NULL DEFAULT false, ADD COLUMN sent_at timestamptz NOT NULL DEFAULT '-infinity';
DELETE FROM punctual.notices WHERE event IN ('failing', 'stale');
ALTER TABLE punctual.notices
    DROP CONSTRAINT notice_event_is_known, ADD CONSTRAINT notice_event_is_known CHECK (event IN ('dead', 'missed', 'late', 'recovered')),
    DROP CONSTRAINT only_a_stale_job_needs_no_run, ALTER COLUMN run_id SET NOT NULL, ALTER COLUMN scheduled_for SET NOT NULL,
    DROP COLUMN http_status, DROP COLUMN response, DROP COLUMN since, DROP COLUMN failures;
ALTER TABLE punctual.tenants DROP COLUMN notify;
ALTER TABLE punctual.dead_letters DROP COLUMN notify_secret;
ALTER TABLE punctual.run_data DROP COLUMN notify_secret;
-- +goose StatementEnd

DROP FUNCTION punctual.waits_for(boolean, text, text, uuid, text, timestamptz), punctual.is_served(text);
CREATE VIEW punctual.overdue AS
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for, s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue,
       punctual.held_by(u.held_by, u.held_at) AS held_by
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN punctual.queues q ON q.id = s.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = s.tenant
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', NULL, y.due_at, now() - y.due_at, q.name, punctual.held_by(u.held_by, u.held_at)
FROM punctual.ready y LEFT JOIN punctual.jobs j ON j.id = y.job_id JOIN punctual.tenants t ON t.id = y.tenant JOIN punctual.queues q ON q.id = y.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
WHERE y.due_at <= now();
DROP TABLE punctual.holds;
DROP INDEX punctual.ready_held;
ALTER TABLE punctual.ready DROP CONSTRAINT held_run_has_its_instants, DROP COLUMN held_by, DROP COLUMN held_since, DROP COLUMN held_until;
CREATE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id, punctual.job_state(j.state, s.scheduled_for, s.completed_at) AS state, j.kind, q.name AS queue, punctual.priority_name(s.lane) AS priority, j.version,
       v.definition -> 'schedule' AS schedule, v.definition #>> '{target,url}' AS url,
       CASE WHEN s.enabled THEN s.next_run_at END AS next_run_at, CASE WHEN s.enabled THEN s.scheduled_for END AS next_scheduled_for,
       r.id AS last_run_id, r.status AS last_status, r.reason AS last_reason, r.scheduled_for AS last_scheduled_for, r.finished_at AS last_finished_at,
       j.labels, j.paused_at, j.paused_until, j.pause_note, j.created_at, j.updated_at
FROM punctual.jobs j
JOIN punctual.tenants t ON t.id = j.tenant
JOIN punctual.queues q ON q.id = j.queue
JOIN punctual.schedules s ON s.job_id = j.id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
LEFT JOIN LATERAL (SELECT n.id, n.status, n.reason, n.scheduled_for, n.finished_at FROM punctual.runs n
    WHERE n.job_id = j.id AND n.trigger <> 'notify' AND (n.trigger <> 'replay' OR (SELECT d.notify_url FROM punctual.run_data d WHERE d.run_id = n.id) IS NULL)
    ORDER BY n.id DESC LIMIT 1) r ON true
WHERE j.state <> 'deleted';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.overdue, punctual.job_status TO punctual_reader;
    END IF;
END
$$;
-- +goose StatementEnd
