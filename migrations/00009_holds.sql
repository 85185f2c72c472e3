-- What holds runs back: hosts that cannot be reached, and requests that hang.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

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

DROP VIEW punctual.overdue;
CREATE VIEW punctual.overdue AS
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
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits: slots not claimed yet, and runs in ready. When all is well it is empty, or milliseconds old.';
COMMENT ON COLUMN punctual.overdue.what       IS 'slot: not claimed yet; run: waiting in ready.';
COMMENT ON COLUMN punctual.overdue.due_at     IS 'When it was due.';
COMMENT ON COLUMN punctual.overdue.overdue_by IS 'For how long it has been due.';
COMMENT ON COLUMN punctual.overdue.held_by    IS 'What it waits for: breaker HOST (the host cannot be reached), hanging HOST or PATH (its requests time out), gate (another run of the job is active), limit NAME (of its tenant), slots (all worker slots are taken), or that no live replica serves its queue; null: nothing, a replica is about to take it.';
COMMENT ON COLUMN punctual.overdue.held_until IS 'Until when it waits for its host at most.';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT SELECT ON punctual.holds, punctual.overdue TO punctual_reader;
    END IF;
    PERFORM punctual.guard_tenants();
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '500ms';
DROP VIEW punctual.overdue;
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
