-- Empties a database that a test has written to, and describes what is in it then: see recycle.go, which fills in the
-- values in braces. Postgres counts writes, and a table that nobody wrote to is not looked at: to open every table and
-- index in a new connection costs as much as a clone. The same goes for catalogs. A clone's objects have the oids of
-- the template's, so that catalogs with the same rows describe the same objects.

SET session_replication_role = replica; -- rows go without triggers and without checks of foreign keys
SET track_counts = off;                 -- what is written here does not count
SET lock_timeout = '1s';                -- a connection that was left open may hold locks
SET application_name = 'pgtest';        -- the connection stays: tests that look at connections leave it out

DO $do$
DECLARE
    -- The template's rows, by table. Null: leave everything as it is.
    kept   CONSTANT json := nullif($json${rows}$json$, '');
    -- Its sequences, by name: [last_value, is_called].
    counts CONSTANT json := nullif($json${sequences}$json$, '');
    rows   text[] := '{}';
    seqs   text[] := '{}';
    -- A checksum of its catalogs' rows, by catalog.
    sums   CONSTANT json := nullif($json${catalogs}$json$, '');
    -- The last oid of its tables and indexes.
    last   CONSTANT bigint := coalesce(nullif({last}, 0), (SELECT max(oid::bigint) FROM pg_class));
    cats   text[] := '{}';
    odd    text[] := '{}'; -- what a fresh database does not have
    what   text;
    r      record;
BEGIN
    -- The test has closed its connections, but Postgres may not have noticed yet.
    FOR i IN 1..200 LOOP
        SELECT string_agg(format('%s: %s', application_name, query), '; ') INTO what
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND NOT (application_name = 'pgtest' AND state = 'idle'); -- a session without a client
        EXIT WHEN what IS NULL;
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
    END LOOP;
    odd := odd || ('a connection: ' || what);

    -- Tests of the past make tables of days. A few are dropped in less time than a database.
    SELECT string_agg(oid::regclass::text, ', ') INTO what
    FROM pg_class
    WHERE relispartition AND relkind = 'r' AND oid::bigint > last
    HAVING count(*) <= 30;
    IF what IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || what;
    END IF;

    FOR r IN
        SELECT c.relname::text AS name, format('punctual.%I', c.relname) AS id, kept -> c.relname::text AS rows,
            -- To the planner, a table that was never analysed has ten pages at least.
            greatest(pg_relation_size(c.oid), pg_relation_size(nullif(c.reltoastrelid, 0))) > 10 * 8192 AS large
        FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('punctual') AND c.relkind = 'r'
            AND (kept IS NULL OR kept -> c.relname::text IS NOT NULL
                OR pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) > 0)
        ORDER BY 1
    LOOP
        IF r.large THEN
            odd := odd || ('a large table: ' || r.name);
            CONTINUE;
        END IF;
        EXECUTE format('SELECT json_agg(t ORDER BY t::text) FROM ONLY %s t', r.id) INTO what;
        IF kept IS NOT NULL AND what IS DISTINCT FROM r.rows::text THEN
            EXECUTE format('DELETE FROM ONLY %s', r.id);
            IF r.rows IS NOT NULL THEN
                EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE
                    SELECT * FROM json_populate_recordset(NULL::%1$s, %L)', r.id, r.rows);
            END IF;
            EXECUTE format('SELECT json_agg(t ORDER BY t::text) FROM ONLY %s t', r.id) INTO what;
        END IF;
        IF what IS NOT NULL THEN
            rows := rows || format('%s: %s', to_json(r.name), what);
        END IF;
    END LOOP;

    FOR r IN
        SELECT relname::text AS name, format('punctual.%I', relname) AS id, counts -> relname::text AS count
        FROM pg_class
        WHERE relnamespace = to_regnamespace('punctual') AND relkind = 'S'
        ORDER BY 1
    LOOP
        EXECUTE format('SELECT json_build_array(last_value, is_called) FROM %s', r.id) INTO what;
        IF what <> r.count::text THEN
            what := json_build_array(setval(r.id, (r.count ->> 0)::bigint, (r.count ->> 1)::boolean),
                (r.count ->> 1)::boolean);
        END IF;
        seqs := seqs || format('%s: %s', to_json(r.name), what);
    END LOOP;

    -- Whatever makes, alters, analyses or drops anything writes to a catalog.
    FOR r IN
        SELECT oid, relname::text AS name, sums ->> relname::text AS sum
        FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared
        ORDER BY 1
    LOOP
        what := r.sum;
        IF what IS NULL OR pg_stat_get_tuples_inserted(r.oid) + pg_stat_get_tuples_updated(r.oid)
                + pg_stat_get_tuples_deleted(r.oid) > 0 THEN
            -- A row that was written since has another xmin. To read whole rows takes several times as long.
            EXECUTE format('SELECT concat(count(*), '' '', sum(xmin::text::bigint)) FROM pg_catalog.%I', r.name)
                INTO what;
        END IF;
        cats := cats || format('%s: %s', to_json(r.name), to_json(what));
    END LOOP;
    odd := odd || (SELECT format('pages: %s, rows: %s', sum(relpages), sum(reltuples)) FROM pg_class) -- VACUUM's
        || ARRAY(
            SELECT format('the database: %s %s %s', datdba::regrole, datacl, datconnlimit)
            FROM pg_database
            WHERE datname = current_database())
        || ARRAY(
            SELECT 'a setting: ' || s.setconfig::text
            FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
            WHERE d.datname = current_database());
    PERFORM set_config('pgtest.found',
        format('{"rows": {%s}, "sequences": {%s}, "catalogs": {%s}, "last": %s, "else": %s}', array_to_string(rows, ', '),
            array_to_string(seqs, ', '), array_to_string(cats, ', '), last, to_json(array_remove(odd, NULL))),
        false), pg_stat_reset();
END $do$;

SELECT current_setting('pgtest.found');
