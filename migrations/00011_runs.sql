-- What a run's page shows: responses and results that are kept, reruns; work that is completed async, and targets that fall silent.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

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

-- +goose Down
SET LOCAL lock_timeout = '500ms';

UPDATE punctual.job_versions SET definition = regexp_replace(definition::text, '^(.*"completion":\s*)"async"', '\1"callback"')::json
WHERE definition ->> 'completion' = 'async';
ALTER TABLE punctual.run_data DROP COLUMN result, DROP COLUMN result_note, DROP COLUMN response, DROP COLUMN response_headers, DROP COLUMN response_truncated, DROP COLUMN response_fence;
ALTER TABLE punctual.attempts DROP COLUMN response_headers, DROP COLUMN response_truncated;
ALTER TABLE punctual.runs DROP COLUMN rerun_of;
