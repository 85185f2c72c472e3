-- Notices that reach a person: of the first failure, of jobs without success, in the forms of those who are told; and a
-- default per tenant.

-- +goose Up

-- As in the second migration: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

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

-- +goose Down
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
