-- A role that reads the metrics and nothing else.

-- +goose Up

-- As in the migrations before: a lock that is not to be had soon is given up, and the migration is tried again.
SET LOCAL lock_timeout = '500ms';

ALTER TABLE punctual.api_keys
    DROP CONSTRAINT api_key_role_is_known,
    ADD CONSTRAINT api_key_role_is_known CHECK (role IN ('metrics', 'viewer', 'submitter', 'editor', 'admin', 'operator'));
COMMENT ON COLUMN punctual.api_keys.role IS 'viewer, submitter, editor, admin or operator: each may also do what those before it may. metrics: reads the metrics of the deployment and nothing else.';

-- +goose Down

SET LOCAL lock_timeout = '500ms';

-- No role of before may do so little.
DELETE FROM punctual.api_keys WHERE role = 'metrics';
ALTER TABLE punctual.api_keys
    DROP CONSTRAINT api_key_role_is_known,
    ADD CONSTRAINT api_key_role_is_known CHECK (role IN ('viewer', 'submitter', 'editor', 'admin', 'operator'));
COMMENT ON COLUMN punctual.api_keys.role IS 'viewer, submitter, editor, admin or operator: each may also do what those before it may.';
