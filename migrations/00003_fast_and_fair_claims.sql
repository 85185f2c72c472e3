-- Claims: cheap for Postgres, and fair among tenants.

-- +goose Up

-- As in the migration before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- The claim of a job's last slot writes the row of schedules anyway. To write the job as well, with its state in the
-- predicates of its indexes, took as much of Postgres's time as all else of a one-shot together.
ALTER TABLE punctual.schedules ADD COLUMN completed_at timestamptz;
CREATE INDEX schedules_completed ON punctual.schedules (completed_at) WHERE completed_at IS NOT NULL;
COMMENT ON COLUMN punctual.schedules.completed_at IS 'When the last slot was claimed; null where there never was one. While scheduled_for is set it says nothing: binaries of schema 2 do not clear it.';

-- When more is due than a claim can take, the slots are shared out among the tenants that wait.
ALTER TABLE punctual.tenants ADD COLUMN weight smallint NOT NULL DEFAULT 1, ADD CONSTRAINT tenant_weight_is_1_to_1000 CHECK (weight BETWEEN 1 AND 1000);
CREATE INDEX ready_due_by_tenant ON punctual.ready (lane, tenant, due_at);
-- Where all rows belong to one tenant the statistics say that a tenant narrows nothing down, and a second tenant's few due
-- rows would be looked for in the index without the tenant, among all that the first has due.
ALTER TABLE punctual.schedules ALTER COLUMN tenant SET (n_distinct = 1000);
ALTER TABLE punctual.ready ALTER COLUMN tenant SET (n_distinct = 1000);
COMMENT ON COLUMN punctual.tenants.weight IS 'Share of the worker slots while several tenants wait for them: with twice the weight of another, twice as many. 1 to 1000.';

-- +goose StatementBegin
CREATE FUNCTION punctual.job_state(state text, scheduled_for timestamptz, completed_at timestamptz) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN state = 'active' AND scheduled_for IS NULL AND completed_at IS NOT NULL THEN 'completed' ELSE state END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION punctual.job_state(text, timestamptz, timestamptz) IS 'State of a job from jobs.state and the scheduled_for and completed_at of its row in schedules: active, paused, completed or deleted.';
COMMENT ON COLUMN punctual.jobs.state        IS 'active, paused, completed (no slot is left) or deleted (kept for its history). An active job whose schedule has a completed_at and no scheduled_for is completed too, and keeps its name until another job wants it: see job_state().';
COMMENT ON COLUMN punctual.jobs.completed_at IS 'When its last slot was claimed, of a job that is completed by its state here; otherwise see schedules.completed_at.';

-- +goose StatementBegin
CREATE OR REPLACE VIEW punctual.job_status AS
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
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
UPDATE punctual.jobs j SET state = 'completed', completed_at = s.completed_at
FROM punctual.schedules s WHERE s.job_id = j.id AND j.state = 'active' AND s.completed_at IS NOT NULL AND s.scheduled_for IS NULL;
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
DROP FUNCTION punctual.job_state(text, timestamptz, timestamptz);
ALTER TABLE punctual.schedules DROP COLUMN completed_at;
DROP INDEX punctual.ready_due_by_tenant;
ALTER TABLE punctual.tenants DROP COLUMN weight;
ALTER TABLE punctual.schedules ALTER COLUMN tenant RESET (n_distinct);
ALTER TABLE punctual.ready ALTER COLUMN tenant RESET (n_distinct);
COMMENT ON COLUMN punctual.jobs.state        IS 'active, paused, completed (no slot is left) or deleted (kept for its history).';
COMMENT ON COLUMN punctual.jobs.completed_at IS 'When its last slot was claimed.';
-- +goose StatementEnd
