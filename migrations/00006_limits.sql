-- What a tenant may have going on, over all replicas.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

-- Neither has an index on what changes while runs start, so that the updates are HOT.
CREATE TABLE punctual.tenant_usage (
    tenant     integer PRIMARY KEY REFERENCES punctual.tenants,
    starts_at  timestamptz,
    held_by    text,
    held_since timestamptz,
    held_at    timestamptz,
    CONSTRAINT usage_held_by_is_a_limit CHECK (held_by IN ('max_concurrent_runs', 'max_runs_per_second')),
    CONSTRAINT usage_held_back_has_its_instants CHECK ((held_by IS NULL) = (held_since IS NULL) AND (held_by IS NULL) = (held_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.tenant_usage            IS 'What tenants with limits have used of them. A row that is missing is made when it is needed; its lock is what makes limits exact.';
COMMENT ON COLUMN punctual.tenant_usage.tenant     IS 'Whose: tenants.id.';
COMMENT ON COLUMN punctual.tenant_usage.starts_at  IS 'Until when max_runs_per_second is used up, or how far back not (generic cell rate); null: nothing was started.';
COMMENT ON COLUMN punctual.tenant_usage.held_by    IS 'The limit that its due work last waited for.';
COMMENT ON COLUMN punctual.tenant_usage.held_since IS 'Since when it did.';
COMMENT ON COLUMN punctual.tenant_usage.held_at    IS 'When a replica last noted so; longer ago than 5 s: it does no more.';

CREATE TABLE punctual.allowances (
    tenant   integer NOT NULL REFERENCES punctual.tenants,
    replica  uuid NOT NULL,
    slots    integer NOT NULL,
    wants    integer NOT NULL DEFAULT 0,
    since    timestamptz NOT NULL DEFAULT now(),
    asked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, replica),
    CONSTRAINT allowance_is_not_negative CHECK (slots >= 0 AND wants >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.allowances         IS 'How max_concurrent_runs is shared out among replicas. That of a lost one goes when its claims have gone.';
COMMENT ON COLUMN punctual.allowances.tenant  IS 'Whose runs: tenants.id.';
COMMENT ON COLUMN punctual.allowances.replica IS 'Who may send them.';
COMMENT ON COLUMN punctual.allowances.slots   IS 'How many at once. The sum over all replicas exceeds the limit only after it was lowered, until runs end.';
COMMENT ON COLUMN punctual.allowances.wants   IS 'How many more it had work for when it last asked.';
COMMENT ON COLUMN punctual.allowances.since   IS 'Since when it has had slots or, having none, wanted some.';
COMMENT ON COLUMN punctual.allowances.asked_at IS 'When it last asked.';

-- Apart from the usage: whoever writes jobs holds the row until they are written, and no run is to wait for that.
CREATE TABLE punctual.tenant_jobs (
    tenant integer PRIMARY KEY REFERENCES punctual.tenants,
    jobs   integer,
    CONSTRAINT tenant_jobs_are_not_negative CHECK (jobs >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.tenant_jobs        IS 'How many jobs tenants with max_jobs have. A row that is missing is made when it is needed; its lock is what makes the limit exact.';
COMMENT ON COLUMN punctual.tenant_jobs.tenant IS 'Whose: tenants.id.';
COMMENT ON COLUMN punctual.tenant_jobs.jobs   IS 'At least as many as it has active and paused jobs: creates raise it, and they are counted anew when it reaches max_jobs. Null: to be counted.';

-- Jobs that are written while there is no limit are not counted.
-- +goose StatementBegin
CREATE FUNCTION punctual.count_jobs_anew() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN UPDATE punctual.tenant_jobs SET jobs = NULL WHERE tenant = NEW.id; RETURN NULL; END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION punctual.count_jobs_anew() IS 'Has the jobs of a tenant counted anew after its max_jobs was set or changed.';
CREATE TRIGGER count_jobs_anew AFTER UPDATE OF max_jobs ON punctual.tenants FOR EACH ROW WHEN (OLD.max_jobs IS DISTINCT FROM NEW.max_jobs) EXECUTE FUNCTION punctual.count_jobs_anew();

-- What every heartbeat reads.
CREATE INDEX tenants_with_limits ON punctual.tenants (id) WHERE max_concurrent_runs IS NOT NULL OR max_runs_per_second IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION punctual.held_by(held_by text, held_at timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN held_at > now() - interval '5 s' AND held_at < now() + interval '5 s' THEN held_by END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION punctual.held_by(text, timestamptz) IS 'The limit that a tenant''s due work waits for now, from held_by and held_at of tenant_usage; null: none.';

CREATE OR REPLACE VIEW punctual.overdue AS
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
COMMENT ON COLUMN punctual.overdue.held_by IS 'The limit of its tenant that it waits for: max_concurrent_runs or max_runs_per_second; null: none, a replica will take it.';

-- +goose StatementBegin
-- Roles belong to the cluster, and the first migration may not have been allowed to make this one.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.tenant_usage, punctual.tenant_jobs, punctual.allowances TO punctual_reader;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP VIEW punctual.overdue;
CREATE VIEW punctual.overdue AS
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for, s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN punctual.queues q ON q.id = s.lane / 4
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', NULL, y.due_at, now() - y.due_at, q.name
FROM punctual.ready y LEFT JOIN punctual.jobs j ON j.id = y.job_id JOIN punctual.tenants t ON t.id = y.tenant JOIN punctual.queues q ON q.id = y.lane / 4
WHERE y.due_at <= now();
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits for a replica: slots not claimed yet, and runs in ready. Empty or milliseconds old when all is well.';
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.overdue TO punctual_reader;
    END IF;
END
$$;
DROP FUNCTION punctual.held_by(text, timestamptz);
DROP TRIGGER count_jobs_anew ON punctual.tenants;
DROP FUNCTION punctual.count_jobs_anew();
DROP TABLE punctual.allowances, punctual.tenant_usage, punctual.tenant_jobs;
DROP INDEX punctual.tenants_with_limits;
-- +goose StatementEnd
