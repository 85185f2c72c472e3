-- Gates: what waits at one is not looked at until it is freed, and a job's policy holds from the next slot on.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

ALTER TABLE punctual.ready ADD COLUMN at_gate boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN punctual.ready.at_gate IS 'It waits at its job''s gate, and is due when that is freed; due_at is the time to look at it whatever happens.';
-- Of the runs that wait at one gate the oldest slot comes first, as run ids begin with it.
CREATE INDEX ready_at_gate ON punctual.ready (job_id, run_id) WHERE at_gate;

ALTER TABLE punctual.exclusive ADD COLUMN gated boolean NOT NULL DEFAULT true, ADD COLUMN earlier_runs uuid[];
COMMENT ON TABLE  punctual.exclusive              IS 'The gate of each job whose concurrency_policy is or was not allow: a permanent row, locked before a run of the job is started or ended.';
COMMENT ON COLUMN punctual.exclusive.active_run   IS 'Its active run, from when it is written to its end; one that is final or missing counts as none.';
COMMENT ON COLUMN punctual.exclusive.gated        IS 'Whether its concurrency_policy keeps runs from overlapping now.';
COMMENT ON COLUMN punctual.exclusive.earlier_runs IS 'The runs that were in flight when the policy ceased to be allow: active, too, until they end.';
-- Normally empty: replicas look into it with every heartbeat.
CREATE INDEX exclusive_with_earlier_runs ON punctual.exclusive (job_id) WHERE earlier_runs IS NOT NULL;

-- Gates of jobs whose runs may overlap by now.
UPDATE punctual.exclusive e SET gated = false FROM punctual.jobs j JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
WHERE j.id = e.job_id AND coalesce(v.definition ->> 'concurrency_policy', CASE v.definition ->> 'completion' WHEN 'async' THEN 'forbid' ELSE 'allow' END) = 'allow';

-- +goose StatementBegin
-- Leases are nobody's, so no tenant sees them. A look at each run that is in flight: no more than the worker slots there are.
CREATE FUNCTION punctual.runs_being_sent(job uuid) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT r.id FROM punctual.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS u(id) JOIN punctual.runs r ON r.id = u.id
    WHERE r.job_id = job AND r.status = 'running' AND r.trigger <> 'notify' AND r.tenant = coalesce(punctual.acting_tenant(), r.tenant)
$$;
COMMENT ON FUNCTION punctual.runs_being_sent(uuid) IS 'The runs of a job that replicas are sending at the moment.';
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '500ms';

DROP FUNCTION punctual.runs_being_sent(uuid);
DROP INDEX punctual.exclusive_with_earlier_runs;
ALTER TABLE punctual.exclusive DROP COLUMN gated, DROP COLUMN earlier_runs;
COMMENT ON TABLE  punctual.exclusive            IS 'The gate of each job whose concurrency_policy is not allow: a permanent row, locked before a run of the job is started or ended.';
COMMENT ON COLUMN punctual.exclusive.active_run IS 'Its active run; one that is final or missing counts as none.';
-- Nobody sets them due any more when a gate is freed.
UPDATE punctual.ready SET due_at = now() WHERE at_gate;
DROP INDEX punctual.ready_at_gate;
ALTER TABLE punctual.ready DROP COLUMN at_gate;
