-- What is kept for a time goes as fast as it comes; pauses end when they say; lists of runs cost what their page costs.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- By what old rows are found. Versions are found by what came after them, so that a job which is written once, as a
-- one-shot is, has no entry.
CREATE INDEX job_versions_later ON punctual.job_versions (valid_from, job_id) WHERE version > 1;
CREATE INDEX dead_letters_resolved ON punctual.dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX operations_ended ON punctual.operations (finished_at) WHERE finished_at IS NOT NULL;

-- Lists of runs: what is asked for and then the id, so that a page is read as it is shown. Nothing here changes when a run
-- succeeds, so that this remains a HOT update; and but for the first, a run that succeeds on time enters none of them.
CREATE INDEX runs_by_tenant ON punctual.runs (tenant, id);
CREATE INDEX runs_by_reason ON punctual.runs (tenant, reason, id) WHERE reason IS NOT NULL;
CREATE INDEX runs_by_trigger ON punctual.runs (tenant, trigger, id) WHERE trigger <> 'schedule';
CREATE INDEX runs_late ON punctual.runs (tenant, id) WHERE late;
CREATE INDEX ready_by_tenant ON punctual.ready (tenant, run_id);

COMMENT ON TABLE punctual.job_versions IS 'Every definition a job had, and every pause, resume and end: immutable, one row per change. One that has ceased to hold goes when it is older than the runs that are kept and none of them names it.';
COMMENT ON TABLE punctual.dead_letters IS 'Runs that exhausted their attempts, with what a replay needs, until somebody resolves them; resolved ones are kept as long as failures. Outlives the run''s partition.';
COMMENT ON TABLE punctual.operations   IS 'Work on many dead letters or past slots. Any replica does the next batch of a running one, in a transaction with the progress it makes. One that has ended is kept as long as failures.';

-- A pause is over when it says, although no replica has come yet to write that.
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
WHERE y.due_at <= now() OR y.held_by IS NOT NULL OR g.active_run IS NOT NULL
UNION ALL
SELECT t.name, j.name, j.id, NULL, 'slot', s.scheduled_for, greatest(s.next_run_at, j.paused_until), now() - greatest(s.next_run_at, j.paused_until), q.name,
       CASE WHEN NOT q.served THEN punctual.waits_for(false, q.name, NULL, NULL, NULL, j.paused_until) END, NULL
FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id JOIN punctual.tenants t ON t.id = j.tenant JOIN queues q ON q.id = s.lane / 4
WHERE j.state = 'paused' AND j.paused_until <= now() AND s.next_run_at <= now();
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits: slots not claimed yet, jobs whose pause has run out and that nobody has resumed yet, and runs in ready. When all is well it is empty, or milliseconds old.';
CREATE OR REPLACE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id, punctual.job_state(CASE WHEN j.state = 'paused' AND j.paused_until <= now() THEN 'active' ELSE j.state END, s.scheduled_for, s.completed_at) AS state, j.kind, q.name AS queue, punctual.priority_name(s.lane) AS priority, j.version,
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
COMMENT ON COLUMN punctual.jobs.paused_until IS 'When it resumes by itself, from that instant on; null: only when asked to.';

-- +goose Down
SET LOCAL lock_timeout = '500ms';

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
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits: slots not claimed yet, and runs in ready. When all is well it is empty, or milliseconds old.';
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
COMMENT ON COLUMN punctual.jobs.paused_until IS 'When it resumes by itself; null: only when asked to.';


DROP INDEX punctual.ready_by_tenant, punctual.runs_late, punctual.runs_by_trigger, punctual.runs_by_reason, punctual.runs_by_tenant;
DROP INDEX punctual.operations_ended, punctual.dead_letters_resolved, punctual.job_versions_later;
COMMENT ON TABLE punctual.job_versions IS 'Every definition a job ever had, and every pause, resume and end: immutable, one row per change.';
COMMENT ON TABLE punctual.dead_letters IS 'Runs that exhausted their attempts, with what a replay needs, until somebody resolves them. Outlives the run''s partition.';
COMMENT ON TABLE punctual.operations   IS 'Work on many dead letters or past slots. Any replica does the next batch of a running one, in a transaction with the progress it makes.';
