-- Work that is completed by callback, notices to the URLs of a job, backfills.

-- +goose Up

-- Claims and finishes hold some of these tables and are about to use others. So a lock that is not to be had soon is
-- given up, before anybody is a victim of a deadlock or a queue forms behind it; the migration is tried again then.
SET LOCAL lock_timeout = '500ms';

-- Two words more in the closed lists of runs: the trigger notify, the reason failed. Not validated, so that the
-- tables are not read under their lock: what is there satisfied the narrower list. Days that are detached, because
-- their removal has begun, are changed too: they may be attached again.
-- +goose StatementBegin
DO $$
DECLARE
    parent text;
    target regclass;
    changes constant jsonb := jsonb_build_object(
        'runs', $c$DROP CONSTRAINT run_trigger_is_known, DROP CONSTRAINT run_reason_is_known, ADD COLUMN accepted_at timestamptz,
            ADD CONSTRAINT run_trigger_is_known CHECK (trigger IN ('schedule', 'catchup', 'manual', 'event', 'backfill', 'replay', 'notify', 'step')) NOT VALID,
            ADD CONSTRAINT run_reason_is_known CHECK (reason IN ('missed', 'paused', 'overlap', 'replaced', 'expired', 'limit', 'timeout', 'connect', 'tls', 'blocked_address',
                'http_4xx', 'http_5xx', 'redirect', 'gone', 'failed', 'lost', 'poison', 'upstream_failed', 'cancelled_by_user', 'job_deleted')) NOT VALID$c$,
        'run_data', 'ADD COLUMN progress json, ADD COLUMN progress_at timestamptz, ADD COLUMN notify_url text');
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'run_data'] LOOP
        FOR target IN
            SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace
               AND (c.relname = parent OR (c.relkind = 'r' AND c.relname ~ ('^' || parent || '_\d{8}') AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)))
        LOOP
            EXECUTE format('ALTER TABLE %s %s', target, changes ->> parent);
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON COLUMN punctual.runs.trigger         IS 'What made it: schedule, catchup, manual, event, backfill, replay, notify or step.';
COMMENT ON COLUMN punctual.runs.next_attempt_at IS 'While retrying, or pending because the circuit breaker of its target is open: when the next attempt may start.';
COMMENT ON COLUMN punctual.runs.accepted_at     IS 'With completion callback: when the target answered the latest attempt with 202; from then on no replica holds the run. Null: it did not.';
COMMENT ON COLUMN punctual.run_data.progress    IS 'With completion callback: the last progress that the target reported; the next attempt may read it.';
COMMENT ON COLUMN punctual.run_data.progress_at IS 'When it was reported.';
COMMENT ON COLUMN punctual.run_data.notify_url  IS 'On a notice, and on its replays: where it goes in place of the job''s target.';

ALTER TABLE punctual.dead_letters ADD COLUMN notify_url text;
COMMENT ON COLUMN punctual.dead_letters.notify_url IS 'Of a notice that could not be delivered: where it was to go.';

ALTER TABLE punctual.deployment ADD COLUMN timeline text NOT NULL DEFAULT '';
COMMENT ON COLUMN punctual.deployment.timeline IS 'The timeline of Postgres that fencing tokens were last given on; on another one, after a failover, the sequence is raised first.';

ALTER TABLE punctual.deployment ADD COLUMN back_at timestamptz NOT NULL DEFAULT '-infinity';
COMMENT ON COLUMN punctual.deployment.back_at IS 'When a replica last found that none had renewed for a while, because they or the database were away: a target could not be heard before.';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TABLE punctual.run_token_key (
    singleton  boolean PRIMARY KEY DEFAULT true,
    key        bytea NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    CONSTRAINT run_token_key_has_one_row CHECK (singleton),
    CONSTRAINT run_token_key_is_long CHECK (length(key) >= 32)
);
INSERT INTO punctual.run_token_key DEFAULT VALUES;
COMMENT ON TABLE  punctual.run_token_key           IS 'What run tokens are made with: whoever can read it can complete any run that waits for a callback. Exactly one row.';
COMMENT ON COLUMN punctual.run_token_key.singleton IS 'Always true: keeps the table at one row.';
COMMENT ON COLUMN punctual.run_token_key.key       IS 'Key of the HMAC-SHA-256 in each token; 244 random bits.';

