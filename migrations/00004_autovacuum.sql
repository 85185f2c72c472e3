-- When dead rows are removed and old ones are frozen, table by table.

-- +goose Up

-- A table that an autovacuum is at is not waited for: the migration is tried again then.
SET LOCAL lock_timeout = '500ms';

-- +goose StatementBegin
-- schedules, ready, claims and notices have theirs since they were made: by number, not by share.
--
-- exclusive: a run of a gated job updates it twice. Half of each page is free, so that these are HOT updates and the
-- next one on the page prunes them; vacuum is for what an old snapshot has kept. By number, as in schedules, because a
-- fifth of a million gates is a bloated table by then.
ALTER TABLE punctual.exclusive SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
-- replicas: a few rows in a page or two, each updated every 2 s and pruned by the next update. By default three of
-- them would have it vacuumed every minute for ever.
ALTER TABLE punctual.replicas SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
-- idempotency_keys: each key leaves two dead rows, one when it gets its answer and one when it is forgotten a day later,
-- a minute's worth of keys at a time. A fifth of a busy day would be more than the keys of some hours; and long answers
-- lie in its toast table, which counts for itself.
ALTER TABLE punctual.idempotency_keys SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 5000);
-- jobs, job_versions: one-shots come and go, and of ten million rows a fifth would be two million dead ones in the eight
-- indexes of jobs, and with them in every look for a name. By share, because most deployments change few of their jobs.
ALTER TABLE punctual.jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE punctual.job_versions SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- runs: a row is inserted, updated once when it ends, and lies still until its day is dropped. The update is HOT and
-- leaves no dead index entry, so a vacuum looks only at pages that changed since the last one. That vacuum freezes what
-- it finds: at some hundred transactions a second a day is older than autovacuum_freeze_max_age before it is dropped, and
-- would be read again from end to end, each day a second time, only to be frozen. attempts and run_data are written
-- once and fare alike; a partition of failures is small and is left to the defaults.
DO $$
DECLARE
    day regclass;
BEGIN
    FOR day IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(runs|attempts|run_data)_\d{8}$' LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_freeze_min_age = 0)', day);
    END LOOP;
END
$$;

-- A partition is made beside the parent and then attached: PARTITION OF would lock the parent against every reader and writer.
-- One that is there and not attached, because its removal has begun, is attached again: what is in it is lost to nobody.
-- Its rows are frozen at the first vacuum that finds them: see above.
-- Pages are filled to 45 %, so that finishing a run finds room beside it for its second version (a HOT update, no index write).
CREATE OR REPLACE FUNCTION punctual.create_partitions(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('punctual.create_partitions'));
    FOR day IN SELECT generate_series(first_day, last_day, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
            CONTINUE WHEN punctual.has_partition(parent, day);
            child := parent || to_char(day, '_YYYYMMDD');
            IF to_regclass('punctual.' || child || '_failures') IS NOT NULL THEN
                child := child || '_failures';
            ELSIF to_regclass('punctual.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE punctual.%I (LIKE punctual.%I INCLUDING ALL) WITH (%s)', child, parent,
                    CASE parent WHEN 'runs' THEN 'fillfactor = 45, ' ELSE '' END || 'autovacuum_vacuum_insert_scale_factor = 1, autovacuum_freeze_min_age = 0');
            END IF;
            EXECUTE format('ALTER TABLE punctual.%I ATTACH PARTITION punctual.%I FOR VALUES FROM (%L) TO (%L)',
                parent, child, punctual.partition_bound(day), punctual.partition_bound(day + 1));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '500ms';

-- +goose StatementBegin
ALTER TABLE punctual.exclusive RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE punctual.replicas RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE punctual.idempotency_keys RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_threshold);
ALTER TABLE punctual.jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor);
ALTER TABLE punctual.job_versions RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
DO $$
DECLARE
    day regclass;
BEGIN
    FOR day IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(runs|attempts|run_data)_\d{8}$' LOOP
        EXECUTE format('ALTER TABLE %s RESET (autovacuum_freeze_min_age)', day);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION punctual.create_partitions(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('punctual.create_partitions'));
    FOR day IN SELECT generate_series(first_day, last_day, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
            CONTINUE WHEN punctual.has_partition(parent, day);
            child := parent || to_char(day, '_YYYYMMDD');
            IF to_regclass('punctual.' || child || '_failures') IS NOT NULL THEN
                child := child || '_failures';
            ELSIF to_regclass('punctual.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE punctual.%I (LIKE punctual.%I INCLUDING ALL) WITH (%s)', child, parent,
                    CASE parent WHEN 'runs' THEN 'fillfactor = 45, autovacuum_vacuum_insert_scale_factor = 1' ELSE 'autovacuum_vacuum_insert_scale_factor = 1' END);
            END IF;
            EXECUTE format('ALTER TABLE punctual.%I ATTACH PARTITION punctual.%I FOR VALUES FROM (%L) TO (%L)',
                parent, child, punctual.partition_bound(day), punctual.partition_bound(day + 1));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