CREATE TABLE punctual.notices (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         uuid NOT NULL,
    tenant         integer NOT NULL,
    job_version    integer NOT NULL,
    event          text NOT NULL,
    run_id         uuid NOT NULL,
    scheduled_for  timestamptz NOT NULL,
    slots          integer,
    reason         text,
    error          text,
    happened_at    timestamptz NOT NULL DEFAULT now(),
    tell_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT notice_event_is_known CHECK (event IN ('dead', 'missed', 'late', 'recovered'))
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX notices_by_job ON punctual.notices (job_id, id);
CREATE INDEX notices_due ON punctual.notices (tell_at);
COMMENT ON TABLE  punctual.notices               IS 'What a job''s notify URLs have not been told yet. A row goes when the run that tells it is made.';
COMMENT ON COLUMN punctual.notices.id            IS 'Order of writing.';
COMMENT ON COLUMN punctual.notices.job_id        IS 'The job.';
COMMENT ON COLUMN punctual.notices.tenant        IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.notices.job_version   IS 'Version of the job under which it happened.';
COMMENT ON COLUMN punctual.notices.event         IS 'dead, missed, late or recovered.';
COMMENT ON COLUMN punctual.notices.run_id        IS 'The run it is about; for missed, the recorded skip.';
COMMENT ON COLUMN punctual.notices.scheduled_for IS 'Its slot; for missed, the last one.';
COMMENT ON COLUMN punctual.notices.slots         IS 'For missed: how many slots; null above 1,000.';
COMMENT ON COLUMN punctual.notices.reason        IS 'For dead: why its last attempt failed.';
COMMENT ON COLUMN punctual.notices.error         IS 'For dead: its last error.';
COMMENT ON COLUMN punctual.notices.happened_at   IS 'When it happened; of a run that ended, when it did.';
COMMENT ON COLUMN punctual.notices.tell_at       IS 'When to look whether it may be told; notified.sent_at decides.';

CREATE TABLE punctual.notified (
    job_id   uuid PRIMARY KEY REFERENCES punctual.jobs ON DELETE CASCADE,
    failing  boolean NOT NULL DEFAULT false,
    sent_at  timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.notified         IS 'What was told about each job that has notify URLs; no row: nothing yet.';
COMMENT ON COLUMN punctual.notified.job_id  IS 'The job.';
COMMENT ON COLUMN punctual.notified.failing IS 'A run has died since the last one that succeeded.';
COMMENT ON COLUMN punctual.notified.sent_at IS 'When its URLs were last told of something: what happens within 5 minutes is told together.';
-- +goose StatementEnd

-- +goose StatementBegin
ALTER TABLE punctual.operations DROP CONSTRAINT operation_kind_is_replay_or_resolve,
    ADD CONSTRAINT operation_kind_is_replay_resolve_or_backfill CHECK (kind IN ('replay', 'resolve', 'backfill')),
    ADD COLUMN job_id uuid,
    ADD COLUMN rerun boolean NOT NULL DEFAULT false,
    ADD COLUMN next_slot timestamptz,
    ADD COLUMN last_slot timestamptz,
    ADD CONSTRAINT backfill_has_a_job_and_its_last_slot CHECK (kind <> 'backfill' OR (job_id IS NOT NULL AND last_slot IS NOT NULL));
COMMENT ON TABLE  punctual.operations           IS 'Work on many dead letters or past slots. Any replica does the next batch of a running one, in a transaction with the progress it makes.';
COMMENT ON COLUMN punctual.operations.kind      IS 'replay, resolve or backfill.';
COMMENT ON COLUMN punctual.operations.matched   IS 'How many dead letters it selected when it was made, which are marked and no others are touched; or how many slots.';
COMMENT ON COLUMN punctual.operations.done      IS 'How many of them have been replayed or resolved; or how many slots became runs or had them already.';
COMMENT ON COLUMN punctual.operations.job_id    IS 'Of a backfill: the job.';
COMMENT ON COLUMN punctual.operations.rerun     IS 'Of a backfill: slots that have a run get another.';
COMMENT ON COLUMN punctual.operations.next_slot IS 'Of a backfill: the slot its next batch begins with; null when none is left.';
COMMENT ON COLUMN punctual.operations.last_slot IS 'Of a backfill: the last slot it is about.';

-- A job's newest run is the newest that its schedule or somebody made; a notice, and a replay of one, is about it.
CREATE OR REPLACE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id, j.state, j.kind, q.name AS queue, punctual.priority_name(s.lane) AS priority, j.version,
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

-- Roles belong to the cluster, and the first migration may not have been allowed to make this one.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.notices, punctual.notified TO punctual_reader;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id, j.state, j.kind, q.name AS queue, punctual.priority_name(s.lane) AS priority, j.version,
       v.definition -> 'schedule' AS schedule, v.definition #>> '{target,url}' AS url,
       CASE WHEN s.enabled THEN s.next_run_at END AS next_run_at, CASE WHEN s.enabled THEN s.scheduled_for END AS next_scheduled_for,
       r.id AS last_run_id, r.status AS last_status, r.reason AS last_reason, r.scheduled_for AS last_scheduled_for, r.finished_at AS last_finished_at,
       j.labels, j.paused_at, j.paused_until, j.pause_note, j.created_at, j.updated_at
FROM punctual.jobs j
JOIN punctual.tenants t ON t.id = j.tenant
JOIN punctual.queues q ON q.id = j.queue
JOIN punctual.schedules s ON s.job_id = j.id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
LEFT JOIN LATERAL (SELECT id, status, reason, scheduled_for, finished_at FROM punctual.runs WHERE job_id = j.id ORDER BY id DESC LIMIT 1) r ON true
WHERE j.state <> 'deleted';
DROP TABLE punctual.notified, punctual.notices, punctual.run_token_key;
DELETE FROM punctual.operations WHERE kind = 'backfill';
ALTER TABLE punctual.operations DROP CONSTRAINT backfill_has_a_job_and_its_last_slot, DROP CONSTRAINT operation_kind_is_replay_resolve_or_backfill,
    ADD CONSTRAINT operation_kind_is_replay_or_resolve CHECK (kind IN ('replay', 'resolve')),
    DROP COLUMN job_id, DROP COLUMN rerun, DROP COLUMN next_slot, DROP COLUMN last_slot;
ALTER TABLE punctual.deployment DROP COLUMN back_at, DROP COLUMN timeline;
ALTER TABLE punctual.dead_letters DROP COLUMN notify_url;
ALTER TABLE punctual.run_data DROP COLUMN progress, DROP COLUMN progress_at, DROP COLUMN notify_url;
ALTER TABLE punctual.runs DROP COLUMN accepted_at;
-- +goose StatementEnd
