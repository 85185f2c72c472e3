-- The data model of Punctual. Everything lies in one schema, so that it can share an application's database.
--
-- The order: the deployment and its tenants, jobs, runs, waiting and claimed runs, changes, events, dead letters and
-- operations, counted hours, notices, limits, keys and secrets, the audit log, functions, views, roles with row-level
-- security.

-- +goose Up

-- Behind a pooler a session has the limits of its role.
SET LOCAL lock_timeout = '500ms';
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;

-- The deployment, its tenants and its queues.

-- +goose StatementBegin
CREATE TABLE punctual.deployment (
    singleton          boolean PRIMARY KEY DEFAULT true,
    zone_data          text NOT NULL DEFAULT '',
    zones_mixed        boolean NOT NULL DEFAULT false,
    rezoned_at         timestamptz NOT NULL DEFAULT '-infinity',
    timeline           text NOT NULL DEFAULT '',
    tidied_at          timestamptz NOT NULL DEFAULT '-infinity',
    overlaps_sought_at timestamptz NOT NULL DEFAULT '-infinity',
    watchdog_called_at timestamptz NOT NULL DEFAULT '-infinity',
    back_at            timestamptz NOT NULL DEFAULT '-infinity',
    secrets_changed    bigint NOT NULL DEFAULT 0,
    id                 uuid NOT NULL DEFAULT gen_random_uuid(),
    archive_command    text,
    archiving_until    timestamptz NOT NULL DEFAULT '-infinity',
    database_name      text NOT NULL DEFAULT '',
    system_identifier  text NOT NULL DEFAULT '',
    frozen_at          timestamptz,
    frozen_by          text,
    frozen_note        text,
    frozen_reason      text,
    CONSTRAINT deployment_has_one_row CHECK (singleton),
    CONSTRAINT deployment_freeze_is_whole CHECK ((frozen_at IS NULL) = (frozen_by IS NULL)
        AND (frozen_at IS NULL) = (frozen_reason IS NULL) AND (frozen_note IS NULL OR frozen_at IS NOT NULL)),
    CONSTRAINT deployment_frozen_reason_is_known CHECK (frozen_reason IN ('asked', 'restored'))
);
COMMENT ON TABLE  punctual.deployment IS 'Facts about this deployment; exactly one row.';
COMMENT ON COLUMN punctual.deployment.singleton IS 'Always true: keeps the table at one row.';
COMMENT ON COLUMN punctual.deployment.zone_data IS
    'Version of the time zone data that the next slots were last computed with.';
COMMENT ON COLUMN punctual.deployment.zones_mixed IS
    'Some next slots may be by other time zone data: replicas with other data were live, or a row was locked. They are '
    'computed once more when only one version of the data is left.';
COMMENT ON COLUMN punctual.deployment.rezoned_at IS
    'When a replica that computes next slots again last made progress; -infinity: none does so.';
COMMENT ON COLUMN punctual.deployment.timeline IS
    'The timeline of Postgres on which fencing tokens were last given out; with synchronous_commit = off also when this '
    'Postgres was started. On another timeline, after a failover, the sequence is raised first.';
COMMENT ON COLUMN punctual.deployment.tidied_at IS
    'When a replica last began to remove what is older than its retention. Each minute one replica does so, not all '
    'of them.';
COMMENT ON COLUMN punctual.deployment.overlaps_sought_at IS
    'When a replica last looked for jobs most of whose slots are skipped. Every five minutes one replica does so.';
COMMENT ON COLUMN punctual.deployment.watchdog_called_at IS 'When a replica last reached the watchdog, if there is one.';
COMMENT ON COLUMN punctual.deployment.back_at IS
    'When a replica last found that no replica had renewed its heartbeat for a while, because the replicas or the '
    'database were down. Until then, no replica could receive a target''s report.';
COMMENT ON COLUMN punctual.deployment.secrets_changed IS
    'Counts the changes of secrets and signing_secrets. When it changes, replicas drop the secrets that they have '
    'decrypted.';
COMMENT ON COLUMN punctual.deployment.id IS
    'Names the deployment in its archives, so that a file of another one is refused. A copy of the database has the same.';
COMMENT ON COLUMN punctual.deployment.archive_command IS
    'The --archive-command that a replica was last started with. Until it is null, no day of runs is dropped before it is '
    'archived. Replicas run only their own command, never this text.';
COMMENT ON COLUMN punctual.deployment.archiving_until IS
    'Until when a replica holds the lease to archive days; past: none does.';
COMMENT ON COLUMN punctual.deployment.database_name IS
    'Name of the database that runs were last dispatched from; empty: none yet. If it is not the present name, this '
    'database is a copy: see is_copy().';
COMMENT ON COLUMN punctual.deployment.system_identifier IS
    'System identifier of the Postgres that runs were last dispatched from (pg_control_system()); empty: none yet, '
    'or this Postgres does not tell it.';
COMMENT ON COLUMN punctual.deployment.frozen_at IS
    'Since when nothing of any tenant is claimed; null: the deployment is not frozen.';
COMMENT ON COLUMN punctual.deployment.frozen_by IS 'Who froze it, for people.';
COMMENT ON COLUMN punctual.deployment.frozen_note IS 'Why it was frozen, if the caller gave a note.';
COMMENT ON COLUMN punctual.deployment.frozen_reason IS
    'asked: a caller froze it; restored: a replica found that the database is a copy.';

INSERT INTO punctual.deployment DEFAULT VALUES;

-- Rows, and no advisory locks, whose numbers every role of the database may take and keep.
CREATE TABLE punctual.locks (
    name  text PRIMARY KEY
);
COMMENT ON TABLE  punctual.locks IS 'Work that one transaction does at a time: it locks the row.';
COMMENT ON COLUMN punctual.locks.name IS
    'days: makes and removes the tables of days, and their triggers. counted_hours, counted_days: counts runs.';

INSERT INTO punctual.locks VALUES ('days'), ('counted_hours'), ('counted_days');

CREATE TABLE punctual.tenants (
    id                       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                     text NOT NULL,
    created_at               timestamptz NOT NULL DEFAULT now(),
    weight                   smallint NOT NULL DEFAULT 1,
    max_jobs                 integer,
    max_pending_runs         integer,
    max_concurrent_runs      integer,
    max_runs_per_second      integer,
    max_requests_per_second  integer,
    min_interval             interval,
    max_key_age              interval,
    allowed_targets          cidr[] NOT NULL DEFAULT '{}',
    updated_at               timestamptz NOT NULL DEFAULT now(),
    deleted_at               timestamptz,
    notify                   json,
    frozen_at                timestamptz,
    frozen_by                text,
    frozen_note              text,
    reports_since            timestamptz,
    changes_kept             interval,
    CONSTRAINT tenant_name_is_1_to_128_letters_digits_and_marks
        CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
    CONSTRAINT tenant_weight_is_1_to_1000 CHECK (weight BETWEEN 1 AND 1000),
    CONSTRAINT tenant_max_jobs_is_positive CHECK (max_jobs > 0),
    CONSTRAINT tenant_max_pending_runs_is_1_to_1000000 CHECK (max_pending_runs BETWEEN 1 AND 1000000),
    CONSTRAINT tenant_max_concurrent_runs_is_positive CHECK (max_concurrent_runs > 0),
    CONSTRAINT tenant_max_runs_per_second_is_positive CHECK (max_runs_per_second > 0),
    CONSTRAINT tenant_max_requests_per_second_is_positive CHECK (max_requests_per_second > 0),
    CONSTRAINT tenant_min_interval_is_1s_or_more CHECK (min_interval >= interval '1 second'),
    CONSTRAINT tenant_max_key_age_is_1h_or_more CHECK (max_key_age >= interval '1 hour'),
    CONSTRAINT tenant_changes_kept_is_1h_or_more CHECK (changes_kept >= interval '1 hour'),
    CONSTRAINT tenant_freeze_is_whole CHECK ((frozen_at IS NULL) = (frozen_by IS NULL) AND (frozen_note IS NULL
        OR frozen_at IS NOT NULL))
);
CREATE UNIQUE INDEX tenant_name_is_unique ON punctual.tenants (name) WHERE deleted_at IS NULL;
CREATE INDEX tenants_frozen ON punctual.tenants (id) WHERE frozen_at IS NOT NULL;
CREATE INDEX tenants_that_report ON punctual.tenants (id) WHERE reports_since IS NOT NULL;
CREATE INDEX tenants_with_limits ON punctual.tenants (id) WHERE max_concurrent_runs IS NOT NULL
    OR max_runs_per_second IS NOT NULL OR frozen_at IS NOT NULL;
COMMENT ON TABLE  punctual.tenants IS 'Owners of jobs. The tenant "default" always exists.';
COMMENT ON COLUMN punctual.tenants.id IS 'Small key used in every other table.';
COMMENT ON COLUMN punctual.tenants.name IS 'Name used in the API.';
COMMENT ON COLUMN punctual.tenants.created_at IS 'When the tenant was created.';
COMMENT ON COLUMN punctual.tenants.weight IS
    'Share of the worker slots while several tenants wait for them: a tenant with twice the weight of another gets '
    'twice as many. 1 to 1000.';
COMMENT ON COLUMN punctual.tenants.max_jobs IS 'How many active and paused jobs it may have; null: no limit.';
COMMENT ON COLUMN punctual.tenants.max_pending_runs IS 'How many dated runs it may have pending; null: no limit.';
COMMENT ON COLUMN punctual.tenants.max_concurrent_runs IS
    'How many of its runs all replicas together may be sending at once; null: as many as there are worker slots. Runs '
    'beyond the limit wait.';
COMMENT ON COLUMN punctual.tenants.max_runs_per_second IS
    'How many of its attempts all replicas together may start in a second; null: no limit. Runs beyond the limit wait.';
COMMENT ON COLUMN punctual.tenants.max_requests_per_second IS
    'How many of its API requests all replicas together answer in a second; null: no limit. Requests beyond the limit '
    'get 429.';
COMMENT ON COLUMN punctual.tenants.min_interval IS
    'Shortest time between two slots of one of its jobs; null: one second, the minimum for every tenant.';
COMMENT ON COLUMN punctual.tenants.max_key_age IS
    'How long a new API key of it may work; null: no limit. Earlier keys stay as they are.';
COMMENT ON COLUMN punctual.tenants.allowed_targets IS
    'Networks that its jobs may call although they are not public, beside the networks that the deployment allows to '
    'every tenant.';
COMMENT ON COLUMN punctual.tenants.updated_at IS 'When it was last changed.';
COMMENT ON COLUMN punctual.tenants.deleted_at IS
    'When it was deleted. Its jobs and keys are gone; its history stays until its retention ends.';
COMMENT ON COLUMN punctual.tenants.notify IS
    'Recipients of notices about its jobs that name none themselves, in the form of a definition''s notify; null: no '
    'recipients.';
COMMENT ON COLUMN punctual.tenants.frozen_at IS 'Since when nothing of this tenant is claimed; null: it is not frozen.';
COMMENT ON COLUMN punctual.tenants.frozen_by IS 'Who froze it, for people.';
COMMENT ON COLUMN punctual.tenants.frozen_note IS 'Why it was frozen, if the caller gave a note.';
COMMENT ON COLUMN punctual.tenants.reports_since IS
    'Since when its targets may end runs in transactions of their own: see reports. Null: they may not, and no finish '
    'looks for reports. It stays when the last grant is revoked: a transaction may be open.';
COMMENT ON COLUMN punctual.tenants.changes_kept IS
    'How long changes says which of its runs have ended; null: nothing is recorded.';

INSERT INTO punctual.tenants (name) VALUES ('default');

CREATE TABLE punctual.queues (
    id    smallint GENERATED ALWAYS AS IDENTITY (START WITH 1 MAXVALUE 8000) PRIMARY KEY,
    name  text NOT NULL,
    CONSTRAINT queue_name_is_1_to_64_letters_digits_and_marks
        CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT queue_name_is_unique UNIQUE (name)
);
COMMENT ON TABLE  punctual.queues IS
    'Named lanes with their own worker slots on each replica. A lane number is queue id x 4 + priority (0 high, 1 '
    'normal, 2 low). In ready, 3 stands for backfills and replays of any priority.';
COMMENT ON COLUMN punctual.queues.id IS 'Small number, part of every lane.';
COMMENT ON COLUMN punctual.queues.name IS 'Name used in job definitions and in --queues.';

INSERT INTO punctual.queues (name) VALUES ('default');
-- +goose StatementEnd

-- Jobs: identity and state, definitions, next slots, gates.

-- +goose StatementBegin
-- Autovacuum goes by the share of dead rows, because most deployments change few of their jobs. The share is smaller
-- than the default, because one-shots come and go: a fifth of ten million jobs would be two million dead rows in each
-- of the indexes.
--
-- A foreign key would be checked for each row by a statement of its own, which costs more than the row. So jobs have
-- none to tenants and queues, whose rows are never deleted, and job_versions and schedules have none to jobs: they are
-- written in the transaction that writes the job, and deleted with it.
CREATE TABLE punctual.jobs (
    id            uuid PRIMARY KEY,
    tenant        integer NOT NULL,
    version       integer NOT NULL,
    name          text NOT NULL,
    state         text NOT NULL,
    kind          text NOT NULL,
    queue         smallint NOT NULL,
    labels        jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    named         boolean NOT NULL DEFAULT true,
    paused_at     timestamptz,
    paused_until  timestamptz,
    paused_by     text,
    pause_note    text,
    deleted_at    timestamptz,
    -- A bound in the expression, as {0,127}, would make it several times as expensive.
    CONSTRAINT job_name_is_1_to_128_letters_digits_and_marks
        CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND length(name) <= 128),
    CONSTRAINT job_state_is_active_paused_or_deleted CHECK (state IN ('active', 'paused', 'deleted')),
    CONSTRAINT job_kind_is_known CHECK (kind IN ('cron', 'every', 'at', 'delay', 'event', 'none')),
    CONSTRAINT job_version_is_positive CHECK (version > 0),
    CONSTRAINT paused_job_has_paused_at CHECK ((state <> 'paused') OR (paused_at IS NOT NULL)),
    CONSTRAINT only_a_paused_job_has_a_pause CHECK (state = 'paused'
        OR num_nonnulls(paused_at, paused_until, paused_by, pause_note) = 0),
    CONSTRAINT deleted_job_has_deleted_at CHECK ((state = 'deleted') = (deleted_at IS NOT NULL)),
    CONSTRAINT deleted_job_has_no_name CHECK (NOT named OR state <> 'deleted')
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05);
-- Names are looked up by prefix, too. Each job is in one of these two indexes, a new one in the first.
CREATE UNIQUE INDEX job_name_is_unique ON punctual.jobs (tenant, name text_pattern_ops) WHERE named;
CREATE INDEX jobs_by_former_name ON punctual.jobs (tenant, name text_pattern_ops, id) WHERE NOT named;
CREATE INDEX jobs_by_id ON punctual.jobs (tenant, id) WHERE state <> 'deleted';
-- A job without labels is found by none. In this index its entry would be the most expensive of all.
CREATE INDEX jobs_by_label ON punctual.jobs USING gin (labels jsonb_path_ops) WHERE labels <> '{}';
-- Of the one-shots, those without a row in schedules are completed: see is_completed().
CREATE INDEX jobs_once ON punctual.jobs (tenant, id) WHERE kind IN ('at', 'delay') AND state = 'active';
CREATE INDEX jobs_paused ON punctual.jobs (tenant, id) WHERE state = 'paused';
CREATE INDEX jobs_to_resume ON punctual.jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_deleted ON punctual.jobs (deleted_at, id) WHERE state = 'deleted';
COMMENT ON TABLE  punctual.jobs IS
    'Identity and state of each job. Its definition is in job_versions; its next slot is in schedules.';
COMMENT ON COLUMN punctual.jobs.id IS 'UUIDv7 of the job; never reused.';
COMMENT ON COLUMN punctual.jobs.version IS
    'Current version: the row of job_versions that holds now. Also the ETag in the API.';
COMMENT ON COLUMN punctual.jobs.name IS
    'Unique among the active and paused jobs of a tenant; a completed or deleted job frees its name.';
COMMENT ON COLUMN punctual.jobs.state IS
    'active, paused or deleted (kept for its history). An active job may be completed: is_completed() says so.';
COMMENT ON COLUMN punctual.jobs.kind IS 'Kind of schedule: cron, every, at, delay, event or none.';
COMMENT ON COLUMN punctual.jobs.queue IS 'Queue its runs wait in: queues.id.';
COMMENT ON COLUMN punctual.jobs.labels IS 'Labels to filter by: a flat object of strings.';
COMMENT ON COLUMN punctual.jobs.created_at IS 'When the job was created.';
COMMENT ON COLUMN punctual.jobs.updated_at IS 'When a caller last changed the job.';
COMMENT ON COLUMN punctual.jobs.named IS
    'Whether the job holds its name. False once it is deleted, or is completed and another job has taken the name.';
COMMENT ON COLUMN punctual.jobs.paused_at IS 'When it was paused; null unless paused.';
COMMENT ON COLUMN punctual.jobs.paused_until IS 'When it resumes by itself; null: only when a caller resumes it.';
COMMENT ON COLUMN punctual.jobs.paused_by IS 'Who paused it, for people; null unless paused.';
COMMENT ON COLUMN punctual.jobs.pause_note IS 'Why it was paused; null unless paused.';
COMMENT ON COLUMN punctual.jobs.deleted_at IS
    'When it was deleted. A one-shot is forgotten a week after it was completed; then this is when it was completed.';

CREATE TABLE punctual.job_versions (
    job_id      uuid NOT NULL,
    version     integer NOT NULL,
    valid_from  timestamptz NOT NULL DEFAULT now(),
    state       text NOT NULL,
    definition  json NOT NULL,
    note        text,
    tenant      integer,
    event       text,
    rerun_at    timestamptz,
    CONSTRAINT job_version_state_is_active_paused_completed_or_deleted CHECK (state IN ('active', 'paused',
        'completed', 'deleted')),
    PRIMARY KEY (job_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX job_versions_later ON punctual.job_versions (valid_from, job_id) WHERE version > 1;
CREATE INDEX job_versions_of_event ON punctual.job_versions (tenant, event, job_id, version) WHERE event IS NOT NULL;
COMMENT ON TABLE  punctual.job_versions IS
    'Every definition a job had, and every pause, resume and end: one row per change. A superseded version '
    'is removed once it is older than the runs that are kept and none of them names it.';
COMMENT ON COLUMN punctual.job_versions.version IS 'Counts from 1; a run keeps the version it was claimed with.';
COMMENT ON COLUMN punctual.job_versions.valid_from IS 'When this version took effect; it holds until the next one.';
COMMENT ON COLUMN punctual.job_versions.state IS 'State of the job under this version.';
COMMENT ON COLUMN punctual.job_versions.definition IS
    'The definition as it was written, in the form of the API (json, not jsonb: a body keeps its bytes). An absent '
    'field has its default.';
COMMENT ON COLUMN punctual.job_versions.note IS 'Why the job was changed, if the caller gave a note.';
COMMENT ON COLUMN punctual.job_versions.tenant IS 'Of a job that runs at an event: its owner; else null.';
COMMENT ON COLUMN punctual.job_versions.event IS 'The event at which the job runs; null: it runs at none.';
COMMENT ON COLUMN punctual.job_versions.rerun_at IS
    'When a rerun last made a run of this version because it was asked for; null: none did.';

-- A fire is a non-HOT update of this table, because next_run_at is indexed. So dead rows appear as fast as runs do.
-- Autovacuum goes by their number, not their share: otherwise the due end of a large table's index fills up with dead
-- entries.
--
-- The claim of a job's last slot completes the job, and writes nothing but this table for it. Writing the job as well,
-- with its state in the predicates of its indexes, took as much of Postgres's time as all the rest of a one-shot. The
-- row of a one-shot is deleted: an update would write its entries in the indexes anew. The row of a recurring job gets a
-- completed_at, and so does a one-shot's that is written again, because the job is edited.
CREATE TABLE punctual.schedules (
    job_id         uuid PRIMARY KEY,
    scheduled_for  timestamptz,
    next_run_at    timestamptz,
    tenant         integer NOT NULL,
    version        integer NOT NULL,
    lane           smallint NOT NULL,
    enabled        boolean NOT NULL,
    completed_at   timestamptz,
    CONSTRAINT enabled_schedule_has_a_next_slot CHECK (NOT enabled OR (scheduled_for IS NOT NULL
        AND next_run_at IS NOT NULL)),
    CONSTRAINT schedule_is_never_due_before_its_slot CHECK (next_run_at >= scheduled_for),
    CONSTRAINT completed_schedule_has_no_next_slot CHECK (completed_at IS NULL OR scheduled_for IS NULL)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX schedules_due ON punctual.schedules (lane, next_run_at) WHERE enabled;
CREATE INDEX schedules_due_by_tenant ON punctual.schedules (lane, tenant, next_run_at) WHERE enabled;
CREATE INDEX schedules_completed ON punctual.schedules (completed_at) WHERE completed_at IS NOT NULL;
COMMENT ON TABLE  punctual.schedules IS
    'When each job fires next: one narrow row per job, the only hot row. A one-shot has none once its slot is claimed. '
    'A transaction that changes a job locks this row first.';
COMMENT ON COLUMN punctual.schedules.scheduled_for IS 'Next slot (nominal fire time); null when none is left.';
COMMENT ON COLUMN punctual.schedules.next_run_at IS 'When that slot is due: scheduled_for plus the job''s jitter.';
COMMENT ON COLUMN punctual.schedules.version IS 'The version that a run claimed now is pinned to.';
COMMENT ON COLUMN punctual.schedules.lane IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.schedules.enabled IS 'False while paused and once no slot is left.';
COMMENT ON COLUMN punctual.schedules.completed_at IS
    'When the last slot was claimed; null while there is a next slot, or if the job never had a slot.';

-- If all rows belong to one tenant, the planner's statistics say that a condition on the tenant excludes nothing. It
-- would then search a second tenant's few due rows in the index without the tenant, among all due rows of the first
-- tenant.
ALTER TABLE punctual.schedules ALTER COLUMN tenant SET (n_distinct = 1000);

-- Looked up by id, however large the tables are: the planner does not know how many jobs there are in the array.
CREATE FUNCTION punctual.delete_with_job() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    ids constant uuid[] := array(SELECT id FROM gone);
BEGIN
    DELETE FROM punctual.schedules WHERE job_id = ANY (ids);
    DELETE FROM punctual.job_versions WHERE job_id = ANY (ids);
    DELETE FROM punctual.dated WHERE job_id = ANY (ids);
    DELETE FROM punctual.dated_work WHERE job_id = ANY (ids);
    DELETE FROM punctual.dated_sequences WHERE job_id = ANY (ids);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.delete_with_job() IS 'Deletes the schedules, versions and dated runs of deleted jobs.';

CREATE TRIGGER delete_with_job AFTER DELETE ON punctual.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION punctual.delete_with_job();

CREATE FUNCTION punctual.refuse_removal() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of %.% are never removed: other tables name them', TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION punctual.refuse_removal() IS
    'Refuses to remove tenants and queues, whose numbers stand in jobs without a foreign key.';

CREATE TRIGGER tenants_stay BEFORE DELETE OR TRUNCATE ON punctual.tenants
    FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_removal();
CREATE TRIGGER queues_stay BEFORE DELETE OR TRUNCATE ON punctual.queues
    FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_removal();

-- A run of a gated job updates its gate twice. Half of each page is free, so that these updates are HOT and the next
-- one on the page prunes the dead rows. Vacuum removes the rows that an old snapshot has kept.
CREATE TABLE punctual.exclusive (
    job_id        uuid PRIMARY KEY REFERENCES punctual.jobs ON DELETE CASCADE,
    active_run    uuid,
    waiting_run   uuid,
    gated         boolean NOT NULL DEFAULT true,
    earlier_runs  uuid[]
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX exclusive_with_earlier_runs ON punctual.exclusive (job_id) WHERE earlier_runs IS NOT NULL;
COMMENT ON TABLE  punctual.exclusive IS
    'The gate of each job whose concurrency_policy is or once was other than allow, or whose missed slots go one at a '
    'time: a permanent row, locked before a run of the job is started or ended.';
COMMENT ON COLUMN punctual.exclusive.active_run IS
    'Its active run, from the run''s claim to its end. A run that is final or missing counts as none.';
COMMENT ON COLUMN punctual.exclusive.waiting_run IS
    'With the policy wait or replace: the run that starts when the active one ends.';
COMMENT ON COLUMN punctual.exclusive.gated IS
    'Whether its concurrency_policy keeps runs from overlapping now. If not, runs of missed slots alone pass the gate.';
COMMENT ON COLUMN punctual.exclusive.earlier_runs IS
    'The runs that were in flight when the policy stopped being allow. They count as active, too, until they end.';
-- +goose StatementEnd

-- Runs, their attempts and data: one partition per day.

-- +goose StatementBegin
CREATE SEQUENCE punctual.fences;
COMMENT ON SEQUENCE punctual.fences IS 'Fencing tokens: each claim of an attempt takes the next one.';

-- Words as domains, not as CHECK constraints of the table. Each statement that writes rows reads and compiles all CHECK
-- constraints of their table, and evaluates all of them for each row. Those with long lists took 20 µs a statement.
CREATE DOMAIN punctual.run_status AS text CONSTRAINT run_status_is_known CHECK (VALUE IN ('pending',
    'running', 'retrying', 'succeeded', 'dead', 'skipped', 'cancelled'));
CREATE DOMAIN punctual.run_trigger AS text CONSTRAINT run_trigger_is_known CHECK (VALUE IN ('schedule', 'catchup',
    'manual', 'chain', 'event', 'backfill', 'replay', 'step'));
CREATE DOMAIN punctual.run_reason AS text CONSTRAINT run_reason_is_known CHECK (VALUE IN ('missed', 'paused', 'overlap',
    'replaced', 'expired', 'limit', 'auth', 'timeout', 'connect', 'tls', 'unreachable', 'blocked_address', 'http_4xx',
    'http_5xx', 'redirect', 'gone', 'failed', 'lost', 'silent', 'poison', 'upstream_failed', 'cancelled_by_user',
    'rejected', 'approval_expired', 'job_deleted'));
COMMENT ON DOMAIN punctual.run_status IS 'The states of a run.';
COMMENT ON DOMAIN punctual.run_trigger IS 'What creates a run.';
COMMENT ON DOMAIN punctual.run_reason IS 'Why a run is not a plain success.';

-- The indexes by reason, by trigger and of late runs serve lists. They have the filtered column first and then the id,
-- so that a page is read in the order in which it is shown. The last two find what was made later than its slot, such as
-- a replay, by its slot. Most skips are made soon after their slots, and must not hide the others. A scheduled run that
-- succeeds on time is in none of these indexes.
CREATE TABLE punctual.runs (
    id               uuid NOT NULL,
    job_id           uuid NOT NULL,
    replica          uuid,
    blocked_by       uuid,
    replay_of        uuid,
    rerun_of         uuid,
    caused_by        uuid,
    parent_run       uuid,
    scheduled_for    timestamptz NOT NULL,
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    claimed_at       timestamptz,
    started_at       timestamptz,
    accepted_at      timestamptz,
    finished_at      timestamptz,
    next_attempt_at  timestamptz,
    skipped_first    timestamptz,
    skipped_last     timestamptz,
    fence            bigint,
    tenant           integer NOT NULL,
    job_version      integer NOT NULL,
    skipped_count    integer,
    lane             smallint NOT NULL,
    attempt          smallint NOT NULL DEFAULT 0,
    http_status      smallint,
    late             boolean NOT NULL DEFAULT false,
    status           punctual.run_status NOT NULL,
    trigger          punctual.run_trigger NOT NULL,
    reason           punctual.run_reason,
    error            text,
    step             text,
    triggered_by     text,
    CONSTRAINT final_run_has_finished_at CHECK ((status IN ('succeeded', 'dead', 'skipped',
        'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT skipped_run_has_a_reason CHECK (status <> 'skipped' OR reason IS NOT NULL),
    CONSTRAINT running_run_has_a_fence CHECK (status <> 'running' OR fence IS NOT NULL),
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX runs_by_job ON punctual.runs (job_id, id) WITH (deduplicate_items = off); -- there are no duplicates
CREATE INDEX runs_by_tenant ON punctual.runs (tenant, id) WITH (deduplicate_items = off);
CREATE INDEX runs_by_reason ON punctual.runs (tenant, reason, id) WHERE reason IS NOT NULL;
CREATE INDEX runs_by_job_and_reason ON punctual.runs (job_id, reason, id) WHERE reason IS NOT NULL;
CREATE INDEX runs_by_cause ON punctual.runs (caused_by, id) WHERE caused_by IS NOT NULL;
CREATE INDEX runs_by_trigger ON punctual.runs (tenant, trigger, id) WHERE trigger <> 'schedule';
CREATE INDEX runs_late ON punctual.runs (tenant, id) WHERE late;
CREATE INDEX runs_made_later ON punctual.runs (tenant, (created_at - scheduled_for > interval '1 minute'),
    scheduled_for, id) WHERE skipped_last IS NOT NULL OR rerun_of IS NOT NULL OR trigger IN ('backfill', 'replay');
CREATE INDEX runs_skipped_from ON punctual.runs (tenant, skipped_first, id) WHERE skipped_first < skipped_last;
COMMENT ON TABLE  punctual.runs IS
    'One row per run, and one per recorded skip; partitioned by day on the time in the id. No index covers a column '
    'that a successful finish changes, so finishing is a HOT update.';
COMMENT ON COLUMN punctual.runs.id IS
    'For a slot: UUIDv8 of its milliseconds and a hash of (job, slot), so that a slot can have only one run. '
    'Otherwise UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.runs.replica IS 'Replica that made the latest attempt.';
COMMENT ON COLUMN punctual.runs.blocked_by IS 'On a skip for overlap: the run that was in the way.';
COMMENT ON COLUMN punctual.runs.replay_of IS 'On a replay: the dead run it repeats.';
COMMENT ON COLUMN punctual.runs.rerun_of IS
    'On a rerun: the run that it makes again. On a step that a rerun has kept: the run whose result it has.';
COMMENT ON COLUMN punctual.runs.caused_by IS
    'What made it: of trigger chain, the run that ended; of trigger event, the event. Of a step that was skipped: the run '
    'that kept it from running.';
COMMENT ON COLUMN punctual.runs.parent_run IS 'On a step: the run of its workflow.';
COMMENT ON COLUMN punctual.runs.scheduled_for IS
    'The slot: nominal fire time. Of a manual run: when it was requested. Of a replay or rerun: the slot of the run '
    'it repeats.';
COMMENT ON COLUMN punctual.runs.due_at IS 'When it was due: the slot plus the job''s jitter.';
COMMENT ON COLUMN punctual.runs.created_at IS 'When the row was written.';
COMMENT ON COLUMN punctual.runs.claimed_at IS 'When the latest attempt was claimed.';
COMMENT ON COLUMN punctual.runs.started_at IS 'When the latest attempt was sent.';
COMMENT ON COLUMN punctual.runs.accepted_at IS
    'With completion async: when the target answered the latest attempt with 202. From then on no replica holds the '
    'run. Null: the target did not answer 202.';
COMMENT ON COLUMN punctual.runs.finished_at IS 'When it reached its final status.';
COMMENT ON COLUMN punctual.runs.next_attempt_at IS
    'While retrying, or pending because the circuit breaker of its target is open: when the next attempt may start.';
COMMENT ON COLUMN punctual.runs.skipped_first IS 'On a skip: the first slot it stands for.';
COMMENT ON COLUMN punctual.runs.skipped_last IS 'On a skip: the last slot it stands for.';
COMMENT ON COLUMN punctual.runs.fence IS 'Fencing token of the latest attempt; only its holder may finish the run.';
COMMENT ON COLUMN punctual.runs.job_version IS 'Version of the definition that all its attempts use.';
COMMENT ON COLUMN punctual.runs.skipped_count IS 'On a skip: how many slots it stands for; null above 1,000.';
COMMENT ON COLUMN punctual.runs.lane IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.runs.attempt IS 'Number of the latest attempt, from 1; 0 before the first.';
COMMENT ON COLUMN punctual.runs.http_status IS 'HTTP status of the latest attempt''s response, if there was one.';
COMMENT ON COLUMN punctual.runs.late IS 'True: it was first claimed after the job''s tolerance for missed slots.';
COMMENT ON COLUMN punctual.runs.status IS
    'pending, running, retrying; final: succeeded, dead, skipped, cancelled.';
COMMENT ON COLUMN punctual.runs.trigger IS
    'What created it: schedule, catchup, manual, chain, event, backfill, replay or step.';
COMMENT ON COLUMN punctual.runs.reason IS
    'Why it is not a plain success; null on a plain success. On a running run, cancelled_by_user or replaced: it is '
    'to be cancelled. On the running run of a workflow, timeout: its max_duration has passed, and it only cleans up.';
COMMENT ON COLUMN punctual.runs.error IS 'The latest error, for people.';
COMMENT ON COLUMN punctual.runs.step IS 'On a step: its name.';
COMMENT ON COLUMN punctual.runs.triggered_by IS
    'Who asked for the run, such as "key deploy (019a…)", or has set the step; null: no caller did, but its schedule or '
    'another run.';

CREATE TABLE punctual.attempts (
    run_id              uuid NOT NULL,
    fence               bigint NOT NULL,
    number              smallint NOT NULL,
    http_status         smallint,
    replica             uuid,
    started_at          timestamptz NOT NULL,
    finished_at         timestamptz NOT NULL,
    outcome             text NOT NULL,
    reason              text,
    error               text,
    response            text,
    response_headers    jsonb,
    response_truncated  boolean,
    CONSTRAINT attempt_outcome_is_known CHECK (outcome IN ('failed', 'timed_out', 'lost', 'interrupted', 'cancelled')),
    CONSTRAINT attempt_number_is_positive CHECK (number > 0),
    PRIMARY KEY (run_id, fence)
) PARTITION BY RANGE (run_id);
COMMENT ON TABLE  punctual.attempts IS
    'One row per unsuccessful attempt. A successful attempt is on its run, and the kept part of its response in '
    'run_data. Append-only, partitioned like runs.';
COMMENT ON COLUMN punctual.attempts.fence IS 'Fencing token of the attempt.';
COMMENT ON COLUMN punctual.attempts.number IS
    'Counts from 1; an interrupted attempt does not count, so its number is used again.';
COMMENT ON COLUMN punctual.attempts.http_status IS 'Status of the response, if there was one.';
COMMENT ON COLUMN punctual.attempts.replica IS 'Replica that made it.';
COMMENT ON COLUMN punctual.attempts.started_at IS 'When the request was sent.';
COMMENT ON COLUMN punctual.attempts.finished_at IS 'When it ended.';
COMMENT ON COLUMN punctual.attempts.outcome IS
    'failed, timed_out, lost (its replica vanished, its target fell silent or the database lost its outcome), '
    'interrupted (its replica was stopped) or cancelled.';
COMMENT ON COLUMN punctual.attempts.reason IS 'Same list as runs.reason.';
COMMENT ON COLUMN punctual.attempts.error IS 'What went wrong, for people.';
COMMENT ON COLUMN punctual.attempts.response IS
    'Start of the response body, of the length that the job''s keep_response sets; by default 1 KiB. Secrets read ***.';
COMMENT ON COLUMN punctual.attempts.response_headers IS
    'Headers of the response, by name in lower case. Only headers of a fixed list are kept. Null: none is kept.';
COMMENT ON COLUMN punctual.attempts.response_truncated IS
    'True: the body was longer than what response keeps; null: it was not.';

CREATE TABLE punctual.run_data (
    run_id              uuid NOT NULL,
    webhook_id          uuid,
    headers             jsonb,
    body                bytea,
    idempotency_key     text,
    progress            json,
    progress_at         timestamptz,
    result              json,
    result_note         text,
    response            text,
    response_headers    jsonb,
    response_truncated  boolean,
    response_fence      bigint,
    key                 text,
    note                text,
    expires_after       interval,
    chains              boolean,
    traceparent         text,
    template            boolean,
    PRIMARY KEY (run_id)
) PARTITION BY RANGE (run_id);
COMMENT ON TABLE  punctual.run_data IS
    'What a single run sends in place of what its job defines, and its progress, result and response. Only runs with '
    'such data have a row. Partitioned like runs.';
COMMENT ON COLUMN punctual.run_data.webhook_id IS
    'On a replay, and on a rerun with the same keys: the webhook-id of the run that it repeats. Null: the run''s id.';
COMMENT ON COLUMN punctual.run_data.headers IS 'Headers that replace the job''s for this run; null: the job''s.';
COMMENT ON COLUMN punctual.run_data.body IS 'Body that replaces the job''s for this run; null: the job''s.';
COMMENT ON COLUMN punctual.run_data.template IS
    'True: the body is made of the job''s own, and placeholders in it are filled in. Null: it is sent as it is.';
COMMENT ON COLUMN punctual.run_data.idempotency_key IS
    'On a replay, and on a rerun with the same keys: the Idempotency-Key of the run that it repeats. Null: the key '
    'that the run itself gives.';
COMMENT ON COLUMN punctual.run_data.progress IS
    'With completion async: the last progress that the target reported; the next attempt may read it.';
COMMENT ON COLUMN punctual.run_data.progress_at IS 'When the target reported that progress.';
COMMENT ON COLUMN punctual.run_data.result IS
    'The result of the successful run, from a 2xx JSON response or reported by its target; null: no result.';
COMMENT ON COLUMN punctual.run_data.result_note IS
    'Why the run''s result was not kept; null: it was kept, or there was none.';
COMMENT ON COLUMN punctual.run_data.response IS
    'Of a job with keep_response: start of the response body of the attempt that succeeded, or of the latest attempt '
    'that was accepted. Secrets read ***.';
COMMENT ON COLUMN punctual.run_data.response_headers IS 'Headers of that response, as in attempts.';
COMMENT ON COLUMN punctual.run_data.response_truncated IS
    'True: the body of that response was longer; null: it was not.';
COMMENT ON COLUMN punctual.run_data.response_fence IS 'Fencing token of the attempt that got this response.';
COMMENT ON COLUMN punctual.run_data.key IS 'Of a dated run: the key under which it was pending.';
COMMENT ON COLUMN punctual.run_data.note IS 'Of a step that a rerun has set: why, for people.';
COMMENT ON COLUMN punctual.run_data.expires_after IS
    'Of a dated run: its expires_after in place of the job''s; null: the job''s.';
COMMENT ON COLUMN punctual.run_data.chains IS
    'True, on a rerun or backfill: its end triggers other jobs, as that of every other run does. Null: it does not.';
COMMENT ON COLUMN punctual.run_data.traceparent IS
    'The W3C trace context of the request that triggered it: the run is part of that trace. Of a dated run, which has a '
    'key: the run has a trace of its own with a link to it. Null: the request had none.';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION punctual.partition_bound(day date) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM day)::bigint * 1000)), 12, '0'), 32, '0')::uuid
$$;
COMMENT ON FUNCTION punctual.partition_bound(date) IS
    'Lowest run id of a day (UTC): the first 48 bits of a run id are milliseconds since 1970.';

CREATE FUNCTION punctual.day_of(id uuid) RETURNS date
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT date '1970-01-01' + (('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 86400000)::integer
$$;
COMMENT ON FUNCTION punctual.day_of(uuid) IS 'The day (UTC) of a run id: the partition that it belongs to.';

-- Looks partitions up by name, so that it costs two look-ups however many days are kept.
CREATE FUNCTION punctual.has_partition(parent text, day date) RETURNS boolean
LANGUAGE sql STABLE STRICT AS $$
    SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE NOT inhdetachpending AND inhrelid IN (
        to_regclass('punctual.' || parent || to_char(day, '_YYYYMMDD')),
        to_regclass('punctual.' || parent || to_char(day, '_YYYYMMDD"_failures"'))))
$$;
COMMENT ON FUNCTION punctual.has_partition(text, date) IS
    'Whether a day (UTC) of runs, attempts or run_data has its partition: for the whole day, or for its failures only.';

-- A partition is created beside the parent and then attached, because PARTITION OF would lock the parent against every
-- reader and writer. A partition that exists but is detached, because its removal has begun, is attached again, so that
-- nothing in it is lost. The wait for a lock is bounded: replicas ask again each minute.
--
-- What makes, imports or removes the tables of days runs as the owner of the schema, whoever calls. A table that a
-- superuser made could be neither read nor dropped by the replicas.
--
-- Pages of runs are filled to 45 %, so that a finishing run finds room on its page for its second version. That makes
-- the finish a HOT update, which writes no index.
--
-- The first vacuum that finds a row freezes it. A row is inserted, updated once when the run ends, and then unchanged
-- until its day is dropped. At some hundred transactions a second a day exceeds autovacuum_freeze_max_age before that.
-- Without the early freeze, vacuum would read the whole day a second time just to freeze it.
CREATE FUNCTION punctual.create_partitions(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM FROM punctual.locks l WHERE l.name = 'days' FOR UPDATE;
    FOR day IN SELECT generate_series(first_day, last_day, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
            CONTINUE WHEN punctual.has_partition(parent, day);
            child := parent || to_char(day, '_YYYYMMDD');
            IF to_regclass('punctual.' || child || '_failures') IS NOT NULL THEN
                child := child || '_failures';
            ELSIF to_regclass('punctual.' || child) IS NULL THEN
                EXECUTE format('CREATE TABLE punctual.%I (LIKE punctual.%I INCLUDING ALL) WITH (%s)', child, parent,
                    CASE parent WHEN 'runs' THEN 'fillfactor = 45, ' ELSE '' END
                        || 'autovacuum_vacuum_insert_scale_factor = 1, autovacuum_freeze_min_age = 0');
                -- LIKE copies no triggers
                IF EXISTS (SELECT FROM pg_catalog.pg_trigger
                           WHERE tgrelid = to_regclass('punctual.' || parent) AND tgname = 'record_changes_of_insert') THEN
                    PERFORM punctual.record_changes_of(to_regclass('punctual.' || child));
                END IF;
            END IF;
            EXECUTE format('ALTER TABLE punctual.%I ATTACH PARTITION punctual.%I FOR VALUES FROM (%L) TO (%L)',
                parent, child, punctual.partition_bound(day), punctual.partition_bound(day + 1));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
COMMENT ON FUNCTION punctual.create_partitions(date, date) IS
    'Creates the missing daily partitions of runs, attempts and run_data between two days (UTC, inclusive). Returns '
    'how many it attached.';

CREATE FUNCTION punctual.retire_partitions(day date, keep_failures boolean, expected bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
    parents constant text[] := ARRAY['runs', 'attempts', 'run_data'];
    suffix constant text := to_char(day, '_YYYYMMDD');
    failures constant text := suffix || '_failures';
    parent text;
    child regclass;
    found bigint;
    kept bigint := 0;
BEGIN
    PERFORM FROM punctual.locks l WHERE l.name = 'days' FOR UPDATE;
    -- Another transaction may have attached a partition again, because a slot of that day needs it.
    IF EXISTS (SELECT FROM unnest(parents) p JOIN pg_catalog.pg_inherits i
                   ON i.inhrelid IN (to_regclass('punctual.' || p || suffix),
                                     to_regclass('punctual.' || p || failures))) THEN
        RETURN NULL;
    END IF;
    -- A run may have been written since the day was archived, or a person is reading the day.
    FOREACH child IN ARRAY ARRAY[to_regclass('punctual.runs' || suffix), to_regclass('punctual.runs' || failures)] LOOP
        CONTINUE WHEN expected IS NULL OR child IS NULL;
        EXECUTE format('SELECT count(*) FROM %s', child) INTO found;
        expected := expected - found;
    END LOOP;
    IF expected <> 0 OR EXISTS (SELECT FROM punctual.archives a
            WHERE a.day = retire_partitions.day AND a.pinned_until > now()) THEN
        PERFORM punctual.create_partitions(day, day);
        RETURN NULL;
    END IF;
    IF keep_failures AND to_regclass('punctual.runs' || failures) IS NOT NULL THEN
        PERFORM punctual.create_partitions(day, day); -- they were being removed, and now must stay
        RETURN NULL;
    END IF;
    IF keep_failures AND to_regclass('punctual.runs' || suffix) IS NOT NULL THEN
        FOREACH parent IN ARRAY parents LOOP
            EXECUTE format('CREATE TABLE punctual.%I (LIKE punctual.%I INCLUDING ALL)', parent || failures, parent);
        END LOOP;
        -- a workflow that failed keeps the runs of all its steps
        EXECUTE format('INSERT INTO punctual.%I SELECT * FROM punctual.%I r WHERE status <> ''succeeded'' OR EXISTS (
                SELECT FROM punctual.%I w WHERE w.id = r.parent_run AND w.status <> ''succeeded'')',
            'runs' || failures, 'runs' || suffix, 'runs' || suffix);
        GET DIAGNOSTICS kept = ROW_COUNT;
        FOREACH parent IN ARRAY parents[2:] LOOP
            IF kept > 0 AND to_regclass('punctual.' || parent || suffix) IS NOT NULL THEN
                EXECUTE format(
                    'INSERT INTO punctual.%I SELECT * FROM punctual.%I WHERE run_id IN (SELECT id FROM punctual.%I)',
                    parent || failures, parent || suffix, 'runs' || failures);
            END IF;
        END LOOP;
    END IF;
    FOREACH parent IN ARRAY parents LOOP
        EXECUTE format('DROP TABLE IF EXISTS punctual.%I', parent || suffix);
        IF kept = 0 THEN
            EXECUTE format('DROP TABLE IF EXISTS punctual.%I', parent || failures);
        ELSE
            EXECUTE format('ALTER TABLE punctual.%I ATTACH PARTITION punctual.%I FOR VALUES FROM (%L) TO (%L)',
                parent, parent || failures, punctual.partition_bound(day), punctual.partition_bound(day + 1));
        END IF;
    END LOOP;
    UPDATE punctual.archives a SET runs_left = kept, dropped_at = coalesce(a.dropped_at, now()), pinned_until = NULL
    WHERE a.day = retire_partitions.day AND a.archived_at IS NOT NULL;
    RETURN kept;
END
$$;
COMMENT ON FUNCTION punctual.retire_partitions(date, boolean, bigint) IS
    'Drops the detached tables of a day (UTC) of runs, attempts and run_data. With keep_failures it first moves every '
    'run that did not succeed, with its attempts and data, into a partition of its own. Returns how many runs were '
    'kept; null if a partition of the day is attached, or is attached again, because there are not as many runs as '
    'expected or the day is pinned. If expected is null, any number will do.';

-- A day that was dropped is made anew as a whole, with the failures that are still there.
CREATE FUNCTION punctual.restore_partitions(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
    parent text;
    name text;
BEGIN
    PERFORM FROM punctual.locks l WHERE l.name = 'days' FOR UPDATE;
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
        name := parent || to_char(day, '_YYYYMMDD');
        IF to_regclass('punctual.' || name || '_failures') IS NOT NULL THEN
            EXECUTE format('ALTER TABLE punctual.%I RENAME TO %I', name || '_failures', name);
        END IF;
    END LOOP;
    PERFORM punctual.create_partitions(day, day);
END
$$;
COMMENT ON FUNCTION punctual.restore_partitions(date) IS
    'Makes the partitions of a day (UTC) into which its runs are imported. They are retired like those of any day.';

CREATE TABLE punctual.archives (
    day            date NOT NULL,
    part           smallint NOT NULL,
    waiting_since  timestamptz NOT NULL DEFAULT now(),
    next_try_at    timestamptz NOT NULL DEFAULT now(),
    failures       integer NOT NULL DEFAULT 0,
    error          text,
    archived_at    timestamptz,
    command        text,
    runs           bigint,
    runs_left      bigint,
    bytes          bigint,
    sha256         text,
    dropped_at     timestamptz,
    pinned_until   timestamptz,
    CONSTRAINT archive_is_whole CHECK ((archived_at IS NULL) = (command IS NULL) AND (archived_at IS NULL) = (runs IS NULL)
        AND (archived_at IS NULL) = (runs_left IS NULL) AND (archived_at IS NULL) = (bytes IS NULL)
        AND (archived_at IS NULL) = (sha256 IS NULL)),
    CONSTRAINT dropped_day_is_archived CHECK (dropped_at IS NULL OR archived_at IS NOT NULL),
    PRIMARY KEY (day, part)
);
CREATE INDEX archives_waiting ON punctual.archives (next_try_at) WHERE archived_at IS NULL;
COMMENT ON TABLE  punctual.archives IS
    'The days of runs that were archived by --archive-command before they were dropped, and those that wait for it.';
COMMENT ON COLUMN punctual.archives.day IS 'The day (UTC) of the runs.';
COMMENT ON COLUMN punctual.archives.part IS
    '1; counts on if runs were written into a day after it was archived and dropped, which are then archived too.';
COMMENT ON COLUMN punctual.archives.waiting_since IS 'When a replica found that the day was past its retention.';
COMMENT ON COLUMN punctual.archives.next_try_at IS 'While it waits: when a replica runs the command, or runs it again.';
COMMENT ON COLUMN punctual.archives.failures IS 'How often the command has failed in a row.';
COMMENT ON COLUMN punctual.archives.error IS 'Why it failed the last time, for people; null: it has not.';
COMMENT ON COLUMN punctual.archives.archived_at IS 'When the command had succeeded; null: the day waits for it.';
COMMENT ON COLUMN punctual.archives.command IS 'The command that succeeded, with the day filled in.';
COMMENT ON COLUMN punctual.archives.runs IS 'How many runs it was given.';
COMMENT ON COLUMN punctual.archives.runs_left IS
    'How many runs of the day the database then had, or has kept or imported since. If it has another number when the day '
    'is to be dropped, the day is archived again.';
COMMENT ON COLUMN punctual.archives.bytes IS 'How many bytes it was given.';
COMMENT ON COLUMN punctual.archives.sha256 IS 'The checksum in the last line, in hexadecimal digits.';
COMMENT ON COLUMN punctual.archives.dropped_at IS 'When runs of the day were first dropped; null: they were not.';
COMMENT ON COLUMN punctual.archives.pinned_until IS 'Of a day that was imported: when it is dropped again.';


-- A statement that names runs locks all partitions and all their indexes, unless its plan is made for given ids. So what
-- finds ids in another table asks this function for the runs. It plans one query for each day of the ids, and looks the
-- runs up one by one (OFFSET 0), whatever the planner thinks of the size of a day.
CREATE FUNCTION punctual.runs_of(ids uuid[]) RETURNS SETOF punctual.runs
LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    first uuid;
    till uuid;
BEGIN
    LOOP
        SELECT u.id INTO first FROM unnest(ids) u(id) WHERE till IS NULL OR u.id >= till ORDER BY u.id LIMIT 1;
        EXIT WHEN first IS NULL;
        till := punctual.partition_bound(punctual.day_of(first) + 1);
        RETURN QUERY
            SELECT r.* FROM (SELECT DISTINCT u.id FROM unnest(ids) u(id) WHERE u.id >= first AND u.id < till) u
            CROSS JOIN LATERAL (
                SELECT * FROM punctual.runs r WHERE r.id = u.id AND r.id >= first AND r.id < till OFFSET 0) r;
        EXIT WHEN till <= first; -- that was the last day that an id can have
    END LOOP;
END
$$;
COMMENT ON FUNCTION punctual.runs_of(uuid[]) IS
    'The runs with these ids. It locks the partitions of their days, and not of all days.';

-- The first 48 bits of a run id are milliseconds since 1970: of its slot, or of a manual trigger, replay or rerun when it
-- was asked for.
CREATE FUNCTION punctual.instant_bound(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT rpad(lpad(to_hex(greatest(0, ceil(extract(epoch FROM at) * 1000))::bigint), 12, '0'), 32, '0')::uuid
$$;
COMMENT ON FUNCTION punctual.instant_bound(timestamptz) IS 'Lowest run id of an instant, as partition_bound is of a day.';

-- A condition on scheduled_for or finished_at reads all days, and one on id with a bound that is computed locks and plans
-- for all of them. These functions plan for the given instants.
CREATE FUNCTION punctual.runs_between(from_instant timestamptz, to_instant timestamptz, of_job uuid DEFAULT NULL)
RETURNS SETOF punctual.runs
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    first constant uuid := punctual.instant_bound(from_instant);
    till  constant uuid := punctual.instant_bound(to_instant);
BEGIN
    IF of_job IS NULL THEN
        RETURN QUERY SELECT * FROM punctual.runs r WHERE r.id >= first AND r.id < till;
    ELSE
        RETURN QUERY SELECT * FROM punctual.runs r WHERE r.job_id = of_job AND r.id >= first AND r.id < till;
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.runs_between(timestamptz, timestamptz, uuid) IS
    'The runs and skips whose slots lie between two instants, without the second; of all jobs, or of one. A manual '
    'trigger, replay or rerun counts when it was asked for. It reads and locks the partitions of these days only.';

CREATE FUNCTION punctual.steps_of(workflow uuid) RETURNS SETOF punctual.runs
LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    first constant uuid := rpad(left(replace(workflow::text, '-', ''), 12), 32, '0')::uuid;
    last  constant uuid := rpad(left(replace(workflow::text, '-', ''), 12), 32, 'f')::uuid;
BEGIN
    RETURN QUERY SELECT * FROM punctual.runs r WHERE r.id BETWEEN first AND last AND r.parent_run = workflow;
END
$$;
COMMENT ON FUNCTION punctual.steps_of(uuid) IS
    'The runs of the steps of a workflow''s run. They have its milliseconds, so it reads one partition.';

-- The newest run of a job is the last one in the index on (job_id, id): rows are compared, and the order is that of the
-- index, because other words let the planner walk through all runs of a day. Package days says more.
--
-- When the slot of a one-shot without a schedule was claimed. That is no longer ago than a week and the time between two
-- passes of the tidying, and a run is seldom claimed days after its slot. So a few partitions are looked at first, and
-- never more than those of forty days.
CREATE FUNCTION punctual.slot_claimed_at(job uuid) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    today constant date := (now() AT TIME ZONE 'UTC')::date;
    since uuid;
    below uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    claimed timestamptz;
BEGIN
    FOR days IN 1..2 LOOP
        since := punctual.partition_bound(today - CASE days WHEN 1 THEN 8 ELSE 40 END);
        SELECT r.created_at INTO claimed FROM punctual.runs r
        WHERE (r.job_id, r.id) >= (job, since) AND (r.job_id, r.id) < (job, below) AND r.id >= since AND r.id < below
          AND r.trigger IN ('schedule', 'catchup')
        ORDER BY r.job_id DESC, r.id DESC LIMIT 1;
        EXIT WHEN claimed IS NOT NULL;
        below := since;
    END LOOP;
    RETURN claimed;
END
$$;
COMMENT ON FUNCTION punctual.slot_claimed_at(uuid) IS
    'When the run or skip of a job''s newest slot was written, if its id is of the last forty days.';

SELECT punctual.create_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7);
-- +goose StatementEnd

-- Waiting runs, claims and the replicas that hold them, and the hosts that replicas hold back.

-- +goose StatementBegin
-- What a claim of waiting runs looks through: ready and dated, which inherit from it. It has no rows of its own.
CREATE TABLE punctual.waiting (
    run_id    uuid NOT NULL,
    job_id    uuid NOT NULL,
    due_at    timestamptz NOT NULL,
    since     timestamptz,
    until     timestamptz,
    tenant    integer NOT NULL,
    lane      smallint NOT NULL,
    waits     text NOT NULL DEFAULT 'turn',
    waits_on  text,
    CONSTRAINT rows_are_in_ready_or_dated CHECK (false) NO INHERIT
);
COMMENT ON TABLE  punctual.waiting IS
    'Runs that a claim may take once they are due: those in ready, and dated ones. Each has one of these two tables.';
COMMENT ON COLUMN punctual.waiting.due_at IS 'When it may be claimed.';
COMMENT ON COLUMN punctual.waiting.lane IS 'Queue id x 4 + priority, as in ready.';
COMMENT ON COLUMN punctual.waiting.waits IS 'What it waits for. Claims take what waits for its turn, or for its host.';
COMMENT ON COLUMN punctual.waiting.waits_on IS 'Which limit or host, as in ready.';
COMMENT ON COLUMN punctual.waiting.since IS 'Since when it has waited, as in ready.';
COMMENT ON COLUMN punctual.waiting.until IS 'Until when it waits, as in ready.';

CREATE TABLE punctual.ready (
    PRIMARY KEY (run_id),
    CONSTRAINT wait_is_known CHECK (waits IN ('turn', 'gate', 'limit', 'host', 'target', 'person')),
    CONSTRAINT wait_says_for_which_limit_or_host CHECK (waits NOT IN ('limit', 'host') OR waits_on IS NOT NULL),
    CONSTRAINT wait_for_a_host_has_its_instants CHECK (waits <> 'host' OR since IS NOT NULL AND until IS NOT NULL)
) INHERITS (punctual.waiting)
  WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_due ON punctual.ready (lane, due_at) WHERE waits IN ('turn', 'host');
CREATE INDEX ready_due_by_tenant ON punctual.ready (lane, tenant, due_at) WHERE waits IN ('turn', 'host');
CREATE INDEX ready_by_job ON punctual.ready (job_id);
CREATE INDEX ready_by_tenant ON punctual.ready (tenant, run_id);
CREATE INDEX ready_parked ON punctual.ready (tenant, waits) WHERE waits IN ('gate', 'limit', 'target', 'person');
CREATE INDEX ready_at_gate ON punctual.ready (job_id, run_id) WHERE waits = 'gate';
-- The order of those that wait at a limit: replays and backfills last, then the millisecond for which they were due,
-- with which an id begins, and then priority.
CREATE INDEX ready_at_limit
    ON punctual.ready (tenant, waits_on, ((lane & 3) = 3), left(run_id::text, 13), (lane & 3), run_id)
    WHERE waits IN ('turn', 'limit') AND waits_on IS NOT NULL;
CREATE INDEX ready_let_in ON punctual.ready (tenant, waits_on, due_at) WHERE waits = 'turn' AND waits_on IS NOT NULL;
CREATE INDEX ready_held ON punctual.ready (tenant, waits_on, since) WHERE waits = 'host';
CREATE INDEX ready_deadlines ON punctual.ready (due_at) WHERE waits IN ('target', 'person');
CREATE INDEX ready_for_approval ON punctual.ready (tenant) WHERE waits = 'person';
COMMENT ON TABLE  punctual.ready IS
    'Runs that any replica may claim: retries, manual runs, runs given back. A row leaves when it is claimed. And runs '
    'whose target works on after a 202, or about which a person is to decide.';
COMMENT ON COLUMN punctual.ready.due_at IS
    'When it may be claimed. Of a run that waits for its host: when it has waited for long enough. Of one that waits for '
    'its target or a person: the deadline.';
COMMENT ON COLUMN punctual.ready.lane IS
    'Queue id x 4 + priority (0 high, 1 normal, 2 low), or + 3 for backfills and replays of any priority.';
COMMENT ON COLUMN punctual.ready.waits IS
    'What it waits for. turn: due_at, then a worker slot. host: that its host can be reached again, until due_at. gate: '
    'that the run ends which has its job''s gate, or an older one that waits there. limit: room at a limit that jobs '
    'share. target: its target, which has answered 202 and works on. person: an approval.';
COMMENT ON COLUMN punctual.ready.waits_on IS
    'Of host: which, such as "breaker billing.internal:443" or "hanging billing.internal:443/invoices". Of limit: '
    'limits.name. Of turn: the limit that has let it in; null: none.';
COMMENT ON COLUMN punctual.ready.since IS
    'Since when it has waited for its host, its gate or a limit without an attempt. Of target and person: since the '
    'attempt began.';
COMMENT ON COLUMN punctual.ready.until IS
    'It waits for its host until then at most. If that still cannot be reached then, the run is dead.';

ALTER TABLE punctual.ready ALTER COLUMN tenant SET (n_distinct = 1000); -- as in schedules

CREATE TABLE punctual.workflows (
    run_id     uuid PRIMARY KEY,
    tenant     integer NOT NULL,
    due        boolean NOT NULL DEFAULT true,
    looked_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX workflows_due ON punctual.workflows (looked_at) WHERE due;
CREATE INDEX workflows_looked_at ON punctual.workflows (looked_at);
COMMENT ON TABLE  punctual.workflows IS
    'Runs of jobs with steps that go on: one row each. Whoever decides what follows from the runs of the steps locks it.';
COMMENT ON COLUMN punctual.workflows.due IS 'Something has happened to it or to its steps that was not looked at yet.';
COMMENT ON COLUMN punctual.workflows.looked_at IS 'When it was last looked at.';

-- What fails alone is set aside, so that everything else goes on. The table is empty as long as all goes well.
CREATE TABLE punctual.set_aside (
    kind       text NOT NULL,
    item       uuid NOT NULL,
    tenant     integer NOT NULL,
    job_id     uuid,
    reason     text NOT NULL,
    tries      integer NOT NULL DEFAULT 1,
    since      timestamptz NOT NULL DEFAULT now(),
    tried_at   timestamptz NOT NULL DEFAULT now(),
    retry_at   timestamptz NOT NULL,
    PRIMARY KEY (kind, item),
    CONSTRAINT set_aside_kind_is_known
        CHECK (kind IN ('slot', 'run', 'outcome', 'workflow', 'event', 'operation', 'pause', 'dated', 'notice',
                        'recipient'))
);
CREATE INDEX set_aside_to_retry ON punctual.set_aside (retry_at);
CREATE INDEX set_aside_of_job ON punctual.set_aside (job_id) WHERE job_id IS NOT NULL;
COMMENT ON TABLE  punctual.set_aside IS
    'Items that fail by themselves, such as a run whose outcome cannot be written. No batch takes them, so everything '
    'else goes on. Each is tried again by itself, and leaves the table when it is done.';
COMMENT ON COLUMN punctual.set_aside.kind IS
    'slot: the next slot of the job item. run: a waiting run. outcome: the end of an attempt of the run item. '
    'workflow: what follows in the workflow whose run is item. event: the runs that the event item makes. operation: '
    'work on many runs or jobs. pause: the end of the pause of the job item. dated: dated runs of the job item that no '
    'longer fit it. notice: what is to be told of the job item. recipient: the messages of the outbox row item.';
COMMENT ON COLUMN punctual.set_aside.item IS 'Its id.';
COMMENT ON COLUMN punctual.set_aside.tenant IS 'Whose it is.';
COMMENT ON COLUMN punctual.set_aside.job_id IS 'The job that it belongs to; null: none.';
COMMENT ON COLUMN punctual.set_aside.reason IS 'Why it failed the last time, as the database or the replica said it.';
COMMENT ON COLUMN punctual.set_aside.tries IS 'How often it has failed alone.';
COMMENT ON COLUMN punctual.set_aside.since IS 'When it was set aside.';
COMMENT ON COLUMN punctual.set_aside.tried_at IS 'When it was last tried.';
COMMENT ON COLUMN punctual.set_aside.retry_at IS 'When it is tried again.';

-- A dated run has no row in runs before it is claimed: a pending run keeps the table of its day, and is read by all
-- that look for runs in flight. Bodies lie in the toast table, so that ten million pending runs stay narrow. Autovacuum
-- goes by the number of dead rows, as in schedules.
CREATE TABLE punctual.dated (
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    latest_at      timestamptz,
    sequence       bigint,
    expires_after  interval,
    key            text NOT NULL,
    headers        jsonb,
    body           bytea,
    triggered_by   text,
    traceparent    text,
    PRIMARY KEY (job_id, key),
    CONSTRAINT key_is_1_to_255_bytes CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT dated_run_waits_for_its_turn_or_is_aside CHECK (waits IN ('turn', 'aside'))
) INHERITS (punctual.waiting)
  WITH (fillfactor = 90, toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0.0,
        autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX dated_due ON punctual.dated (lane, due_at) WHERE waits <> 'aside';
CREATE INDEX dated_due_by_tenant ON punctual.dated (lane, tenant, due_at) WHERE waits <> 'aside';
CREATE INDEX dated_aside ON punctual.dated (tenant, due_at) WHERE waits = 'aside';
CREATE UNIQUE INDEX dated_by_job ON punctual.dated (job_id, run_id); -- an id begins with the instant
ALTER TABLE punctual.dated ALTER COLUMN tenant SET (n_distinct = 1000); -- as in schedules
COMMENT ON TABLE  punctual.dated IS
    'Runs that a caller wants at an instant: reminders, debounced work. The claim of a row deletes it and writes the '
    'run.';
COMMENT ON COLUMN punctual.dated.run_id IS 'The id that the run will have. It changes with due_at, whose day it names.';
COMMENT ON COLUMN punctual.dated.due_at IS 'When it is due.';
COMMENT ON COLUMN punctual.dated.lane IS 'Queue id x 4 + priority, as in ready.';
COMMENT ON COLUMN punctual.dated.waits IS 'turn, or aside: out of the way of claims, as the job is paused or deleted.';
COMMENT ON COLUMN punctual.dated.waits_on IS 'Always null.';
COMMENT ON COLUMN punctual.dated.since IS 'Always null.';
COMMENT ON COLUMN punctual.dated.until IS 'Always null.';
COMMENT ON COLUMN punctual.dated.created_at IS 'When the key was first written.';
COMMENT ON COLUMN punctual.dated.latest_at IS 'No replacement moves it beyond: created_at + not_after; null: no bound.';
COMMENT ON COLUMN punctual.dated.sequence IS
    'A replacement needs a higher one, if both have one. dated_sequences keeps it for a day after the claim.';
COMMENT ON COLUMN punctual.dated.expires_after IS 'As expires_after of the job, in its place; null: the job''s.';
COMMENT ON COLUMN punctual.dated.key IS 'The caller''s name for it, unique among the job''s pending dated runs.';
COMMENT ON COLUMN punctual.dated.headers IS 'Headers that replace the job''s; null: the job''s.';
COMMENT ON COLUMN punctual.dated.body IS 'Body that replaces the job''s; null: the job''s.';
COMMENT ON COLUMN punctual.dated.triggered_by IS 'Who wrote it last, as in runs.';
COMMENT ON COLUMN punctual.dated.traceparent IS 'The W3C trace context of the request that wrote it last; null: it had none.';

CREATE TABLE punctual.dated_work (
    job_id     uuid PRIMARY KEY,
    tenant     integer NOT NULL,
    looked_at  timestamptz NOT NULL DEFAULT now(),
    after      text NOT NULL DEFAULT '',
    removed    integer NOT NULL DEFAULT 0,
    first      timestamptz,
    last       timestamptz
);
COMMENT ON TABLE  punctual.dated_work IS
    'Jobs whose dated runs do not fit them any more: the job was resumed, has another queue or priority, or was deleted. '
    'A chore moves or removes the runs, a batch at a time.';
COMMENT ON COLUMN punctual.dated_work.after IS 'The key up to which its dated runs have been looked at.';
COMMENT ON COLUMN punctual.dated_work.looked_at IS 'When its last batch was done: the jobs take turns.';
COMMENT ON COLUMN punctual.dated_work.removed IS 'How many were removed because the job was deleted.';
COMMENT ON COLUMN punctual.dated_work.first IS 'When the first of them was due.';
COMMENT ON COLUMN punctual.dated_work.last IS 'When the last of them was due.';

-- A row of dated guards against older writes of its key only as long as it is there. This table does so for a day more.
CREATE TABLE punctual.dated_sequences (
    job_id    uuid NOT NULL,
    run_id    uuid NOT NULL,
    due_at    timestamptz NOT NULL,
    left_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    sequence  bigint NOT NULL,
    tenant    integer NOT NULL,
    key       text NOT NULL,
    PRIMARY KEY (job_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX dated_sequences_by_age ON punctual.dated_sequences (left_at);
COMMENT ON TABLE  punctual.dated_sequences IS
    'The highest sequence of each key whose dated run was claimed or cancelled in the last day. A replacement with one '
    'that is not higher changes nothing.';
COMMENT ON COLUMN punctual.dated_sequences.job_id IS 'Whose run it was.';
COMMENT ON COLUMN punctual.dated_sequences.run_id IS 'The id of the run.';
COMMENT ON COLUMN punctual.dated_sequences.due_at IS 'When it was due.';
COMMENT ON COLUMN punctual.dated_sequences.left_at IS 'When it was claimed or cancelled. A day later the row goes.';
COMMENT ON COLUMN punctual.dated_sequences.sequence IS 'The sequence that it had.';
COMMENT ON COLUMN punctual.dated_sequences.tenant IS 'Whose job it is.';
COMMENT ON COLUMN punctual.dated_sequences.key IS 'The key that it had.';

CREATE FUNCTION punctual.keep_sequence() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO punctual.dated_sequences AS kept (job_id, key, tenant, sequence, run_id, due_at)
    VALUES (OLD.job_id, OLD.key, OLD.tenant, OLD.sequence, OLD.run_id, OLD.due_at)
    ON CONFLICT (job_id, key) DO UPDATE
    SET sequence = excluded.sequence, run_id = excluded.run_id, due_at = excluded.due_at, left_at = excluded.left_at
    WHERE excluded.sequence > kept.sequence OR kept.left_at < clock_timestamp() - interval '1 day';
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.keep_sequence() IS 'Keeps the sequence of a dated run that leaves the table.';

CREATE TRIGGER keep_sequence AFTER DELETE ON punctual.dated FOR EACH ROW
    WHEN (OLD.sequence IS NOT NULL) EXECUTE FUNCTION punctual.keep_sequence();

-- A UUIDv7 of an instant: its milliseconds, the version, and random bits. It is a single expression, because Postgres
-- plans any other function in SQL anew at each call.
CREATE FUNCTION punctual.run_id_at(at timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '-7'
            || substr(gen_random_uuid()::text, 16))::uuid
$$;
COMMENT ON FUNCTION punctual.run_id_at(timestamptz) IS 'An id for a run that is due at an instant.';

-- Counted for each new row, along the index of due rows: a count that is kept would be one row for all callers of the
-- tenant, and the transaction of one would hold up all others. A transaction does not see what others have not
-- committed, so several at once may exceed the limit by what they write.
CREATE FUNCTION punctual.count_dated(of_tenant integer, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM (
            SELECT FROM (
                SELECT q.id * 4 + p FROM punctual.queues q, generate_series(0, 2) p) l(lane)
            CROSS JOIN LATERAL (
                SELECT FROM punctual.dated d
                WHERE d.lane = l.lane::smallint AND d.tenant = of_tenant AND d.waits <> 'aside' LIMIT most + 1) d
            UNION ALL
            SELECT FROM punctual.dated d WHERE d.tenant = of_tenant AND d.waits = 'aside'
            LIMIT most + 1) n) > most
    THEN
        RAISE EXCEPTION 'the tenant has % pending dated runs, and may have no more (max_pending_runs)', most
            USING ERRCODE = 'PU409', HINT = 'Cancel some, or ask an operator to raise the limit.';
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.count_dated(integer, integer) IS
    'Refuses a tenant more dated runs than its max_pending_runs.';

-- It loops because the row of the key may be claimed between two statements, so it looks for a sequence that is as high
-- before it writes a replacement and after it has made a new run. Unless it replaces the row, it does not
-- lock it: the transaction of the caller may stay open for long, and would keep the row from being claimed. It inserts
-- before it looks, because a look by key that was planned for an empty table read all rows of the job.
CREATE FUNCTION punctual.write_dated(
    INOUT key text, OUT run uuid, OUT due_at timestamptz, OUT created boolean, OUT replaced boolean,
    OUT outdated boolean, of_job uuid, of_tenant integer, in_lane smallint, due timestamptz, on_conflict text, not_after interval,
    sequence bigint, expires_after interval, headers jsonb, body bytea, triggered_by text, traceparent text DEFAULT NULL)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    id constant uuid := punctual.run_id_at(due);
    now constant timestamptz := clock_timestamp();
    n punctual.dated := ROW(id, of_job, due, NULL, NULL, of_tenant, in_lane, 'turn', NULL, now, now + not_after, sequence,
        expires_after, coalesce(key, id::text), headers, body, triggered_by, traceparent); -- as it is to be
    most integer;
BEGIN
    LOOP
        SELECT s.run_id, s.due_at, false, false INTO run, due_at, created, replaced
        FROM punctual.dated_sequences s
        WHERE on_conflict = 'replace' AND s.job_id = of_job AND s.key = n.key AND s.sequence >= n.sequence
            AND s.left_at > now - interval '1 day'
            AND NOT EXISTS (SELECT FROM punctual.dated o
                            WHERE o.job_id = of_job AND o.key = n.key AND o.sequence >= n.sequence);
        outdated := FOUND;
        EXIT WHEN outdated;
        IF on_conflict = 'replace' THEN
            INSERT INTO punctual.dated AS old VALUES (n.*)
            ON CONFLICT ON CONSTRAINT dated_pkey DO UPDATE
            SET due_at = least(excluded.due_at, coalesce(old.latest_at, old.created_at + not_after)),
                run_id = punctual.run_id_at(
                    least(excluded.due_at, coalesce(old.latest_at, old.created_at + not_after))),
                lane = excluded.lane, waits = 'turn', latest_at = coalesce(old.latest_at, old.created_at + not_after),
                sequence = coalesce(excluded.sequence, old.sequence), expires_after = excluded.expires_after,
                headers = excluded.headers, body = excluded.body, triggered_by = excluded.triggered_by,
                traceparent = excluded.traceparent
            WHERE old.sequence IS NULL OR excluded.sequence IS NULL OR excluded.sequence > old.sequence
            RETURNING old.run_id, old.due_at, old.created_at = now,
                (SELECT t.max_pending_runs FROM punctual.tenants t WHERE t.id = of_tenant)
            INTO run, due_at, created, most;
        ELSE
            INSERT INTO punctual.dated AS old VALUES (n.*) ON CONFLICT ON CONSTRAINT dated_pkey DO NOTHING
            RETURNING old.run_id, old.due_at, true,
                (SELECT t.max_pending_runs FROM punctual.tenants t WHERE t.id = of_tenant)
            INTO run, due_at, created, most;
        END IF;
        IF FOUND THEN
            IF created AND on_conflict = 'replace' AND n.sequence IS NOT NULL AND EXISTS (
                SELECT FROM punctual.dated_sequences s
                WHERE s.job_id = of_job AND s.key = n.key AND s.sequence >= n.sequence
                    AND s.left_at > now - interval '1 day')
            THEN
                DELETE FROM punctual.dated o WHERE o.job_id = of_job AND o.key = n.key;
                CONTINUE;
            END IF;
            IF created AND most IS NOT NULL THEN
                PERFORM punctual.count_dated(of_tenant, most);
            END IF;
            replaced := NOT created;
            EXIT;
        END IF;
        SELECT o.run_id, o.due_at, false, false INTO run, due_at, created, replaced
        FROM punctual.dated o WHERE o.job_id = of_job AND o.key = n.key;
        EXIT WHEN FOUND;
    END LOOP;
    key := n.key;
END
$$;
COMMENT ON FUNCTION punctual.write_dated IS
    'Writes a dated run of a job; without a key its id is the key. on_conflict says what becomes of one with the same '
    'key that is pending: replace moves it, unless its sequence is as high; keep leaves it as it is. It returns the '
    'run that is pending then. A replacement writes nothing, and is outdated, if a run of the key with a sequence as '
    'high was claimed or cancelled in the last day: then it returns that one.';

CREATE TABLE punctual.claims (
    id          uuid PRIMARY KEY,
    replica     uuid NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT now(),
    run_ids     uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE  punctual.claims IS
    'The leases: one row per claimed batch. A row goes when all its runs have left the replica, and none of them is '
    'running under it any more.';
COMMENT ON COLUMN punctual.claims.id IS 'The batch.';
COMMENT ON COLUMN punctual.claims.replica IS 'Replica that holds it.';
COMMENT ON COLUMN punctual.claims.claimed_at IS 'When it was claimed.';
COMMENT ON COLUMN punctual.claims.run_ids IS 'The runs claimed together.';

-- A hundred ids are a little more than what Postgres would try to compress, in vain.
CREATE TABLE punctual.completions (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    completed_at  timestamptz NOT NULL DEFAULT now(),
    look_at       timestamptz NOT NULL,
    job_ids       uuid[] NOT NULL,
    versions      integer[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, toast_tuple_target = 8160);
CREATE INDEX completions_by_look_at ON punctual.completions (look_at);
COMMENT ON TABLE  punctual.completions IS
    'Which one-shots were completed together: one row per claim. It says which jobs are to be forgotten a week later.';
COMMENT ON COLUMN punctual.completions.id IS 'Counts up.';
COMMENT ON COLUMN punctual.completions.completed_at IS 'When the claim was made.';
COMMENT ON COLUMN punctual.completions.look_at IS
    'When it is looked at next: 7 days after the claim, and later again while a run of a job has not ended.';
COMMENT ON COLUMN punctual.completions.job_ids IS 'The jobs whose rows in schedules the claim has deleted.';
COMMENT ON COLUMN punctual.completions.versions IS
    'The version of each job. A job that is at another version was changed since, and is not forgotten for this claim.';

CREATE TABLE punctual.cancels (
    run_id        uuid PRIMARY KEY,
    replica       uuid NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  punctual.cancels IS
    'Tells replicas which of the runs they are sending are to be cancelled. The decision itself is in runs.reason.';
COMMENT ON COLUMN punctual.cancels.run_id IS 'The running run.';
COMMENT ON COLUMN punctual.cancels.replica IS 'Replica that is sending it.';
COMMENT ON COLUMN punctual.cancels.requested_at IS 'When the cancel was requested.';

-- A target that shares the database reports how its attempt ended in the transaction that does the work. The primary
-- key arbitrates: whoever ends an attempt otherwise writes this row first, in its own transaction, so exactly one of
-- the two happens. Replicas only try to write it: so they see that a target's transaction is still open, and do not
-- wait for it.
CREATE TABLE punctual.reports (
    run_id       uuid PRIMARY KEY,
    tenant       integer NOT NULL,
    fence        bigint NOT NULL,
    outcome      text,
    result       json,
    error        text,
    reported_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at   timestamptz,
    CONSTRAINT report_outcome_is_succeeded_or_failed CHECK (outcome IN ('succeeded', 'failed')),
    CONSTRAINT what_is_no_report_is_applied CHECK (outcome IS NOT NULL OR applied_at IS NOT NULL)
);
CREATE INDEX reports_to_apply ON punctual.reports (reported_at) WHERE applied_at IS NULL;
CREATE INDEX reports_by_age ON punctual.reports (reported_at);
COMMENT ON TABLE  punctual.reports IS
    'How attempts ended of runs whose targets may end them in transactions of their own: what the target reported, or '
    'that the attempt ended otherwise.';
COMMENT ON COLUMN punctual.reports.fence IS
    'Fencing token of the latest attempt that has ended. Only a later one may report.';
COMMENT ON COLUMN punctual.reports.outcome IS
    'What the target reported: succeeded or failed. Null: the attempt ended otherwise.';
COMMENT ON COLUMN punctual.reports.result IS 'The reported result, until it is in run_data.';
COMMENT ON COLUMN punctual.reports.error IS 'The reported error, for people, until it is on the run.';
COMMENT ON COLUMN punctual.reports.reported_at IS 'When the target reported, or the attempt ended otherwise.';
COMMENT ON COLUMN punctual.reports.applied_at IS
    'When a replica ended the attempt accordingly; null: the report has committed and is to be applied.';

-- What callers in SQL give as data is refused as the API refuses it: see domain.UnfitJSON. Postgres takes json that Go
-- does not read. All of it is looked at as text: the operators of json fail on what is to be found here.
CREATE FUNCTION punctual.outside_texts(data text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(p, '' ORDER BY i)
    FROM unnest(string_to_array(replace(replace(data, E'\\\\', ''), E'\\"', ''), '"')) WITH ORDINALITY u(p, i)
    WHERE i % 2 = 1
$$;
COMMENT ON FUNCTION punctual.outside_texts(text) IS 'What is left of JSON without its strings.';

CREATE FUNCTION punctual.escaped_braces(data json) RETURNS json
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT replace(replace(replace(replace(replace(data::text, E'\\\\', E'\x01'), E'\\u007b', '{'), E'\\u007B', '{'),
                           '{{', '{{{{'), E'\x01', E'\\\\')::json
$$;
COMMENT ON FUNCTION punctual.escaped_braces(json) IS
    'JSON in which braces are no placeholders when it is part of a body whose placeholders are filled in.';

-- Payloads that are sealed (--encrypt-payloads) begin with what SQL has to know of them: see package seal.
CREATE FUNCTION punctual.is_sealed(payload json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(starts_with(payload::text, '"punctual-sealed-'), false)
$$;
COMMENT ON FUNCTION punctual.is_sealed(json) IS
    'Whether a payload in JSON is not as it was given, because it is encrypted or begins as if it were.';

CREATE FUNCTION punctual.payload_type(payload json) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN starts_with(payload::text, '"punctual-sealed-1:')
                THEN CASE split_part(payload::text, ':', 2)
                     WHEN 'o' THEN 'object' WHEN 'a' THEN 'array' WHEN 's' THEN 'string' ELSE 'number' END
                ELSE json_typeof(payload) END
$$;
COMMENT ON FUNCTION punctual.payload_type(json) IS 'json_typeof of a payload, encrypted or not.';

CREATE FUNCTION punctual.payload_bytes(payload text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN starts_with(payload, 'punctual-sealed-1:')
                THEN split_part(left(payload, 40), ':', 3)::integer ELSE octet_length(payload) END
$$;
COMMENT ON FUNCTION punctual.payload_bytes(text) IS 'How long a payload is, encrypted or not.';

CREATE FUNCTION punctual.payload_bytes(payload json) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN starts_with(payload::text, '"punctual-sealed-1:')
                THEN split_part(left(payload::text, 40), ':', 3)::integer ELSE octet_length(payload::text) END
$$;
COMMENT ON FUNCTION punctual.payload_bytes(json) IS 'How long a payload is, encrypted or not.';

CREATE FUNCTION punctual.payload_bytes(payload bytea) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN substring(payload FROM 1 FOR 18) = 'punctual-sealed-1:'
                THEN split_part(encode(substring(payload FROM 1 FOR 40), 'escape'), ':', 3)::integer
                ELSE octet_length(payload) END
$$;
COMMENT ON FUNCTION punctual.payload_bytes(bytea) IS
    'How long a payload is, encrypted or not. Of a body whose parts are put together when it is read: about as long.';

CREATE FUNCTION punctual.nests_deeper(data text, levels integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    brackets text;
BEGIN
    IF octet_length(data) - octet_length(replace(replace(data, '[', ''), '{', '')) <= levels THEN
        RETURN false; -- as of nearly all data
    END IF;
    brackets := translate(punctual.outside_texts(data), E'{}0123456789.+-eE,: \t\n\rtrufalsn', '[]');
    FOR level IN 1 .. levels LOOP
        brackets := replace(brackets, '[]', '');
        EXIT WHEN brackets = '';
    END LOOP;
    RETURN brackets <> '';
END
$$;
COMMENT ON FUNCTION punctual.nests_deeper(text, integer) IS
    'Whether arrays and objects of JSON nest deeper than so many levels.';

CREATE FUNCTION punctual.escape_fault(data text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    escapes text;
    pair constant text := E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}';
BEGIN
    IF position(E'\\u' IN data) = 0 THEN
        RETURN NULL;
    END IF;
    escapes := replace(data, E'\\\\', '..'); -- what is left of backslashes begins an escape
    IF position(E'\\u0000' IN escapes) > 0
        OR regexp_replace(escapes, pair, '..', 'g') ~ E'\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}' THEN
        RETURN E'must not hold the character \\u0000 or half of a surrogate pair: the database cannot store them';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.escape_fault(text) IS
    'What is wrong with the escapes in JSON, as the API says it; null: nothing.';

CREATE FUNCTION punctual.number_fault(data text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF data ~ '[0-9][eE]|[0-9.]{255}' THEN
        PERFORM sum(abs(n[1]::float8) * 0)
        FROM regexp_matches(punctual.outside_texts(data), '-?[0-9.]+(?:[eE][-+]?[0-9]+)?', 'g') n;
    END IF;
    RETURN NULL;
EXCEPTION WHEN numeric_value_out_of_range THEN
    RETURN 'has a number that is larger than 1.7e308 or smaller than 5e-324; write it as a string';
END
$$;
COMMENT ON FUNCTION punctual.number_fault(text) IS
    'What is wrong with the numbers in JSON, as the API says it of results; null: nothing.';

CREATE FUNCTION punctual.data_fault(data json, most integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    given constant text := data::text;
    bytes constant integer := octet_length(convert_to(given, 'UTF8'));
BEGIN
    IF bytes > most THEN
        RETURN format('%s bytes; at most %s (%s KiB)', bytes, most, most / 1024);
    ELSIF punctual.nests_deeper(given, 64) THEN
        RETURN 'nests deeper than 64 levels';
    END IF;
    RETURN punctual.escape_fault(given);
END
$$;
COMMENT ON FUNCTION punctual.data_fault(json, integer) IS
    'What is wrong with data that a caller gives, of up to so many bytes, as the API says it; null: nothing.';

-- Whoever has written a row of reports and not yet committed makes the next writer wait, which is how a target's open
-- transaction is noticed. Most often no target has one open, and one statement does it. Else each row is tried. A row
-- that could not be written within the moment is left out.
CREATE FUNCTION punctual.close_reports(of_runs uuid[], of_tenants integer[], of_fences bigint[])
RETURNS TABLE (run uuid, closed boolean)
LANGUAGE plpgsql SET lock_timeout = '5ms' AS $$
#variable_conflict use_column
DECLARE
    ended uuid[];
    tried uuid;
BEGIN
    BEGIN
        ended := punctual.close_free_reports(of_runs, of_tenants, of_fences);
        RETURN QUERY SELECT DISTINCT u.id, u.id = ANY(ended) FROM unnest(of_runs) u(id);
        RETURN;
    EXCEPTION
        WHEN lock_not_available THEN
            NULL;
    END;
    FOR tried IN SELECT DISTINCT u.id FROM unnest(of_runs) u(id) ORDER BY u.id LOOP
        BEGIN
            ended := punctual.close_free_reports(
                ARRAY(SELECT a.id FROM unnest(of_runs) a(id) WHERE a.id = tried),
                ARRAY(SELECT a.tenant FROM unnest(of_runs, of_tenants) a(id, tenant) WHERE a.id = tried),
                ARRAY(SELECT a.fence FROM unnest(of_runs, of_fences) a(id, fence) WHERE a.id = tried));
            RETURN QUERY SELECT tried, tried = ANY(ended);
        EXCEPTION
            WHEN lock_not_available THEN
                NULL;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION punctual.close_reports(uuid[], integer[], bigint[]) IS
    'Ends attempts that have no report: they cannot report any more. Leaves out runs whose targets have a transaction '
    'open that reports. closed: false if there is a report.';

CREATE FUNCTION punctual.close_free_reports(of_runs uuid[], of_tenants integer[], of_fences bigint[]) RETURNS uuid[]
LANGUAGE sql AS $$
    WITH closed AS (
        INSERT INTO punctual.reports AS p (run_id, tenant, fence, applied_at)
        SELECT u.id, u.tenant, u.fence, now()
        FROM (SELECT id, min(tenant) AS tenant, max(fence) AS fence
              FROM unnest(of_runs, of_tenants, of_fences) AS a(id, tenant, fence) GROUP BY id ORDER BY id) u
        ON CONFLICT (run_id) DO UPDATE
        SET fence = excluded.fence, outcome = NULL, result = NULL, error = NULL, reported_at = now(), applied_at = now()
        WHERE p.fence < excluded.fence AND p.outcome IS DISTINCT FROM 'succeeded'
        RETURNING p.run_id)
    SELECT coalesce(array_agg(run_id), '{}') FROM closed
$$;
COMMENT ON FUNCTION punctual.close_free_reports(uuid[], integer[], bigint[]) IS
    'Ends attempts that have no report, and waits for transactions that write one. Returns those that it has ended.';

-- A replica knows for at most ten seconds less than it should which tenants report: then it claims nothing. So the runs
-- that were claimed 15 s after reports_since are known to all as runs whose targets may report.
--
-- The runs are read without a lock, and in a transaction with one snapshot they are as they were at its beginning. The
-- insert decides: it waits for whoever else is ending the attempt, and sees what has committed.
CREATE FUNCTION punctual.report_for(
    of_tenant integer, run uuid, fencing_token bigint, outcome text, result json, error text) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_variable
DECLARE
    r record;
    over constant text := 'Roll back: this attempt is over, and another one does the work, or has done it.';
    fault constant text := coalesce(punctual.data_fault(result, 65536), punctual.number_fault(result::text));
BEGIN
    IF run IS NULL OR fencing_token IS NULL THEN
        RAISE EXCEPTION 'run and fencing_token are needed' USING ERRCODE = 'PU422',
            HINT = 'They are in the headers Punctual-Run and Punctual-Fencing-Token of the request.';
    END IF;
    IF fault IS NOT NULL THEN
        PERFORM punctual.refuse('PU422', 'result', fault, 'Keep large results elsewhere, and report where.');
    END IF;
    SELECT s.status, s.fence, s.reason, t.reports_since, s.claimed_at < t.reports_since + interval '15 s' AS early
    INTO r
    FROM punctual.runs s JOIN punctual.tenants t ON t.id = s.tenant
    WHERE s.id = run AND s.tenant = of_tenant;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no run %', run USING ERRCODE = 'PU404',
            HINT = 'Its id is in the header Punctual-Run of the request.';
    ELSIF r.status <> 'running' OR r.fence IS DISTINCT FROM fencing_token THEN
        RAISE EXCEPTION 'the attempt with fencing token % has ended: the status of run % is %',
            fencing_token, run, r.status USING ERRCODE = 'PU409', HINT = over;
    ELSIF EXISTS (SELECT FROM punctual.workflows w WHERE w.run_id = run) THEN
        RAISE EXCEPTION 'run % is of a job with steps, and ends when they have ended', run USING ERRCODE = 'PU409',
            HINT = 'Report for the run of the step: its id is in the header Punctual-Run of the request.';
    ELSIF EXISTS (SELECT FROM punctual.ready y WHERE y.run_id = run AND y.waits = 'person') THEN
        RAISE EXCEPTION 'run % waits for approval', run USING ERRCODE = 'PU409',
            HINT = 'A person approves or rejects it: by the API, on its page, or with the link in its notice.';
    ELSIF r.reason IN ('cancelled_by_user', 'replaced') THEN
        RAISE EXCEPTION 'run % is being cancelled (%)', run, r.reason USING ERRCODE = 'PU409', HINT = 'Roll back.';
    ELSIF r.reports_since IS NULL OR r.early THEN
        RAISE EXCEPTION 'run % was sent before all replicas knew that its target may report here', run
            USING ERRCODE = 'PU409', HINT = 'Roll back, and answer the request with 503: the next attempt may report.';
    END IF;
    INSERT INTO punctual.reports AS p (run_id, tenant, fence, outcome, result, error)
    VALUES (run, of_tenant, fencing_token, outcome, nullif(result::text, 'null')::json, error)
    ON CONFLICT ON CONSTRAINT reports_pkey DO UPDATE
    SET fence = excluded.fence, outcome = excluded.outcome, result = excluded.result, error = excluded.error,
        reported_at = excluded.reported_at, applied_at = NULL
    WHERE p.fence < excluded.fence AND p.outcome IS DISTINCT FROM 'succeeded';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % has a report already, or this attempt has ended', run
            USING ERRCODE = 'PU409', HINT = over;
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.report_for(integer, uuid, bigint, text, json, text) IS
    'Reports, for the target of an attempt of a tenant''s run, how the attempt ended: succeeded or failed. It does so if '
    'and only if the caller''s transaction commits.';

CREATE FUNCTION punctual.complete_for(of_tenant integer, run uuid, fencing_token bigint, result json) RETURNS void
LANGUAGE sql AS $$
    SELECT punctual.report_for(of_tenant, run, fencing_token, 'succeeded', result, NULL)
$$;
COMMENT ON FUNCTION punctual.complete_for(integer, uuid, bigint, json) IS
    'Ends a run as succeeded, with a result unless that is null, if and only if the caller''s transaction commits.';

CREATE FUNCTION punctual.fail_for(of_tenant integer, run uuid, fencing_token bigint, error text) RETURNS void
LANGUAGE sql AS $$
    SELECT punctual.report_for(of_tenant, run, fencing_token, 'failed', NULL,
                               coalesce(nullif(left(error, 4096), ''), 'the target reported that it failed'))
$$;
COMMENT ON FUNCTION punctual.fail_for(integer, uuid, bigint, text) IS
    'Ends an attempt as failed, if and only if the caller''s transaction commits. The run is retried as its job says.';

-- A few rows in a page or two. Each is updated every 2 s and pruned by the next update. With the defaults, three such
-- rows would have the table vacuumed every minute for ever.
CREATE TABLE punctual.replicas (
    id          uuid PRIMARY KEY,
    host        text NOT NULL,
    version     text NOT NULL,
    zone_data   text,
    queues      jsonb NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    renewed_at  timestamptz NOT NULL DEFAULT now(),
    beat        bigint NOT NULL DEFAULT 0,
    draining    boolean NOT NULL DEFAULT false,
    lacks       text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE  punctual.replicas IS 'One row per running process, under a fresh random id at every start.';
COMMENT ON COLUMN punctual.replicas.id IS 'The process.';
COMMENT ON COLUMN punctual.replicas.host IS 'Host name, for people.';
COMMENT ON COLUMN punctual.replicas.version IS 'Version of its binary.';
COMMENT ON COLUMN punctual.replicas.zone_data IS 'Release of the time zone data it computes slots with, such as 2026f.';
COMMENT ON COLUMN punctual.replicas.queues IS 'Its worker slots per queue.';
COMMENT ON COLUMN punctual.replicas.started_at IS 'When it started.';
COMMENT ON COLUMN punctual.replicas.renewed_at IS
    'When it last renewed its heartbeat, for people. Other replicas judge by beat.';
COMMENT ON COLUMN punctual.replicas.beat IS 'Heartbeat counter, raised every 2 s.';
COMMENT ON COLUMN punctual.replicas.draining IS 'True: it was told to stop and claims no more.';
COMMENT ON COLUMN punctual.replicas.lacks IS
    'What requests need and it does not have now, such as file descriptors, so that it gives runs back unsent and claims '
    'less; null: nothing.';

CREATE TABLE punctual.replicas_seen (
    id          uuid PRIMARY KEY,
    host        text NOT NULL,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX replicas_seen_at ON punctual.replicas_seen (seen_at);
COMMENT ON TABLE  punctual.replicas_seen IS
    'Every replica that has run within the retention of failures, so that the history names the host of a run.';
COMMENT ON COLUMN punctual.replicas_seen.id IS 'The process: runs.replica.';
COMMENT ON COLUMN punctual.replicas_seen.host IS 'Host name, for people.';
COMMENT ON COLUMN punctual.replicas_seen.version IS 'Version of its binary.';
COMMENT ON COLUMN punctual.replicas_seen.started_at IS 'When it started.';
COMMENT ON COLUMN punctual.replicas_seen.seen_at IS 'When it was last noted; of a running replica about once an hour.';

CREATE TABLE punctual.service_periods (
    queue     smallint NOT NULL,
    since     timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    survived  boolean NOT NULL,
    PRIMARY KEY (queue, since),
    CONSTRAINT service_ends_after_it_began CHECK (until >= since)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE  punctual.service_periods IS
    'Periods in which live replicas served a queue. The gaps between them explain slots that came late or were missed.';
COMMENT ON COLUMN punctual.service_periods.queue IS 'The queue: queues.id.';
COMMENT ON COLUMN punctual.service_periods.since IS 'When a replica first served it again.';
COMMENT ON COLUMN punctual.service_periods.until IS
    'When a replica last noted that it is served; replicas do so about every ten seconds.';
COMMENT ON COLUMN punctual.service_periods.survived IS
    'True: a replica that serves it had been running since before the gap, so the database was away, or unreachable.';

CREATE TABLE punctual.holds (
    replica     uuid NOT NULL REFERENCES punctual.replicas ON DELETE CASCADE,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    held_by     text NOT NULL,
    state       text NOT NULL,
    host        text NOT NULL,
    path        text NOT NULL,
    failures    integer NOT NULL,
    last_error  text NOT NULL,
    since       timestamptz NOT NULL,
    probe_at    timestamptz,
    reset_at    timestamptz,
    CONSTRAINT hold_state_is_known CHECK (state IN ('open', 'recovering', 'hanging')),
    PRIMARY KEY (replica, tenant, held_by)
);
CREATE INDEX holds_of_tenant ON punctual.holds (tenant, held_by);
COMMENT ON TABLE  punctual.holds IS
    'The targets for which replicas hold runs back, each replica by its own observations. A row goes when its replica '
    'no longer holds back runs for that target, or is gone.';
COMMENT ON COLUMN punctual.holds.replica IS 'The replica that holds runs back: replicas.id.';
COMMENT ON COLUMN punctual.holds.tenant IS 'The tenant whose runs are held back: tenants.id.';
COMMENT ON COLUMN punctual.holds.held_by IS 'What the runs wait for, as in ready.waits_on.';
COMMENT ON COLUMN punctual.holds.state IS
    'open: the host cannot be reached. recovering: the host can be reached again, and gets more and more requests. '
    'hanging: its requests time out.';
COMMENT ON COLUMN punctual.holds.host IS 'Host and port.';
COMMENT ON COLUMN punctual.holds.path IS 'The path that hangs; empty: the whole host.';
COMMENT ON COLUMN punctual.holds.failures IS 'How many requests in a row could not be sent, or timed out.';
COMMENT ON COLUMN punctual.holds.last_error IS 'Why the latest of these requests failed.';
COMMENT ON COLUMN punctual.holds.since IS 'Since when runs are held back.';
COMMENT ON COLUMN punctual.holds.probe_at IS
    'When the next probe is sent; null: one is under way, or the host is not probed.';
COMMENT ON COLUMN punctual.holds.reset_at IS
    'When a caller asked for a reset that the replica has not carried out yet; null: no reset is pending.';
-- +goose StatementEnd

-- The feed of changes: which runs have ended, in an order in which a reader misses none.

-- +goose StatementBegin
CREATE TABLE punctual.change_feeds (
    tenant    integer PRIMARY KEY,
    id        uuid NOT NULL DEFAULT gen_random_uuid(),
    system    text NOT NULL DEFAULT '',
    since     timestamptz NOT NULL DEFAULT now(),
    gone_xid  xid8 NOT NULL DEFAULT '0',
    gone_id   bigint NOT NULL DEFAULT 0,
    CONSTRAINT feed_id_is_unique UNIQUE (id)
);
COMMENT ON TABLE  punctual.change_feeds IS 'Tenants whose ended runs are recorded in changes: those with changes_kept.';
COMMENT ON COLUMN punctual.change_feeds.id IS 'Which feed it is: a feed that starts again has another id.';
COMMENT ON COLUMN punctual.change_feeds.system IS
    'System identifier of the Postgres whose transactions put the feed in order; empty: it does not tell it.';
COMMENT ON COLUMN punctual.change_feeds.since IS 'It has every run whose end was committed later.';
COMMENT ON COLUMN punctual.change_feeds.gone_xid IS 'The last row of changes that was removed: its xid. 0: none was.';
COMMENT ON COLUMN punctual.change_feeds.gone_id IS 'The last row of changes that was removed: its id. 0: none was.';

-- A row is read once no transaction with a lower xid is open. So no transaction can commit before what was read.
CREATE TABLE punctual.changes (
    feed         uuid NOT NULL,
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id           bigint GENERATED ALWAYS AS IDENTITY,
    tenant       integer NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    runs         uuid[] NOT NULL,
    PRIMARY KEY (feed, xid, id)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE  punctual.changes IS
    'Runs that have ended, of tenants with changes_kept: a row for each statement that ended some. Written by a trigger '
    'of runs, which exists only while a tenant has changes_kept.';
COMMENT ON COLUMN punctual.changes.feed IS 'change_feeds.id.';
COMMENT ON COLUMN punctual.changes.xid IS 'The transaction that ended them. It orders the rows.';
COMMENT ON COLUMN punctual.changes.id IS 'Orders the rows of a transaction.';
COMMENT ON COLUMN punctual.changes.recorded_at IS 'When it was written, before its transaction committed.';
COMMENT ON COLUMN punctual.changes.runs IS 'The runs.';

-- A trigger function with the rights of its owner must not touch a row of any other table: to convert a value of a type
-- of somebody's own runs a function of somebody's own, with those rights.
CREATE FUNCTION punctual.refuse_other_table(function_name text, in_schema text, relation text, meant text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF in_schema <> 'punctual' OR relation !~ meant THEN
        RAISE EXCEPTION 'punctual.% is no trigger of table %.%', function_name, in_schema, relation
            USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.refuse_other_table(text, text, text, text) IS
    'Refuses to be called for a table that a trigger function is not meant for.';

-- SECURITY DEFINER, because runs are written in the name of tenants too, who write no changes.
CREATE FUNCTION punctual.record_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM punctual.refuse_other_table('record_changes', TG_TABLE_SCHEMA::text, TG_TABLE_NAME::text, '^runs(_\d{8}(_failures)?)?$');
    INSERT INTO punctual.changes (feed, tenant, runs)
    SELECT f.id, w.tenant, w.runs
    FROM (SELECT w.tenant, array_agg(w.id) AS runs
          FROM written w
          WHERE w.status IN ('succeeded', 'dead', 'skipped', 'cancelled')
          GROUP BY w.tenant) w
    CROSS JOIN LATERAL (SELECT f.id FROM punctual.change_feeds f WHERE f.tenant = w.tenant OFFSET 0) f; -- of no other
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.record_changes() IS 'Records in changes which runs a statement has ended.';

-- The trigger is of statements, so it must be on every table that a statement may name: runs, and each of its days.
CREATE FUNCTION punctual.record_changes_of(relation regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    event text;
BEGIN
    FOREACH event IN ARRAY ARRAY['insert', 'update'] LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER record_changes_of_%s AFTER %s ON %s REFERENCING NEW TABLE AS written '
            'FOR EACH STATEMENT EXECUTE FUNCTION punctual.record_changes()', event, event, relation);
    END LOOP;
END
$$;
COMMENT ON FUNCTION punctual.record_changes_of(regclass) IS
    'Has record_changes() called for what is written to runs, or to one of its partitions.';

CREATE FUNCTION punctual.recorded_tables() RETURNS SETOF regclass
LANGUAGE sql STABLE AS $$
    SELECT tgrelid::regclass FROM pg_catalog.pg_trigger WHERE tgfoid = 'punctual.record_changes()'::regprocedure
    GROUP BY tgrelid
$$;
COMMENT ON FUNCTION punctual.recorded_tables() IS 'The tables whose changes are recorded: runs and its days, or none.';

-- Creating a trigger waits until no transaction writes to its table, and none can write to it until this one ends.
-- So a feed misses no run that ends after it began. The wait is longer than it takes autovacuum to give way.
CREATE FUNCTION punctual.begin_changes(new_feeds_of integer[]) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    PERFORM FROM punctual.locks l WHERE l.name = 'days' FOR UPDATE;
    PERFORM punctual.record_changes_of(t.relation) FROM (
        SELECT i.inhrelid::regclass FROM pg_catalog.pg_inherits i WHERE i.inhparent = 'punctual.runs'::regclass
        UNION ALL SELECT 'punctual.runs'::regclass) t(relation);
    INSERT INTO punctual.change_feeds AS f (tenant, system, since)
    SELECT u.tenant, punctual.system_identifier(), clock_timestamp() FROM unnest(new_feeds_of) u(tenant)
    ON CONFLICT (tenant) DO UPDATE
    SET id = excluded.id, system = excluded.system, since = excluded.since, gone_xid = '0', gone_id = 0;
END
$$;
COMMENT ON FUNCTION punctual.begin_changes(integer[]) IS 'Begins the feeds of tenants (tenants.id) anew.';

CREATE FUNCTION punctual.end_changes() RETURNS integer
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    relation regclass;
    ended integer := 0;
BEGIN
    PERFORM FROM punctual.locks l WHERE l.name = 'days' FOR UPDATE;
    IF NOT EXISTS (SELECT FROM punctual.change_feeds) THEN
        FOR relation IN SELECT punctual.recorded_tables() LOOP
            EXECUTE format('DROP TRIGGER IF EXISTS record_changes_of_insert ON %s', relation);
            EXECUTE format('DROP TRIGGER IF EXISTS record_changes_of_update ON %s', relation);
            ended := ended + 1;
        END LOOP;
    END IF;
    RETURN ended;
END
$$;
COMMENT ON FUNCTION punctual.end_changes() IS
    'Removes the triggers that record changes, if no tenant has a feed. Returns of how many tables.';
-- +goose StatementEnd

-- Events: each is one row with its body, however many jobs run at it.

-- +goose StatementBegin
-- Bodies lie in the toast table, so that a fan-out that notes its progress rewrites narrow rows.
CREATE TABLE punctual.events (
    id          uuid PRIMARY KEY,
    tenant      integer NOT NULL,
    name        text NOT NULL,
    emitted_at  timestamptz NOT NULL,
    emitted_by  text NOT NULL,
    subscribed  integer NOT NULL,
    made        integer NOT NULL DEFAULT 0,
    skipped     integer NOT NULL DEFAULT 0,
    unmatched   integer NOT NULL DEFAULT 0,
    turn_at     timestamptz,
    after       uuid,
    behind      uuid[],
    ended_at    timestamptz,
    body        bytea,
    traceparent text,
    CONSTRAINT event_waits_for_its_turn_or_has_ended CHECK ((turn_at IS NULL) = (ended_at IS NOT NULL)),
    CONSTRAINT event_body_is_256_kib_or_less CHECK (octet_length(body) <= 262144
        OR punctual.payload_bytes(body) <= 262144)
) WITH (fillfactor = 90, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000);
CREATE INDEX events_by_name ON punctual.events (tenant, name, id);
CREATE INDEX events_pending ON punctual.events (turn_at) WHERE turn_at IS NOT NULL;
CREATE INDEX events_by_turn ON punctual.events (tenant, turn_at) WHERE turn_at IS NOT NULL;
COMMENT ON TABLE  punctual.events IS
    'Events, each with the state of its fan-out: which subscribers have their run. Kept at least as long as failures.';
COMMENT ON COLUMN punctual.events.id IS
    'UUIDv7 of the event. Its runs have ids that begin with the same milliseconds, and go on with a hash of event and '
    'job: so each subscriber has one run.';
COMMENT ON COLUMN punctual.events.name IS 'Name of the event. Jobs subscribe to it.';
COMMENT ON COLUMN punctual.events.emitted_at IS 'When it was emitted. Subscribers are the jobs whose version was valid then.';
COMMENT ON COLUMN punctual.events.emitted_by IS 'Who emitted it, in words.';
COMMENT ON COLUMN punctual.events.subscribed IS 'How many jobs had subscribed, whatever their filters.';
COMMENT ON COLUMN punctual.events.made IS 'How many runs it has made so far.';
COMMENT ON COLUMN punctual.events.skipped IS 'How many subscribers got a skip so far: they were paused, or deleted since.';
COMMENT ON COLUMN punctual.events.unmatched IS 'How many subscribers it did not match so far: their filters say so.';
COMMENT ON COLUMN punctual.events.turn_at IS
    'While its fan-out is not over: since when it waits for its next batch. The oldest is next, so that events share a '
    'replica. Null: it is over.';
COMMENT ON COLUMN punctual.events.after IS 'The last job that the fan-out has looked at; null: none.';
COMMENT ON COLUMN punctual.events.behind IS 'Earlier jobs that it has passed over, because others had locked them.';
COMMENT ON COLUMN punctual.events.ended_at IS 'When the fan-out was over; null: it is not.';
COMMENT ON COLUMN punctual.events.body IS 'Its body, JSON; null: it has none. Each run reads it when it is claimed.';
COMMENT ON COLUMN punctual.events.traceparent IS
    'The W3C trace context of the request that emitted it, to which the traces of its runs link; null: it had none.';

-- Locks no job: the caller's transaction may stay open for minutes.
CREATE FUNCTION punctual.write_event(
    of_tenant integer, of_name text, body bytea, emitted_by text, traceparent text DEFAULT NULL, OUT event uuid,
    OUT subscribed integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now constant timestamptz := clock_timestamp();
BEGIN
    event := punctual.run_id_at(now);
    SELECT count(*) INTO subscribed
    FROM punctual.job_versions v
    JOIN punctual.jobs j ON j.id = v.job_id AND j.version = v.version
    WHERE v.tenant = of_tenant AND v.event = of_name AND j.state <> 'deleted';
    INSERT INTO punctual.events (id, tenant, name, emitted_at, emitted_by, subscribed, turn_at, ended_at, body,
                                 traceparent)
    VALUES (event, of_tenant, of_name, now, emitted_by, subscribed, CASE WHEN subscribed > 0 THEN now END,
            CASE WHEN subscribed = 0 THEN now END, body, traceparent);
END
$$;
COMMENT ON FUNCTION punctual.write_event IS
    'Writes an event, and returns its id and how many jobs had subscribed. Without subscribers its fan-out is over.';

CREATE FUNCTION punctual.emit_for(of_tenant integer, by_role text, event text, body json) RETURNS uuid
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    actor constant text := 'database:' || session_user || '/' || by_role;
    fault constant text := punctual.data_fault(body, 262144);
BEGIN
    IF event IS NULL OR event COLLATE "C" !~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$' THEN
        PERFORM punctual.refuse('PU422', 'event',
            coalesce(to_json(left(event, 80)) || ' is no name of an event', 'is required'),
            'A name has 1 to 128 letters, digits and . _ : -, the first a letter or digit.');
    ELSIF fault IS NOT NULL THEN
        PERFORM punctual.refuse('PU422', 'body', fault, 'Store the data in a table of yours, and send its key.');
    END IF;
    RETURN (punctual.write_event(of_tenant, event, convert_to(body::text, 'UTF8'), actor)).event;
END
$$;
COMMENT ON FUNCTION punctual.emit_for IS
    'Emits an event, and returns its id. The event exists if the transaction commits.';
-- +goose StatementEnd

-- Runs from a caller's own transaction. Each grant is a schema of thin functions in which the tenant is a constant: so
-- neither the session nor the role that calls decides for whom they act. They are the only way to the functions that
-- they call, which nobody else may execute. None of them locks a row of a job: the caller's transaction may stay open
-- for minutes. Their texts hold no backslash outside of E'', because a caller may have standard_conforming_strings off.

-- +goose StatementBegin
CREATE TABLE punctual.grants (
    schema      text PRIMARY KEY,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    role        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    made_schema boolean NOT NULL DEFAULT false,
    CONSTRAINT grant_schema_is_a_plain_name CHECK (schema ~ '^[a-z_][a-z0-9_]{0,62}$'),
    CONSTRAINT grant_schema_is_not_common
        CHECK (left(schema, 3) <> 'pg_' AND schema NOT IN ('public', 'information_schema'))
);
COMMENT ON TABLE  punctual.grants IS 'Schemas through which a database role makes runs of a tenant''s jobs, in SQL.';
COMMENT ON COLUMN punctual.grants.schema IS 'The schema. punctual.make_schema makes its functions.';
COMMENT ON COLUMN punctual.grants.tenant IS 'The tenant whose jobs it reaches: tenants.id.';
COMMENT ON COLUMN punctual.grants.role IS 'The role that may execute its functions.';
COMMENT ON COLUMN punctual.grants.created_at IS 'When it was granted.';
COMMENT ON COLUMN punctual.grants.created_by IS 'Who granted it.';
COMMENT ON COLUMN punctual.grants.made_schema IS
    'Whether the grant made the schema. Only then is the schema dropped when the grant is taken back.';

CREATE FUNCTION punctual.refuse(code text, field text, message text, hint text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = field || ': ' || message, DETAIL = 'Field: ' || field || '.',
        HINT = hint, COLUMN = field;
END
$$;
COMMENT ON FUNCTION punctual.refuse IS
    'Raises an error of the class PU: PU404 there is no such thing, PU409 it conflicts with another, PU422 it is not '
    'valid.';

CREATE FUNCTION punctual.header_fault(name text, value text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN name = '' THEN 'a header needs a name'
        WHEN octet_length(name) > 256 THEN 'a header''s name must have at most 256 bytes'
        WHEN name COLLATE "C" !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$'
            THEN 'a header''s name must consist of letters, digits and any of !#$%&''*+-.^_`|~'
        WHEN replace(lower(name COLLATE "C"), '_', '-') ~ ('^(host|content-length|transfer-encoding|connection|'
            'keep-alive|te|trailer|upgrade|http2-settings|expect|idempotency-key|traceparent|'
            '(proxy|webhook|punctual)-.*)$')
            THEN 'it cannot be set: it belongs to the connection, or Punctual adds it to every attempt'
        WHEN octet_length(value) > 8192 THEN 'it must be at most 8192 bytes long'
        WHEN btrim(value, E' \t') <> value THEN 'it must not begin or end with a space or tab'
        WHEN value COLLATE "C" ~ E'[\\x01-\\x08\\x0a-\\x1f\\x7f]' THEN 'it must be one line without control characters'
    END
$$;
COMMENT ON FUNCTION punctual.header_fault(text, text) IS
    'What is wrong with a header of a run''s own, as the API says it; null: nothing.';

CREATE FUNCTION punctual.check_request(within text, headers json, body json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    fault text := punctual.data_fault(body, 262144);
    h record;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM punctual.refuse('PU422', within || 'body', fault,
            'Store the data in a table of yours, and send its key.');
    END IF;
    fault := punctual.data_fault(headers, 1048576);
    IF fault IS NOT NULL THEN
        PERFORM punctual.refuse('PU422', within || 'headers', fault,
            'Write an object of strings, such as {"X-Order": "42"}.');
    END IF;
    IF json_typeof(headers) <> 'object' THEN
        PERFORM punctual.refuse('PU422', within || 'headers', 'is no object',
            'Write an object of strings, such as {"X-Order": "42"}.');
    ELSIF headers IS NOT NULL THEN
        FOR h IN SELECT key, value #>> '{}' AS value, json_typeof(value) AS kind,
                     count(*) OVER () AS headers, count(*) OVER (PARTITION BY lower(key COLLATE "C")) AS same
                 FROM json_each(headers) LOOP
            fault := CASE
                WHEN h.headers > 64 THEN h.headers || ' headers; at most 64'
                WHEN h.same > 1 THEN 'the same header is given twice'
                WHEN h.kind <> 'string' THEN 'is no string'
                ELSE punctual.header_fault(h.key, h.value)
            END;
            IF fault IS NOT NULL THEN
                PERFORM punctual.refuse('PU422', within || 'headers.' || left(h.key, 80), fault,
                    'Write an object of strings, such as {"X-Order": "42"}.');
            END IF;
        END LOOP;
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.check_request IS 'Refuses headers and a body that the API would refuse.';

CREATE FUNCTION punctual.check_span(field text, span interval, shortest interval, longest interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF span < shortest OR span > longest THEN
        PERFORM punctual.refuse('PU422', field, format('%s is outside %s to %s', span, shortest, longest),
            'Write an interval such as interval ''90 minutes''.');
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.check_span IS 'Refuses an interval that is out of bounds.';

-- As package names finds jobs: the active or paused job, or else the newest completed one.
CREATE FUNCTION punctual.job_named(of_tenant integer, ref text, field text, OUT job uuid, OUT in_lane smallint)
LANGUAGE plpgsql AS $$
DECLARE
    near text;
BEGIN
    SELECT j.id, s.lane INTO job, in_lane -- nearly every call ends with this statement
    FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id
    WHERE j.tenant = of_tenant AND j.name = ref AND j.named;
    IF FOUND THEN
        RETURN;
    ELSIF coalesce(ref, '') = '' THEN
        PERFORM punctual.refuse('PU422', field, 'is required', 'Give the name or the id of a job.');
    ELSIF ref ~* '^[0-9a-f]{32}$|^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' THEN
        job := ref::uuid;
    ELSE
        job := coalesce(
            (SELECT j.id FROM punctual.jobs j WHERE j.tenant = of_tenant AND j.name = ref AND j.named),
            (SELECT j.id FROM punctual.jobs j
             WHERE j.tenant = of_tenant AND j.name = ref AND NOT j.named AND j.state <> 'deleted'
             ORDER BY j.id DESC LIMIT 1));
    END IF;
    SELECT coalesce(s.lane, (SELECT punctual.lane_of(j.queue, v.definition) FROM punctual.job_versions v
                             WHERE v.job_id = j.id AND v.version = j.version)) INTO in_lane
    FROM punctual.jobs j LEFT JOIN punctual.schedules s ON s.job_id = j.id
    WHERE j.id = job AND j.tenant = of_tenant AND j.state <> 'deleted';
    IF NOT FOUND THEN
        -- No name begins with more of ref than the two next to it do.
        SELECT n.name INTO near FROM (
            (SELECT j.name FROM punctual.jobs j WHERE j.tenant = of_tenant AND j.named AND j.name ~<~ ref
             ORDER BY j.name USING ~>~ LIMIT 1)
            UNION ALL
            (SELECT j.name FROM punctual.jobs j WHERE j.tenant = of_tenant AND j.named AND j.name ~>~ ref
             ORDER BY j.name USING ~<~ LIMIT 1)) n
        ORDER BY (SELECT max(i) FROM generate_series(0, length(n.name)) i
                  WHERE starts_with(ref, left(n.name, i))) DESC, length(n.name) LIMIT 1;
        PERFORM punctual.refuse('PU404', field, format('there is no job %s', to_json(left(ref, 80))),
            coalesce('The closest name is ' || near || '.', 'The tenant has no jobs.'));
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.job_named IS 'Finds a job of a tenant by its name or id, and locks nothing.';

CREATE FUNCTION punctual.is_key(key text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT octet_length(key) BETWEEN 1 AND 255 AND key <> ALL ('{.,..}')
        AND key COLLATE "C" !~ E'[\\x01-\\x1f\\x7f-\\u009f]'
$$;
COMMENT ON FUNCTION punctual.is_key IS
    'Whether a text may be the key of a dated run: a path of the API must be able to name it.';

CREATE FUNCTION punctual.date_run(
    of_tenant integer, by_role text, within text, job_name text, of_job uuid, in_lane smallint, due timestamptz,
    body json, INOUT key text, on_conflict text, not_after interval, sequence bigint, expires_after interval,
    headers json, OUT run uuid, OUT due_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    -- A variable, because a parameter with the collation of session_user would keep write_dated from using indexes.
    actor constant text := 'database:' || session_user || '/' || by_role;
    written record;
BEGIN
    on_conflict := coalesce(on_conflict, 'keep');
    IF NOT (due >= clock_timestamp() - interval '1 day' AND due < '2200-01-01 UTC') THEN
        PERFORM punctual.refuse('PU422', within || 'at',
            format('%s is more than a day ago, or after the year 2199', due),
            'A run that is due in the past is due at once.');
    ELSIF octet_length(key) NOT BETWEEN 1 AND 255 THEN
        PERFORM punctual.refuse('PU422', within || 'key', octet_length(key) || ' bytes; 1 to 255',
            'Leave it out if no later call is to find the run.');
    ELSIF NOT punctual.is_key(key) THEN
        PERFORM punctual.refuse('PU422', within || 'key', 'is a step of a path, or has control characters',
            'Write another key: a path of the API must be able to name it.');
    ELSIF on_conflict NOT IN ('keep', 'replace', 'error') THEN
        PERFORM punctual.refuse('PU422', within || 'on_conflict',
            format('%s is not one of keep, replace, error', to_json(left(on_conflict, 80))),
            'keep leaves a pending run with the key as it is, replace moves it, error refuses.');
    END IF;
    IF not_after IS NOT NULL OR expires_after IS NOT NULL THEN
        PERFORM punctual.check_span(within || 'not_after', not_after, '1 second', '366 days'),
            punctual.check_span(within || 'expires_after', expires_after, '1 millisecond', '366 days');
    END IF;
    IF num_nonnulls(headers, body) > 0 THEN
        PERFORM punctual.check_request(within, headers, body);
    END IF;
    written := punctual.write_dated(
        key => key, of_job => of_job, of_tenant => of_tenant, in_lane => in_lane,
        due => due, on_conflict => on_conflict, not_after => not_after, sequence => sequence,
        expires_after => extract(epoch FROM expires_after) * interval '1 second', headers => headers::jsonb,
        body => convert_to(body::text, 'UTF8'), triggered_by => actor);
    IF on_conflict = 'error' AND NOT written.created THEN
        PERFORM punctual.refuse('PU409', within || 'key',
            format('a run of job %s with the key %s is pending; it is due at %s', job_name,
            to_json(left(key, 80)), to_char(written.due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
            'With on_conflict keep the pending run stays as it is; with replace it is moved.');
    END IF;
    key := written.key;
    run := written.run;
    due_at := written.due_at;
END
$$;
COMMENT ON FUNCTION punctual.date_run IS
    'Writes a dated run for a caller in SQL, after it has checked all that was given.';

-- Nearly every call is of a job with a row in schedules, writes a new key, and is valid: one statement makes the run.
-- Whatever that statement does not write is looked at again, step by step, and refused where it is wrong.
CREATE FUNCTION punctual.run_for(
    of_tenant integer, by_role text, job text, at timestamptz, delay interval, body json, key text, on_conflict text,
    not_after interval, sequence bigint, expires_after interval, headers json) RETURNS uuid
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now constant timestamptz := clock_timestamp();
    run uuid;
    target record;
BEGIN
    IF coalesce(at >= now - interval '1 day' AND at < '2200-01-01 UTC', delay BETWEEN '0' AND '366 days')
        AND coalesce(punctual.is_key(key), true) AND on_conflict IN ('keep', 'replace', 'error')
        AND num_nonnulls(not_after, expires_after, headers, punctual.data_fault(body, 262144)) = 0
        AND (sequence IS NULL OR on_conflict <> 'replace')
    THEN
        at := coalesce(at, now + delay);
        run := punctual.run_id_at(at);
        INSERT INTO punctual.dated (run_id, job_id, due_at, tenant, lane, created_at, sequence, key, body, triggered_by)
        SELECT run, j.id, at, of_tenant, s.lane, now, sequence, coalesce(key, run::text),
               convert_to(body::text, 'UTF8'), 'database:' || session_user || '/' || by_role
        FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id JOIN punctual.tenants t ON t.id = j.tenant
        WHERE j.tenant = of_tenant AND j.name = job AND j.named AND t.max_pending_runs IS NULL
        ON CONFLICT ON CONSTRAINT dated_pkey DO NOTHING;
        IF FOUND THEN
            RETURN run;
        END IF;
    END IF;
    target := punctual.job_named(of_tenant, job, 'job');
    IF at IS NULL AND delay IS NULL THEN
        PERFORM punctual.refuse('PU422', 'at', 'the instant or the delay is null',
            'trigger makes a run that is due now.');
    END IF;
    PERFORM punctual.check_span('delay', delay, '0', '366 days');
    at := coalesce(at, now + delay);
    RETURN (punctual.date_run(of_tenant, by_role, '', job, target.job, target.in_lane, at, body, key, on_conflict,
        not_after, sequence, expires_after, headers)).run;
END
$$;
COMMENT ON FUNCTION punctual.run_for IS
    'Makes a run of a job at an instant or after a delay, and returns its id. The run exists if the transaction '
    'commits.';

CREATE FUNCTION punctual.field_of(value json, name text, kind text, within text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    IF json_typeof(value -> name) <> ALL (ARRAY['null', kind]) THEN
        PERFORM punctual.refuse('PU422', within || name, 'is no ' || kind,
            format('Write a %s, or leave it out.', kind));
    END IF;
    RETURN value ->> name;
END
$$;
COMMENT ON FUNCTION punctual.field_of IS 'A field of an object, which must be of a kind if it is there.';

CREATE FUNCTION punctual.whole_of(value json, name text, within text) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN punctual.field_of(value, name, 'number', within)::bigint;
EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range THEN
    PERFORM punctual.refuse('PU422', within || name, 'is no whole number of 64 bits',
        'Write a whole number, such as 42.');
END
$$;
COMMENT ON FUNCTION punctual.whole_of IS 'A field of an object as a whole number.';

CREATE FUNCTION punctual.span_of(value json, name text, within text) RETURNS interval
LANGUAGE plpgsql AS $$
DECLARE
    given constant text := punctual.field_of(value, name, 'string', within);
BEGIN
    RETURN given::interval;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
    PERFORM punctual.refuse('PU422', within || name, format('%s is no interval', to_json(left(given, 80))),
        'Write "90m", "1h30m" or "2 days".');
END
$$;
COMMENT ON FUNCTION punctual.span_of IS 'A field of an object as an interval, from a text such as "1h30m" or "2 days".';

CREATE FUNCTION punctual.instant_of(value json, name text, within text) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    given constant text := punctual.field_of(value, name, 'string', within);
    form constant text := '^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$';
BEGIN
    IF upper(given) !~ form THEN
        RAISE invalid_datetime_format;
    END IF;
    RETURN given::timestamptz;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow THEN
    PERFORM punctual.refuse('PU422', within || name, format('%s is no RFC 3339 instant', to_json(left(given, 80))),
        'Write an instant with its offset, such as "2026-12-01T09:00:00Z".');
END
$$;
COMMENT ON FUNCTION punctual.instant_of IS 'A field of an object as an instant, from a text of RFC 3339.';

-- All are looked at before the first is written. They are written in the order of their keys, so that two transactions
-- with the same keys wait for each other and do not deadlock.
CREATE FUNCTION punctual.run_many_for(of_tenant integer, by_role text, runs json)
RETURNS TABLE (key text, run uuid, due_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    known constant text[] := '{job,at,delay,body,key,on_conflict,not_after,sequence,expires_after,headers}';
    now constant timestamptz := clock_timestamp();
    given json[];
    jobs uuid[];
    lanes smallint[];
    keys text[];
    dues timestamptz[];
    ids uuid[];
    within text;
    unknown text;
    value json;
    delay interval;
    at timestamptz;
    target record;
    written record;
BEGIN
    IF json_typeof(runs) IS DISTINCT FROM 'array' OR json_array_length(runs) > 1000 THEN
        PERFORM punctual.refuse('PU422', 'runs', 'is no array of up to 1,000 objects',
            'Write [{"job": "send-reminder", "delay": "1h", "key": "order-42"}]; call again for more.');
    ELSIF octet_length(runs::text) > 16777216 THEN
        PERFORM punctual.refuse('PU422', 'runs', octet_length(runs::text) || ' bytes; at most 16777216 (16 MiB)',
            'Give some of the runs, and call again for the others.');
    END IF;
    given := array(SELECT v FROM json_array_elements(runs) v);
    FOR i IN 1 .. cardinality(given) LOOP
        within := format('runs[%s].', i - 1);
        value := given[i];
        IF json_typeof(value) <> 'object' THEN
            PERFORM punctual.refuse('PU422', format('runs[%s]', i - 1), 'is no object',
                'Write {"job": "send-reminder"}.');
        ELSIF punctual.escape_fault(value::text) IS NOT NULL THEN
            PERFORM punctual.refuse('PU422', format('runs[%s]', i - 1), punctual.escape_fault(value::text),
                'Leave the character out.');
        END IF;
        SELECT k INTO unknown FROM json_object_keys(value) k WHERE k <> ALL (known) LIMIT 1;
        IF FOUND THEN
            PERFORM punctual.refuse('PU422', within || left(unknown, 80), 'unknown field',
                'The fields are ' || array_to_string(known, ', ') || '.');
        END IF;
        target := punctual.job_named(of_tenant, punctual.field_of(value, 'job', 'string', within), within || 'job');
        jobs[i] := target.job;
        lanes[i] := target.in_lane;
        keys[i] := punctual.field_of(value, 'key', 'string', within);
        at := punctual.instant_of(value, 'at', within);
        delay := punctual.span_of(value, 'delay', within);
        PERFORM punctual.check_span(within || 'delay', delay, '0', '366 days');
        IF at IS NOT NULL AND delay IS NOT NULL THEN
            PERFORM punctual.refuse('PU422', within || 'delay', 'at is given, too', 'Leave one of the two out.');
        END IF;
        dues[i] := coalesce(at, now + delay, now);
    END LOOP;
    FOR written IN
        SELECT o.i, d.* FROM (
            SELECT u.* FROM unnest(jobs, keys) WITH ORDINALITY u(job, key, i) ORDER BY u.job, u.key COLLATE "C", u.i) o,
        LATERAL punctual.date_run(of_tenant, by_role, format('runs[%s].', o.i - 1), given[o.i] ->> 'job', jobs[o.i],
            lanes[o.i], dues[o.i],
            CASE WHEN json_typeof(given[o.i] -> 'body') <> 'null' THEN given[o.i] -> 'body' END, keys[o.i],
            punctual.field_of(given[o.i], 'on_conflict', 'string', format('runs[%s].', o.i - 1)),
            punctual.span_of(given[o.i], 'not_after', format('runs[%s].', o.i - 1)),
            punctual.whole_of(given[o.i], 'sequence', format('runs[%s].', o.i - 1)),
            punctual.span_of(given[o.i], 'expires_after', format('runs[%s].', o.i - 1)),
            CASE WHEN json_typeof(given[o.i] -> 'headers') <> 'null' THEN given[o.i] -> 'headers' END) d
    LOOP
        keys[written.i] := written.key;
        ids[written.i] := written.run;
        dues[written.i] := written.due_at;
    END LOOP;
    RETURN QUERY SELECT u.key, u.run, u.due_at FROM unnest(keys, ids, dues) u(key, run, due_at);
END
$$;
COMMENT ON FUNCTION punctual.run_many_for IS
    'Makes up to 1,000 runs, given as the API has them, and returns them in the order given.';

CREATE FUNCTION punctual.cancel_for(of_tenant integer, by_role text, job text, key text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    target constant uuid := (punctual.job_named(of_tenant, job, 'job')).job;
    gone record;
BEGIN
    IF coalesce(key, '') = '' THEN
        PERFORM punctual.refuse('PU422', 'key', 'is required', 'Give the key with which the run was made.');
    END IF;
    DELETE FROM punctual.dated d WHERE d.job_id = target AND d.key = cancel_for.key
    RETURNING d.run_id, d.due_at INTO gone;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO punctual.audit_log (id, job_id, resource_id, at, tenant, action, actor_kind, actor, name, before)
    SELECT punctual.run_id_at(clock_timestamp()), target, gone.run_id, clock_timestamp(), of_tenant, 'run.cancel',
           'database', session_user || '/' || by_role, j.name, json_build_object('key', key, 'due_at', gone.due_at)
    FROM punctual.jobs j WHERE j.id = target;
    RETURN true;
END
$$;
COMMENT ON FUNCTION punctual.cancel_for IS
    'Removes a pending dated run. False: none with the key is pending; it may have been claimed.';

-- The functions of the schema end in a call of a function whose name ends in _for: so they are told from others.
CREATE FUNCTION punctual.functions_of_grant(in_schema text) RETURNS SETOF regprocedure
LANGUAGE sql VOLATILE AS $$
    SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = to_regnamespace(quote_ident(in_schema)) AND p.prosrc ~ 'punctual[.][a-z_]+_for[(]'
      AND pg_has_role(p.proowner, 'USAGE')
$$;
COMMENT ON FUNCTION punctual.functions_of_grant(text) IS 'The functions that make_schema has made in a schema.';

-- As the owner of the tables, whoever calls: so the functions are the owner's.
CREATE FUNCTION punctual.make_schema(of_tenant integer, in_schema text, for_role text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
    me constant text := format('%s, %L', of_tenant, for_role);
    more constant text := 'sequence bigint DEFAULT NULL, expires_after interval DEFAULT NULL, '
        'headers json DEFAULT NULL';
    options constant text := 'body json DEFAULT NULL, key text DEFAULT NULL, on_conflict text DEFAULT ''keep'', '
        'not_after interval DEFAULT NULL, ' || more;
    passed constant text := 'body, key, on_conflict, not_after, sequence, expires_after, headers';
    -- Name, parameters, result, and body. A later release may add parameters with defaults under another name only.
    made constant text[] := ARRAY[
        ['run_in', 'job text, delay interval, ' || options, 'uuid',
         format('RETURN punctual.run_for(%s, job, NULL, delay, %s);', me, passed)],
        ['run_at', 'job text, at timestamptz, ' || options, 'uuid',
         format('RETURN punctual.run_for(%s, job, at, NULL, %s);', me, passed)],
        ['trigger',
         'job text, body json DEFAULT NULL, key text DEFAULT NULL, on_conflict text DEFAULT ''keep'', ' || more, 'uuid',
         format('RETURN punctual.run_for(%s, job, NULL, ''0'', body, key, on_conflict, NULL, sequence, '
                        'expires_after, headers);', me)],
        ['run_many', 'runs json', 'TABLE (key text, run uuid, due_at timestamptz)',
         format('RETURN QUERY SELECT * FROM punctual.run_many_for(%s, runs);', me)],
        ['emit', 'event text, body json DEFAULT NULL', 'uuid',
         format('RETURN punctual.emit_for(%s, event, body);', me)],
        ['cancel', 'job text, key text', 'boolean', format('RETURN punctual.cancel_for(%s, job, key);', me)],
        ['complete', 'run uuid, fencing_token bigint, result json DEFAULT NULL', 'void',
         format('PERFORM punctual.complete_for(%s, run, fencing_token, result);', of_tenant)],
        ['fail', 'run uuid, fencing_token bigint, error text', 'void',
         format('PERFORM punctual.fail_for(%s, run, fencing_token, error);', of_tenant)]];
    entry text[];
    callee regprocedure;
BEGIN
    IF to_regnamespace(quote_ident(in_schema)) IS NULL THEN
        EXECUTE format('CREATE SCHEMA %I', in_schema);
        EXECUTE format('COMMENT ON SCHEMA %I IS %L', in_schema, 'Runs of Punctual''s jobs from your own transactions: see '
            'punctual.grants. Made by punctual tenants grant, renewed by punctual migrate.');
        UPDATE punctual.grants SET made_schema = true WHERE schema = in_schema;
    END IF;
    FOREACH entry SLICE 1 IN ARRAY made LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql SECURITY DEFINER '
            'SET search_path = pg_catalog, pg_temp AS %L', in_schema, entry[1], entry[2], entry[3],
            E'#variable_conflict use_variable\nBEGIN ' || entry[4] || ' END');
    END LOOP;
    UPDATE punctual.tenants SET reports_since = now() WHERE id = of_tenant AND reports_since IS NULL;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', in_schema, for_role);
    FOR callee IN SELECT punctual.functions_of_grant(in_schema) LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', callee);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', callee, for_role);
    END LOOP;
END
$make$;
COMMENT ON FUNCTION punctual.make_schema IS
    'Makes a schema, or makes its functions anew, through which a role may make runs of a tenant''s jobs.';

-- The right goes first, and by itself: the functions cannot be dropped while anything depends on them, and the role may
-- have made something that does, such as a temporary table with one of them as a DEFAULT.
CREATE FUNCTION punctual.end_grant(in_schema text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made boolean;
    held record;
BEGIN
    DELETE FROM punctual.grants g WHERE g.schema = in_schema RETURNING g.made_schema INTO made;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    FOR held IN
        SELECT f.callee, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS holder
        FROM punctual.functions_of_grant(in_schema) f(callee) JOIN pg_catalog.pg_proc p ON p.oid = f.callee
        CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', held.callee, held.holder);
    END LOOP;
    FOR held IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS holder
        FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
        WHERE made AND n.nspname = in_schema AND a.grantee <> n.nspowner
    LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %s CASCADE', in_schema, held.holder);
    END LOOP;
    RETURN made;
END
$$;
COMMENT ON FUNCTION punctual.end_grant(text) IS
    'Takes a grant back: from then on no role may call its functions. Returns whether the grant made the schema, so that '
    'drop_schema drops it.';

CREATE FUNCTION punctual.drop_schema(in_schema text, made boolean) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
    things text[];
    thing text;
    why text;
    remaining text[] := '{}';
BEGIN
    LOCK TABLE punctual.grants IN SHARE ROW EXCLUSIVE MODE; -- the schema may be granted anew at this moment
    IF EXISTS (SELECT FROM punctual.grants g WHERE g.schema = in_schema) THEN
        RETURN remaining;
    END IF;
    things := ARRAY(SELECT format('function %s', f) FROM punctual.functions_of_grant(in_schema) f)
        || ARRAY(SELECT format('schema %I', n.nspname) FROM pg_catalog.pg_namespace n WHERE made AND n.nspname = in_schema);
    FOREACH thing IN ARRAY things LOOP
        BEGIN
            EXECUTE 'DROP ' || thing;
        EXCEPTION
            WHEN dependent_objects_still_exist OR lock_not_available OR insufficient_privilege THEN
                GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
                remaining := remaining || (thing || ': ' || coalesce(nullif(why, ''), SQLERRM));
        END;
    END LOOP;
    RETURN remaining;
END
$$;
COMMENT ON FUNCTION punctual.drop_schema(text, boolean) IS
    'Drops the functions of a grant that has ended, and its schema if the grant made it. Returns what is left, and why.';

CREATE FUNCTION punctual.renew_grants() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE punctual.grants IN SHARE ROW EXCLUSIVE MODE; -- two at once would replace the same function
    -- In a restored dump there may be grants to roles that do not exist.
    PERFORM punctual.make_schema(g.tenant, g.schema, g.role) FROM punctual.grants g
    WHERE to_regnamespace(quote_ident(g.schema)) IS NOT NULL AND to_regrole(quote_ident(g.role)) IS NOT NULL;
END
$$;
COMMENT ON FUNCTION punctual.renew_grants() IS 'Makes the functions of all grants anew, as punctual migrate does.';
-- +goose StatementEnd

-- Dead letters, and operations on many runs or jobs.

-- +goose StatementBegin
CREATE TABLE punctual.dead_letters (
    run_id           uuid PRIMARY KEY,
    job_id           uuid NOT NULL,
    tenant           integer NOT NULL,
    job_name         text NOT NULL,
    job_version      integer NOT NULL,
    scheduled_for    timestamptz NOT NULL,
    died_at          timestamptz NOT NULL DEFAULT now(),
    trigger          punctual.run_trigger NOT NULL,
    reason           punctual.run_reason,
    attempts         smallint NOT NULL,
    http_status      smallint,
    error            text,
    headers          jsonb,
    body             bytea,
    template         boolean,
    resolved_at      timestamptz,
    note             text,
    webhook_id       uuid,
    idempotency_key  text,
    replayed_as      uuid,
    operation        uuid,
    replayed_by      uuid,
    caused_by        uuid,
    CONSTRAINT replayed_dead_letter_is_resolved CHECK (replayed_as IS NULL OR resolved_at IS NOT NULL)
);
CREATE INDEX dead_letters_open ON punctual.dead_letters (tenant, run_id) WHERE resolved_at IS NULL;
-- For groups by job and reason. Row-level security lets an expression with CASE use an index, and none with coalesce.
CREATE INDEX dead_letters_groups ON punctual.dead_letters (tenant, job_id,
    (CASE WHEN reason IS NULL THEN '' ELSE reason END), run_id) INCLUDE (reason, scheduled_for, trigger)
    WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_by_job ON punctual.dead_letters (job_id, run_id);
CREATE INDEX dead_letters_of_operation ON punctual.dead_letters (operation, run_id) WHERE operation IS NOT NULL;
CREATE INDEX dead_letters_replayed_by ON punctual.dead_letters (replayed_by, run_id) WHERE replayed_by IS NOT NULL;
CREATE INDEX dead_letters_by_cause ON punctual.dead_letters (caused_by) WHERE caused_by IS NOT NULL;
CREATE INDEX dead_letters_resolved ON punctual.dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;
COMMENT ON TABLE  punctual.dead_letters IS
    'Runs that ended dead, with what a replay needs, until they are resolved. Resolved ones are kept as long as '
    'failures. A dead letter outlives its run''s partition.';
COMMENT ON COLUMN punctual.dead_letters.run_id IS 'The dead run.';
COMMENT ON COLUMN punctual.dead_letters.job_name IS 'Name of the job when the run died.';
COMMENT ON COLUMN punctual.dead_letters.job_version IS 'Version the run used.';
COMMENT ON COLUMN punctual.dead_letters.scheduled_for IS 'Its slot.';
COMMENT ON COLUMN punctual.dead_letters.died_at IS 'When it became dead.';
COMMENT ON COLUMN punctual.dead_letters.trigger IS 'What created the run.';
COMMENT ON COLUMN punctual.dead_letters.reason IS 'Why its last attempt failed; same list as runs.reason.';
COMMENT ON COLUMN punctual.dead_letters.attempts IS 'How many attempts it had.';
COMMENT ON COLUMN punctual.dead_letters.http_status IS 'HTTP status of the last response, if there was one.';
COMMENT ON COLUMN punctual.dead_letters.error IS 'Its last error.';
COMMENT ON COLUMN punctual.dead_letters.headers IS 'Headers given to this run alone.';
COMMENT ON COLUMN punctual.dead_letters.body IS 'Body given to this run alone.';
COMMENT ON COLUMN punctual.dead_letters.template IS
    'True: the body is made of the job''s own, and placeholders in it are filled in. Null: it is sent as it is.';
COMMENT ON COLUMN punctual.dead_letters.resolved_at IS 'When it was resolved or replayed.';
COMMENT ON COLUMN punctual.dead_letters.note IS 'The note given when it was resolved or replayed.';
COMMENT ON COLUMN punctual.dead_letters.webhook_id IS
    'Of a replay that died: the webhook-id it carried; null: the run''s id.';
COMMENT ON COLUMN punctual.dead_letters.idempotency_key IS
    'Of a replay that died: the Idempotency-Key it carried; null: the key that the run itself gives.';
COMMENT ON COLUMN punctual.dead_letters.replayed_as IS 'The run that repeats it, once it was replayed.';
COMMENT ON COLUMN punctual.dead_letters.operation IS
    'The running operation that is to replay or resolve it: operations.id.';
COMMENT ON COLUMN punctual.dead_letters.replayed_by IS
    'The operation that replayed it: operations.id. Null: it was replayed alone, or not at all.';
COMMENT ON COLUMN punctual.dead_letters.caused_by IS 'What made the run, as in runs. An event is kept while this names it.';

CREATE TABLE punctual.operations (
    id              uuid PRIMARY KEY,
    tenant          integer NOT NULL REFERENCES punctual.tenants,
    kind            text NOT NULL,
    state           text NOT NULL DEFAULT 'running',
    request         json NOT NULL,
    note            text,
    max_per_second  integer,
    matched         integer NOT NULL,
    done            integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    next_at         timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    error           text,
    job_id          uuid,
    rerun           boolean NOT NULL DEFAULT false,
    next_slot       timestamptz,
    last_slot       timestamptz,
    last_run        uuid,
    skipped_while_paused integer NOT NULL DEFAULT 0,
    actor_kind      text NOT NULL DEFAULT 'system',
    actor           text,
    address         inet,
    request_id      text,
    requested_by    text NOT NULL DEFAULT 'system',
    CONSTRAINT operation_state_is_running_done_cancelled_or_failed CHECK (state IN ('running', 'done', 'cancelled',
        'failed')),
    CONSTRAINT ended_operation_has_finished_at CHECK ((state = 'running') = (finished_at IS NULL)),
    CONSTRAINT failed_operation_has_an_error CHECK (state <> 'failed' OR error IS NOT NULL),
    CONSTRAINT operation_does_no_more_than_it_matched CHECK (done >= 0 AND failed >= 0 AND done + failed <= matched),
    CONSTRAINT operation_rate_is_positive CHECK (max_per_second > 0),
    CONSTRAINT operation_kind_is_known CHECK (kind IN ('replay', 'resolve', 'backfill', 'pause', 'resume', 'delete')),
    CONSTRAINT backfill_has_a_job_and_its_last_slot CHECK (kind <> 'backfill' OR (job_id IS NOT NULL
        AND last_slot IS NOT NULL))
);
CREATE INDEX operations_by_tenant ON punctual.operations (tenant, id);
CREATE INDEX operations_running ON punctual.operations (next_at) WHERE state = 'running';
CREATE INDEX operations_of_job ON punctual.operations (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX operations_ended ON punctual.operations (finished_at) WHERE finished_at IS NOT NULL;
COMMENT ON TABLE  punctual.operations IS
    'Work on many dead letters, past slots or jobs. Any replica does the next batch of a running operation, and '
    'records the progress in the same transaction. An ended operation is kept as long as failures.';
COMMENT ON COLUMN punctual.operations.id IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.operations.kind IS
    'replay or resolve: dead letters. backfill: past slots of a job. pause, resume or delete: jobs.';
COMMENT ON COLUMN punctual.operations.state IS 'running, done, cancelled or failed (it could not continue).';
COMMENT ON COLUMN punctual.operations.request IS
    'What the caller requested: the filter, and whether only the latest of each job.';
COMMENT ON COLUMN punctual.operations.note IS 'The caller''s note.';
COMMENT ON COLUMN punctual.operations.max_per_second IS
    'How many dead letters, slots or jobs it handles in a second at most; null: no limit.';
COMMENT ON COLUMN punctual.operations.matched IS
    'How many dead letters or jobs it selected when it was created; it remembers these and touches no others. Of a '
    'backfill: how many slots.';
COMMENT ON COLUMN punctual.operations.done IS
    'How many of its dead letters were replayed or resolved, or how many of its jobs are as was asked for. Of a '
    'backfill: how many slots became runs or already had them.';
COMMENT ON COLUMN punctual.operations.failed IS 'How many of them could not be handled.';
COMMENT ON COLUMN punctual.operations.next_at IS 'When its next batch may be done at its rate.';
COMMENT ON COLUMN punctual.operations.created_at IS 'When it was requested.';
COMMENT ON COLUMN punctual.operations.finished_at IS 'When it ended.';
COMMENT ON COLUMN punctual.operations.error IS
    'The latest dead letter, slot or job that could not be handled and why, or why the operation could not continue.';
COMMENT ON COLUMN punctual.operations.job_id IS 'Of a backfill: the job.';
COMMENT ON COLUMN punctual.operations.rerun IS 'Of a backfill: true if slots that already have a run get another.';
COMMENT ON COLUMN punctual.operations.next_slot IS
    'Of a backfill: the slot its next batch begins with; null when none is left.';
COMMENT ON COLUMN punctual.operations.last_slot IS 'Of a backfill: the last slot in its range.';
COMMENT ON COLUMN punctual.operations.skipped_while_paused IS
    'Of a resume: how many slots of its jobs passed while they were paused; of more than 1,000 of a job it counts 1,001.';
COMMENT ON COLUMN punctual.operations.last_run IS
    'Of a backfill that makes one run at a time: the latest run. No backfill of the job makes another before it ends.';
COMMENT ON COLUMN punctual.operations.actor_kind IS
    'How the caller authenticated, as in audit_log. The changes of single jobs are recorded as this caller''s.';
COMMENT ON COLUMN punctual.operations.actor IS 'The caller, as in audit_log.';
COMMENT ON COLUMN punctual.operations.address IS 'The address that the request came from, as in audit_log.';
COMMENT ON COLUMN punctual.operations.request_id IS 'The request''s id, as in audit_log.';
COMMENT ON COLUMN punctual.operations.requested_by IS 'The caller in words, such as "key deploy (019a…)".';

CREATE TABLE punctual.operation_jobs (
    operation  uuid NOT NULL,
    part       integer NOT NULL,
    tenant     integer NOT NULL,
    jobs       uuid[] NOT NULL,
    CONSTRAINT part_of_an_operation_has_jobs CHECK (cardinality(jobs) > 0),
    PRIMARY KEY (operation, part)
);
COMMENT ON TABLE  punctual.operation_jobs IS
    'The jobs that a running operation has yet to change, some in each row. Many jobs in one row take a fifth of the '
    'space of a row for each.';
COMMENT ON COLUMN punctual.operation_jobs.operation IS 'The operation: operations.id.';
COMMENT ON COLUMN punctual.operation_jobs.part IS 'The order in which the operation takes its rows.';
COMMENT ON COLUMN punctual.operation_jobs.tenant IS 'Owner of the operation and of the jobs: tenants.id.';
COMMENT ON COLUMN punctual.operation_jobs.jobs IS 'Ids of the jobs.';

-- Each key leaves two dead rows: one when it gets its answer, and one when it is forgotten a day later, together with
-- the other keys of its minute. On a busy day, dead rows of a fifth of the table would be more than the keys of some
-- hours. Long answers are in the toast table, which has its own count.
CREATE TABLE punctual.idempotency_keys (
    tenant        integer NOT NULL,
    key           text NOT NULL,
    request_hash  bytea NOT NULL,
    status        smallint NOT NULL,
    response      json NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX idempotency_keys_by_age ON punctual.idempotency_keys (created_at);
COMMENT ON TABLE  punctual.idempotency_keys IS
    'First answers to requests that carried an Idempotency-Key, kept for 24 hours.';
COMMENT ON COLUMN punctual.idempotency_keys.key IS 'The key the client sent.';
COMMENT ON COLUMN punctual.idempotency_keys.request_hash IS
    'SHA-256 of method, path and body: the same key with another request is an error.';
COMMENT ON COLUMN punctual.idempotency_keys.status IS 'HTTP status of the first answer.';
COMMENT ON COLUMN punctual.idempotency_keys.response IS 'Body of the first answer.';
COMMENT ON COLUMN punctual.idempotency_keys.created_at IS 'When the first answer was given.';
-- +goose StatementEnd

-- The hours that the overview shows: what became of the runs of each hour, counted beforehand.

-- +goose StatementBegin
CREATE TABLE punctual.counted_hours (
    hour        timestamptz PRIMARY KEY,
    next_at     timestamptz NOT NULL DEFAULT now(),
    counted_at  timestamptz,
    through     uuid,
    runs        bigint NOT NULL DEFAULT 0,
    unended     bigint NOT NULL DEFAULT 0,
    round       integer NOT NULL DEFAULT 0,
    shown       integer NOT NULL DEFAULT 0,
    CONSTRAINT counted_hour_shows_a_round_that_has_begun CHECK (shown <= round),
    CONSTRAINT shown_hour_was_counted CHECK (shown = 0 OR counted_at IS NOT NULL)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.counted_hours IS
    'How far the runs of each hour are counted, and when to go on. Any replica does so; the count itself is in '
    'hourly_runs. An hour belongs to the time in the ids of its runs: the slot, or when a run of no slot was made.';
COMMENT ON COLUMN punctual.counted_hours.hour IS 'Beginning of the hour.';
COMMENT ON COLUMN punctual.counted_hours.next_at IS 'When to count on, or anew; infinity: never again.';
COMMENT ON COLUMN punctual.counted_hours.counted_at IS
    'When the round that is shown was last brought up to date; null: none is shown yet.';
COMMENT ON COLUMN punctual.counted_hours.through IS
    'The round that is under way has counted the runs up to this id; null: none yet.';
COMMENT ON COLUMN punctual.counted_hours.runs IS 'How many runs of all tenants that round has counted.';
COMMENT ON COLUMN punctual.counted_hours.unended IS 'How many of these had not ended when they were counted.';
COMMENT ON COLUMN punctual.counted_hours.round IS
    'Number of the latest round. A round counts the hour from its beginning. The round before holds until this one is '
    'complete.';
COMMENT ON COLUMN punctual.counted_hours.shown IS 'The round that is shown; 0: none yet.';

CREATE TABLE punctual.hourly_runs (
    hour       timestamptz NOT NULL,
    tenant     integer NOT NULL,
    round      integer NOT NULL,
    succeeded  integer NOT NULL,
    dead       integer NOT NULL,
    cancelled  integer NOT NULL,
    skipped    integer NOT NULL,
    unended    integer NOT NULL,
    lateness   integer[] NOT NULL,
    PRIMARY KEY (hour, tenant, round)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE  punctual.hourly_runs IS
    'What became of the runs of each tenant in each hour. Kept for 8 days.';
COMMENT ON COLUMN punctual.hourly_runs.hour IS 'Beginning of the hour.';
COMMENT ON COLUMN punctual.hourly_runs.round IS 'The round that counted it; counted_hours.shown is the one that holds.';
COMMENT ON COLUMN punctual.hourly_runs.succeeded IS 'Runs that succeeded.';
COMMENT ON COLUMN punctual.hourly_runs.dead IS 'Runs that died.';
COMMENT ON COLUMN punctual.hourly_runs.cancelled IS 'Runs that were cancelled.';
COMMENT ON COLUMN punctual.hourly_runs.skipped IS 'Recorded skips; one may stand for several slots.';
COMMENT ON COLUMN punctual.hourly_runs.unended IS 'Runs that had not ended when they were counted.';
COMMENT ON COLUMN punctual.hourly_runs.lateness IS
    'From due_at to started_at, of runs whose latest attempt is the first, except backfills and replays. Element n '
    'counts those of 2^((n-1)/4) ms up to 2^(n/4) ms; the first element counts all shorter ones too.';

CREATE TABLE punctual.counted_days (
    day      date PRIMARY KEY,
    next_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  punctual.counted_days IS
    'When the usage of each day is summed again. Any replica does so; the sums are in daily_usage.';
COMMENT ON COLUMN punctual.counted_days.day IS 'The day (UTC).';
COMMENT ON COLUMN punctual.counted_days.next_at IS 'When to sum it again; infinity: never again.';

CREATE TABLE punctual.daily_usage (
    id          uuid NOT NULL,
    day         date NOT NULL,
    tenant      integer NOT NULL,
    job_id      uuid,
    job         text,
    runs        bigint NOT NULL,
    attempts    bigint NOT NULL,
    seconds     double precision NOT NULL,
    bytes       bigint NOT NULL,
    counted_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX daily_usage_by_day ON punctual.daily_usage (day);
COMMENT ON TABLE  punctual.daily_usage IS
    'What the runs of each day used, by tenant and job: a row for each of the 1,000 jobs of a tenant with the most '
    'attempts of the day, and one for all others together. Kept for 400 days. A day belongs to the time in the ids of '
    'its runs: the slot, or when a run of no slot was made.';
COMMENT ON COLUMN punctual.daily_usage.id IS 'Begins with the milliseconds of the day, as ids of runs do.';
COMMENT ON COLUMN punctual.daily_usage.day IS 'The day (UTC).';
COMMENT ON COLUMN punctual.daily_usage.job_id IS 'The job, which may be deleted; null: all others of the day.';
COMMENT ON COLUMN punctual.daily_usage.job IS 'The name of the job when the day was summed; null: all others.';
COMMENT ON COLUMN punctual.daily_usage.runs IS 'Runs, without those of steps and without recorded skips.';
COMMENT ON COLUMN punctual.daily_usage.attempts IS 'Attempts that have ended; of a workflow, those of its steps.';
COMMENT ON COLUMN punctual.daily_usage.seconds IS
    'Sum of the times from the start of each of these attempts to its end; with completion async, to the report.';
COMMENT ON COLUMN punctual.daily_usage.bytes IS
    'Bytes kept with these runs: bodies of their own, results, and kept parts of responses.';
COMMENT ON COLUMN punctual.daily_usage.counted_at IS 'When the day was summed.';
-- +goose StatementEnd

-- Notices, and the key of run tokens.

-- +goose StatementBegin
CREATE TABLE punctual.notices (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         uuid NOT NULL,
    tenant         integer NOT NULL,
    job_version    integer NOT NULL,
    event          text NOT NULL,
    run_id         uuid,
    scheduled_for  timestamptz,
    slots          integer,
    reason         text,
    error          text,
    happened_at    timestamptz NOT NULL DEFAULT now(),
    tell_at        timestamptz NOT NULL DEFAULT now(),
    http_status    smallint,
    response       text,
    since          timestamptz,
    failures       integer,
    CONSTRAINT notice_event_is_known CHECK (event IN ('failing', 'dead', 'missed', 'late', 'stale', 'overlapping',
        'dropped', 'recovered')),
    CONSTRAINT only_a_stale_job_needs_no_run CHECK ((run_id IS NULL) = (event = 'stale')
        AND (scheduled_for IS NULL) = (event = 'stale'))
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX notices_by_job ON punctual.notices (job_id, id);
CREATE INDEX notices_due ON punctual.notices (tell_at);
COMMENT ON TABLE  punctual.notices IS
    'Events that are in no notice yet. A row goes when the notices to the job''s recipients take it up.';
COMMENT ON COLUMN punctual.notices.id IS 'Order of writing.';
COMMENT ON COLUMN punctual.notices.job_version IS 'Version of the job when it happened.';
COMMENT ON COLUMN punctual.notices.event IS 'failing, dead, missed, late, stale, overlapping, dropped or recovered.';
COMMENT ON COLUMN punctual.notices.run_id IS 'The run it is about; for missed, the recorded skip; for stale, null.';
COMMENT ON COLUMN punctual.notices.scheduled_for IS 'Its slot; for missed, the last one; for stale, null.';
COMMENT ON COLUMN punctual.notices.slots IS 'For missed: how many slots; null above 1,000.';
COMMENT ON COLUMN punctual.notices.reason IS 'For failing and dead: why its last attempt failed.';
COMMENT ON COLUMN punctual.notices.error IS 'For failing and dead: its last error.';
COMMENT ON COLUMN punctual.notices.happened_at IS 'When it happened. Of a run that ended: when it ended.';
COMMENT ON COLUMN punctual.notices.tell_at IS 'When to check whether the notice may be sent; notified.sent decides.';
COMMENT ON COLUMN punctual.notices.http_status IS
    'For failing and dead: HTTP status of the last response, if there was one.';
COMMENT ON COLUMN punctual.notices.response IS 'For failing and dead: start of the last response.';
COMMENT ON COLUMN punctual.notices.since IS
    'For failing and dead: when the first attempt failed since the last success. For stale: the last success, or the '
    'instant from which the time without success is counted. For recovered: since when the job was not well.';
COMMENT ON COLUMN punctual.notices.failures IS 'Failed attempts in a row when it happened.';

CREATE TABLE punctual.notified (
    job_id         uuid PRIMARY KEY REFERENCES punctual.jobs ON DELETE CASCADE,
    failing_since  timestamptz,
    failed_at      timestamptz,
    failures       integer NOT NULL DEFAULT 0,
    stale_since    timestamptz,
    success_at     timestamptz,
    look_at        timestamptz,
    overlapping_since timestamptz,
    sent           jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT failing_job_has_failures CHECK ((failing_since IS NULL) = (failures = 0))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX notified_to_look_at ON punctual.notified (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX notified_overlapping ON punctual.notified (job_id) WHERE overlapping_since IS NOT NULL;
COMMENT ON TABLE  punctual.notified IS
    'The state of jobs that have notify recipients. A job has no row while it is well, no notice about it was sent, '
    'and no success is expected within a set time.';
COMMENT ON COLUMN punctual.notified.failing_since IS
    'When the first attempt failed since the last success; null: the job is well.';
COMMENT ON COLUMN punctual.notified.failed_at IS
    'When the latest attempt failed; null: none has, since the job has a row.';
COMMENT ON COLUMN punctual.notified.failures IS 'Failed attempts in a row since then.';
COMMENT ON COLUMN punctual.notified.stale_since IS
    'If the job is stale: since when it has had no success. Null: it is not stale.';
COMMENT ON COLUMN punctual.notified.success_at IS 'The success that ended the last trouble.';
COMMENT ON COLUMN punctual.notified.look_at IS 'When to check whether the job is stale; null: never.';
COMMENT ON COLUMN punctual.notified.overlapping_since IS
    'Since when most slots of the job are skipped because the run before has not ended, once that was told; null: they '
    'are not.';
COMMENT ON COLUMN punctual.notified.sent IS
    'When each event was last sent. Further events of the same kind within 5 minutes are sent together.';

-- The outbox: what waits for each recipient, in each of three pipelines. One message at a time is under way to it.
CREATE TABLE punctual.outbox (
    id             uuid PRIMARY KEY,
    tenant         integer NOT NULL,
    pipeline       text NOT NULL DEFAULT 'states',
    format         text NOT NULL,
    url            text NOT NULL,
    secret         text NOT NULL DEFAULT '',
    template       text NOT NULL DEFAULT '',
    due_at         timestamptz,
    held_until     timestamptz NOT NULL DEFAULT now(),
    message        uuid,
    under_way      boolean NOT NULL DEFAULT false,
    pace           interval NOT NULL DEFAULT '0',
    delivered_at   timestamptz,
    failing_since  timestamptz,
    failures       integer NOT NULL DEFAULT 0,
    http_status    smallint,
    error          text,
    sent           jsonb NOT NULL DEFAULT '{}',
    causes         jsonb NOT NULL DEFAULT '{}',
    look_at        timestamptz,
    body           bytea,
    batched        bigint NOT NULL DEFAULT 0,
    left_out       bigint NOT NULL DEFAULT 0,
    run_id         uuid,
    nth            smallint,
    CONSTRAINT pipeline_is_known CHECK (pipeline IN ('states', 'lifecycle', 'approvals')),
    CONSTRAINT an_approval_has_a_run CHECK ((pipeline = 'approvals') = (run_id IS NOT NULL AND nth IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX outbox_due ON punctual.outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_under_way ON punctual.outbox (tenant) WHERE under_way AND pipeline <> 'states';
COMMENT ON TABLE  punctual.outbox IS
    'The recipients of messages, one row for each pipeline. At most one message is under way to each; what comes '
    'meanwhile joins the next one.';
COMMENT ON COLUMN punctual.outbox.id IS 'Computed from what makes the recipient: the tenant, pipeline, url and so on.';
COMMENT ON COLUMN punctual.outbox.pipeline IS
    'What the messages tell of. states: trouble of jobs, and its end. lifecycle: starts and successes of runs, in '
    'batches. approvals: one step that waits for approval; the row goes when the recipient has taken the notice, and '
    'when it is to be sent and the step waits no more.';
COMMENT ON COLUMN punctual.outbox.format IS 'Form of the messages, such as json or slack.';
COMMENT ON COLUMN punctual.outbox.url IS 'Where the messages go.';
COMMENT ON COLUMN punctual.outbox.secret IS 'Name of the secret that is added to the messages; empty: none.';
COMMENT ON COLUMN punctual.outbox.template IS 'Text of the messages, with placeholders; empty: the format has none.';
COMMENT ON COLUMN punctual.outbox.due_at IS 'When there is something to send; null: nothing.';
COMMENT ON COLUMN punctual.outbox.held_until IS
    'Nothing is sent before: a message is under way, the recipient asked for a pause, or a message has just gone out.';
COMMENT ON COLUMN punctual.outbox.message IS
    'The message that is under way, or that is sent again as it was; null: the next one is new.';
COMMENT ON COLUMN punctual.outbox.under_way IS
    'A replica sends the message. If that replica is lost, another one sends at held_until.';
COMMENT ON COLUMN punctual.outbox.pace IS 'The pause after the last message. It grows while messages are many.';
COMMENT ON COLUMN punctual.outbox.delivered_at IS 'When the recipient last took a message.';
COMMENT ON COLUMN punctual.outbox.failing_since IS 'Since when the recipient takes no messages; null: it does.';
COMMENT ON COLUMN punctual.outbox.failures IS 'Failed attempts since then.';
COMMENT ON COLUMN punctual.outbox.http_status IS 'Status of its last answer, if that was no success.';
COMMENT ON COLUMN punctual.outbox.error IS 'Why the last attempt failed.';
COMMENT ON COLUMN punctual.outbox.sent IS 'Of states: when each subject was last told of, in the last five minutes.';
COMMENT ON COLUMN punctual.outbox.causes IS
    'Of states: limits, queues, freezes and other causes of late runs that the recipient was told of, or may have been, '
    'and whose end it has not taken. They outlive the jobs that they held up.';
COMMENT ON COLUMN punctual.outbox.look_at IS 'Of states: when to check whether a cause is over; null: there is none.';
COMMENT ON COLUMN punctual.outbox.body IS 'Of lifecycle: what the message says, which is sent until it is taken; null: none.';
COMMENT ON COLUMN punctual.outbox.batched IS 'Of lifecycle: how many events the message has, and says were left out.';
COMMENT ON COLUMN punctual.outbox.left_out IS 'Of lifecycle: events that no batch will have; the next one says how many.';
COMMENT ON COLUMN punctual.outbox.run_id IS 'Of approvals: the run of the step.';
COMMENT ON COLUMN punctual.outbox.nth IS 'Of approvals: place of the recipient in approval.notify of the step, from 0.';

CREATE TABLE punctual.notice_states (
    job_id         uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    recipient_id   uuid NOT NULL REFERENCES punctual.outbox ON DELETE CASCADE,
    kind           text NOT NULL DEFAULT 'health',
    unsent         json,
    sending        json,
    tell_at        timestamptz,
    resolves       boolean NOT NULL,
    troubled       boolean NOT NULL DEFAULT false,
    open           boolean NOT NULL DEFAULT false,
    key            text NOT NULL DEFAULT '',
    ends           text,
    since          timestamptz,
    known          json,
    PRIMARY KEY (job_id, recipient_id, kind),
    CONSTRAINT kind_of_state_is_known CHECK (kind IN ('health', 'overlaps'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX notice_states_of_recipient ON punctual.notice_states (recipient_id, tell_at);
COMMENT ON TABLE  punctual.notice_states IS
    'What one recipient has yet to be told of one kind of trouble of one job, and what it may believe. A later state '
    'replaces an earlier one.';
COMMENT ON COLUMN punctual.notice_states.kind IS
    'health: whether the job is failing, dead or stale, and what passes, such as late runs. overlaps: most of its slots '
    'are skipped.';
COMMENT ON COLUMN punctual.notice_states.unsent IS 'Events that are in no message yet.';
COMMENT ON COLUMN punctual.notice_states.sending IS
    'Events in a message of which it is not certain that it arrived.';
COMMENT ON COLUMN punctual.notice_states.tell_at IS 'When to tell of them; null: there is nothing to tell.';
COMMENT ON COLUMN punctual.notice_states.resolves IS 'The recipient asked to be told of recoveries.';
COMMENT ON COLUMN punctual.notice_states.troubled IS 'The job is in this trouble, by the events up to sending.';
COMMENT ON COLUMN punctual.notice_states.open IS
    'The recipient was told of the trouble, or may have been, and has not taken the news that it is over.';
COMMENT ON COLUMN punctual.notice_states.key IS
    'The subject that the job''s trouble belongs to, such as its host, or the cause of its late runs; empty: none; over: '
    'its host can be reached again, and the job has not succeeded yet.';
COMMENT ON COLUMN punctual.notice_states.ends IS
    'Why the trouble is over without an event, which the recipient is yet to be told: job_deleted, job_paused, '
    'not_asked or tenant_deleted; of overlaps: overlap_over. Null: an event will end it, or the recipient was told.';
COMMENT ON COLUMN punctual.notice_states.since IS 'Of overlaps that are over: since when slots were skipped.';
COMMENT ON COLUMN punctual.notice_states.known IS
    'The names and labels of the job under which an Alertmanager may know the trouble; null: none.';

CREATE TABLE punctual.notice_messages (
    id             uuid PRIMARY KEY,
    tenant         integer NOT NULL,
    format         text NOT NULL,
    url            text NOT NULL,
    delivered_at   timestamptz NOT NULL DEFAULT now(),
    happened_at    timestamptz NOT NULL,
    headline       text NOT NULL,
    events         text[] NOT NULL,
    jobs           uuid[] NOT NULL
);
CREATE INDEX notice_messages_newest ON punctual.notice_messages (tenant, id);
CREATE INDEX notice_messages_old ON punctual.notice_messages (delivered_at);
COMMENT ON TABLE  punctual.notice_messages IS 'The notices that recipients took. Kept for 8 days.';
COMMENT ON COLUMN punctual.notice_messages.id IS 'UUIDv7 of the message.';
COMMENT ON COLUMN punctual.notice_messages.format IS 'Its form, such as json or slack.';
COMMENT ON COLUMN punctual.notice_messages.url IS 'Where it went.';
COMMENT ON COLUMN punctual.notice_messages.delivered_at IS 'When the recipient took it.';
COMMENT ON COLUMN punctual.notice_messages.happened_at IS 'When the newest of its events happened.';
COMMENT ON COLUMN punctual.notice_messages.headline IS 'Its first line.';
COMMENT ON COLUMN punctual.notice_messages.events IS 'The events that it told of.';
COMMENT ON COLUMN punctual.notice_messages.jobs IS 'The jobs that it told something new of.';

-- The starts and successes of runs, for recipients that ask for them. They are told in batches.
CREATE TABLE punctual.lifecycle_events (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recipient_id   uuid NOT NULL,
    tenant         integer NOT NULL,
    url            text NOT NULL,
    event          text NOT NULL,
    run_id         uuid NOT NULL,
    job_id         uuid NOT NULL,
    scheduled_for  timestamptz NOT NULL,
    started_at     timestamptz,
    finished_at    timestamptz,
    attempt        smallint NOT NULL,
    recorded_at    timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lifecycle_events_of_recipient ON punctual.lifecycle_events (recipient_id, id);
CREATE INDEX lifecycle_events_of_tenant ON punctual.lifecycle_events (tenant, id);
CREATE INDEX lifecycle_events_old ON punctual.lifecycle_events (recorded_at);
COMMENT ON TABLE  punctual.lifecycle_events IS
    'Starts and successes of runs that are in no batch for their recipient yet. At most 10,000 of a tenant, and none for '
    'longer than a day: older ones are left out, which outbox.left_out counts.';
COMMENT ON COLUMN punctual.lifecycle_events.id IS 'Orders them.';
COMMENT ON COLUMN punctual.lifecycle_events.url IS 'Where it goes.';
COMMENT ON COLUMN punctual.lifecycle_events.event IS 'started or succeeded.';
COMMENT ON COLUMN punctual.lifecycle_events.scheduled_for IS 'The slot of the run.';
COMMENT ON COLUMN punctual.lifecycle_events.started_at IS 'When its latest attempt was sent; of a start: when it was claimed.';
COMMENT ON COLUMN punctual.lifecycle_events.finished_at IS 'When it ended; null: of a start.';
COMMENT ON COLUMN punctual.lifecycle_events.attempt IS 'Number of its latest attempt.';
COMMENT ON COLUMN punctual.lifecycle_events.recorded_at IS 'When it was written.';

-- When a version of a job expects success within a time, the job must be checked for staleness: it was created, edited
-- or resumed. The trigger is deferred, so that the row is locked last, as in the finish of runs.
CREATE FUNCTION punctual.expect_success() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM punctual.refuse_other_table('expect_success', TG_TABLE_SCHEMA::text, TG_TABLE_NAME::text, '^job_versions$');
    INSERT INTO punctual.notified AS n (job_id, look_at) SELECT j.id, now() FROM punctual.jobs j WHERE j.id = NEW.job_id
    ON CONFLICT (job_id) DO UPDATE SET look_at = excluded.look_at;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION punctual.expect_success() IS
    'Sets a job that expects success within a time to be checked for staleness now.';

CREATE CONSTRAINT TRIGGER expect_success AFTER INSERT ON punctual.job_versions DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 'active' AND NEW.definition -> 'expect_success_within' IS NOT NULL)
    EXECUTE FUNCTION punctual.expect_success();

CREATE TABLE punctual.run_token_key (
    singleton  boolean PRIMARY KEY DEFAULT true,
    key        bytea NOT NULL DEFAULT decode(replace(((gen_random_uuid())::text || (gen_random_uuid())::text),
        '-'::text, ''::text), 'hex'::text),
    CONSTRAINT run_token_key_has_one_row CHECK (singleton),
    CONSTRAINT run_token_key_is_long CHECK (length(key) >= 32)
);
COMMENT ON TABLE  punctual.run_token_key IS
    'The key that run tokens are made with. Any role that can read it can complete any run that waits for a callback. '
    'Exactly one row.';
COMMENT ON COLUMN punctual.run_token_key.singleton IS 'Always true: keeps the table at one row.';
COMMENT ON COLUMN punctual.run_token_key.key IS 'Key of the HMAC-SHA-256 in each token; 244 random bits.';

INSERT INTO punctual.run_token_key DEFAULT VALUES;
-- +goose StatementEnd

-- Limits of tenants. None of these tables has an index on a column that changes when runs start, so that updates are
-- HOT.

-- +goose StatementBegin
CREATE TABLE punctual.tenant_usage (
    tenant      integer PRIMARY KEY REFERENCES punctual.tenants,
    starts_at   timestamptz,
    held_by     text,
    held_since  timestamptz,
    held_at     timestamptz,
    CONSTRAINT usage_held_by_is_a_limit CHECK (held_by IN ('max_concurrent_runs', 'max_runs_per_second')),
    CONSTRAINT usage_held_back_has_its_instants CHECK ((held_by IS NULL) = (held_since IS NULL)
        AND (held_by IS NULL) = (held_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.tenant_usage IS
    'How much of their limits tenants have used. A missing row is created when it is needed. The row''s lock makes '
    'the limits exact.';
COMMENT ON COLUMN punctual.tenant_usage.tenant IS 'The tenant: tenants.id.';
COMMENT ON COLUMN punctual.tenant_usage.starts_at IS
    'Until when max_runs_per_second is used up (generic cell rate). An instant in the past: since when it is not used '
    'up. Null: nothing was started.';
COMMENT ON COLUMN punctual.tenant_usage.held_by IS 'The limit that its due work last waited for.';
COMMENT ON COLUMN punctual.tenant_usage.held_since IS 'Since when its due work waited for that limit.';
COMMENT ON COLUMN punctual.tenant_usage.held_at IS
    'When a replica last saw its due work wait for that limit. If that is more than 5 s ago, it waits no more.';

CREATE TABLE punctual.allowances (
    tenant    integer NOT NULL REFERENCES punctual.tenants,
    replica   uuid NOT NULL,
    slots     integer NOT NULL,
    wants     integer NOT NULL DEFAULT 0,
    since     timestamptz NOT NULL DEFAULT now(),
    asked_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT allowance_is_not_negative CHECK (slots >= 0 AND wants >= 0),
    PRIMARY KEY (tenant, replica)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.allowances IS
    'How max_concurrent_runs is shared out among the replicas. The row of a lost replica goes when its claims have '
    'gone.';
COMMENT ON COLUMN punctual.allowances.tenant IS 'The tenant whose runs may be sent: tenants.id.';
COMMENT ON COLUMN punctual.allowances.replica IS 'The replica that may send them.';
COMMENT ON COLUMN punctual.allowances.slots IS
    'How many runs it may send at once. The sum over all replicas exceeds the limit only after the limit was lowered, '
    'until runs end.';
COMMENT ON COLUMN punctual.allowances.wants IS 'How many more slots it had work for when it last asked.';
COMMENT ON COLUMN punctual.allowances.since IS 'Since when it has had slots or, if it has none, has wanted some.';
COMMENT ON COLUMN punctual.allowances.asked_at IS 'When it last asked.';

-- A limit that jobs share by its name. Claims lock its row, and decide by the facts: a holder whose run has ended counts
-- no more. The row is written only when a start under a rate moves starts_at.
CREATE TABLE punctual.limits (
    tenant                 integer NOT NULL REFERENCES punctual.tenants,
    name                   text NOT NULL,
    max_running            integer,
    max_starts_per_second  integer,
    starts_at              timestamptz NOT NULL DEFAULT '-infinity',
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name),
    CONSTRAINT limit_name_is_1_to_128_letters_digits_and_marks CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
    CONSTRAINT limit_max_running_is_1_to_100000 CHECK (max_running BETWEEN 1 AND 100000),
    CONSTRAINT limit_max_starts_per_second_is_1_to_100000 CHECK (max_starts_per_second BETWEEN 1 AND 100000),
    CONSTRAINT limit_bounds_something CHECK (num_nonnulls(max_running, max_starts_per_second) > 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.limits IS 'Limits that jobs share by name: how many of their runs go on at once, and start.';
COMMENT ON COLUMN punctual.limits.name IS 'The name that definitions use.';
COMMENT ON COLUMN punctual.limits.max_running IS 'How many runs may hold it at once; null: no bound.';
COMMENT ON COLUMN punctual.limits.max_starts_per_second IS 'How many runs may start in a second; null: no bound.';
COMMENT ON COLUMN punctual.limits.starts_at IS
    'The instant up to which max_starts_per_second is used up (generic cell rate).';
COMMENT ON COLUMN punctual.limits.updated_at IS 'When a caller last changed it.';

CREATE TABLE punctual.limit_holders (
    tenant  integer NOT NULL,
    name    text NOT NULL,
    run_id  uuid NOT NULL,
    since   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name, run_id),
    FOREIGN KEY (tenant, name) REFERENCES punctual.limits ON DELETE CASCADE
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX limit_holders_by_run ON punctual.limit_holders (run_id);
COMMENT ON TABLE  punctual.limit_holders IS
    'Runs that hold limits: from their first start to their end, through retries and work after a 202. A run that needs '
    'several limits and has waited for a minute holds those that it has got already.';
COMMENT ON COLUMN punctual.limit_holders.name IS 'The limit.';
COMMENT ON COLUMN punctual.limit_holders.run_id IS 'The run. When it has ended, it counts no more, and its row is removed.';
COMMENT ON COLUMN punctual.limit_holders.since IS 'Since when it holds the limit.';

CREATE TABLE punctual.job_limits (
    job_id  uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    tenant  integer NOT NULL,
    name    text NOT NULL,
    PRIMARY KEY (job_id, name),
    FOREIGN KEY (tenant, name) REFERENCES punctual.limits ON DELETE CASCADE
);
CREATE INDEX job_limits_by_limit ON punctual.job_limits (tenant, name);
COMMENT ON TABLE  punctual.job_limits IS 'The limits that the current definitions of jobs name.';
COMMENT ON COLUMN punctual.job_limits.name IS 'The limit.';

CREATE FUNCTION punctual.holders_of_limit(of_tenant integer, of_limit text) RETURNS SETOF uuid
LANGUAGE sql STABLE ROWS 10 AS $$
    SELECT r.id
    FROM punctual.runs_of(ARRAY(
        SELECT h.run_id FROM punctual.limit_holders h WHERE h.tenant = of_tenant AND h.name = of_limit)) r
    WHERE r.finished_at IS NULL
$$;
COMMENT ON FUNCTION punctual.holders_of_limit(integer, text) IS 'The runs that hold a limit and have not ended.';

-- Of a rate, the starts of half a second are given out ahead. A run that was let in is in nobody's way any more if it is
-- not claimed within a second, because no replica serves its queue, or was put off for long.
CREATE FUNCTION punctual.room_at_limit(l punctual.limits) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT least(coalesce(l.max_running - (SELECT count(*) FROM punctual.holders_of_limit(l.tenant, l.name)), 1000),
                 coalesce((l.max_starts_per_second + 1) / 2, 1000))::integer
           - (SELECT count(*) FROM punctual.ready y
              WHERE y.tenant = l.tenant AND y.waits_on = l.name AND y.waits = 'turn'
                AND y.due_at > now() - interval '1 s' AND y.due_at <= now() + interval '2 s')::integer
$$;
COMMENT ON FUNCTION punctual.room_at_limit(punctual.limits) IS
    'How many more of the runs that wait at a limit may be let in.';

-- A table apart from tenant_usage: a request that writes jobs holds this row until the jobs are written, and no run may
-- wait for that.
CREATE TABLE punctual.tenant_jobs (
    tenant  integer PRIMARY KEY REFERENCES punctual.tenants,
    jobs    integer,
    CONSTRAINT tenant_jobs_are_not_negative CHECK (jobs >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.tenant_jobs IS
    'How many jobs the tenants with max_jobs have. A missing row is created when it is needed. The row''s lock makes '
    'the limit exact.';
COMMENT ON COLUMN punctual.tenant_jobs.tenant IS 'The tenant: tenants.id.';
COMMENT ON COLUMN punctual.tenant_jobs.jobs IS
    'At least the number of its active and paused jobs. Creating jobs raises it; when it reaches max_jobs, the jobs '
    'are counted again. Null: to be counted.';

-- Jobs are not counted while the tenant has no limit.
CREATE FUNCTION punctual.count_jobs_anew() RETURNS trigger
LANGUAGE plpgsql AS $$ BEGIN UPDATE punctual.tenant_jobs SET jobs = NULL WHERE tenant = NEW.id; RETURN NULL; END $$;
COMMENT ON FUNCTION punctual.count_jobs_anew() IS
    'Has the jobs of a tenant counted again after its max_jobs was set or changed.';

CREATE TRIGGER count_jobs_anew AFTER UPDATE OF max_jobs ON punctual.tenants FOR EACH ROW
    WHEN (OLD.max_jobs IS DISTINCT FROM NEW.max_jobs) EXECUTE FUNCTION punctual.count_jobs_anew();

-- Unlogged, so that no request waits for the disk. After a crash or a failover each tenant has a second's worth of
-- requests again.
CREATE UNLOGGED TABLE punctual.request_rates (
    tenant       integer PRIMARY KEY REFERENCES punctual.tenants,
    spent_until  timestamptz NOT NULL,
    granted      integer NOT NULL,
    CONSTRAINT request_rate_grants_something CHECK (granted > 0)
) WITH (fillfactor = 20);
COMMENT ON TABLE  punctual.request_rates IS
    'How much of max_requests_per_second tenants have used. Replicas draw requests from here, a tenth of a second''s '
    'worth at a time.';
COMMENT ON COLUMN punctual.request_rates.tenant IS 'The tenant that sent them: tenants.id.';
COMMENT ON COLUMN punctual.request_rates.spent_until IS
    'When all requests drawn so far would have been sent at an even rate: at most a second from now.';
COMMENT ON COLUMN punctual.request_rates.granted IS 'How many requests the last replica drew.';
-- +goose StatementEnd

-- API keys and secrets. Encrypted columns are useless in SQL, so none of this is granted to punctual_reader.

-- +goose StatementBegin
CREATE TABLE punctual.api_keys (
    id            uuid PRIMARY KEY,
    tenant        integer NOT NULL REFERENCES punctual.tenants,
    name          text NOT NULL,
    prefix        text NOT NULL,
    hash          bytea NOT NULL,
    role          text NOT NULL,
    created_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    CONSTRAINT api_key_name_is_1_to_128_characters CHECK (length(name) BETWEEN 1 AND 128),
    CONSTRAINT api_key_hash_is_a_sha_256 CHECK (length(hash) = 32),
    CONSTRAINT api_key_expires_after_it_was_made CHECK (expires_at > created_at),
    CONSTRAINT api_key_prefix_is_unique UNIQUE (prefix),
    CONSTRAINT api_key_role_is_known CHECK (role IN ('metrics', 'viewer', 'submitter', 'editor', 'admin', 'operator'))
);
CREATE INDEX api_keys_by_tenant ON punctual.api_keys (tenant, id);
CREATE INDEX api_keys_expiring ON punctual.api_keys (expires_at)
    WHERE revoked_at IS NULL AND expires_at - created_at > interval '7 days';
COMMENT ON TABLE  punctual.api_keys IS 'API keys. A key is shown once, when it is created, and is not stored.';
COMMENT ON COLUMN punctual.api_keys.id IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.api_keys.tenant IS 'The tenant that it acts for: tenants.id.';
COMMENT ON COLUMN punctual.api_keys.name IS 'What it is for, for people.';
COMMENT ON COLUMN punctual.api_keys.prefix IS
    'The beginning of the key, which is not secret. The key is looked up by it.';
COMMENT ON COLUMN punctual.api_keys.hash IS
    'SHA-256 of the whole key. A key holds 256 random bits, so a slow hash would protect it no better.';
COMMENT ON COLUMN punctual.api_keys.role IS
    'viewer, submitter, editor, admin or operator: each may do all that the roles before it may. metrics: reads the '
    'metrics of the deployment and nothing else.';
COMMENT ON COLUMN punctual.api_keys.created_by IS 'Who created it.';
COMMENT ON COLUMN punctual.api_keys.expires_at IS 'When it stops working; null: never.';
COMMENT ON COLUMN punctual.api_keys.last_used_at IS 'When it was last used, to the minute.';
COMMENT ON COLUMN punctual.api_keys.revoked_at IS 'When it was revoked.';

CREATE TABLE punctual.data_keys (
    id          bigint PRIMARY KEY,
    number      bigint GENERATED ALWAYS AS IDENTITY,
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    payloads    boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE  punctual.data_keys IS
    'The keys that encrypt secrets and payloads. They are themselves encrypted with the master key, which is not in the '
    'database.';
COMMENT ON COLUMN punctual.data_keys.id IS 'Tink''s id of the key. Every ciphertext begins with it.';
COMMENT ON COLUMN punctual.data_keys.number IS 'Order of creation: the last key encrypts, all keys decrypt.';
COMMENT ON COLUMN punctual.data_keys.sealed IS
    'Tink keyset of one AES-256-GCM key, encrypted with the master key; the id is its associated data.';
COMMENT ON COLUMN punctual.data_keys.payloads IS
    'True: it encrypts payloads (--encrypt-payloads) and is kept for ever. False: it encrypts secrets.';

CREATE TABLE punctual.secrets (
    id           uuid PRIMARY KEY,
    tenant       integer NOT NULL REFERENCES punctual.tenants,
    name         text NOT NULL,
    description  text NOT NULL DEFAULT '',
    version      integer NOT NULL DEFAULT 1,
    data_key     bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext   bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secret_name_is_1_to_128_letters_digits_and_marks CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
    CONSTRAINT secret_name_is_unique UNIQUE (tenant, name)
);
COMMENT ON TABLE  punctual.secrets IS 'Secrets that definitions refer to by name. No value is ever shown.';
COMMENT ON COLUMN punctual.secrets.id IS
    'UUIDv7 of its creation. A secret created later under the same name has another id.';
COMMENT ON COLUMN punctual.secrets.name IS 'The name that definitions use.';
COMMENT ON COLUMN punctual.secrets.description IS 'For people.';
COMMENT ON COLUMN punctual.secrets.version IS 'Counts the values it has had.';
COMMENT ON COLUMN punctual.secrets.data_key IS 'The data key that encrypts it: data_keys.id.';
COMMENT ON COLUMN punctual.secrets.ciphertext IS 'AES-256-GCM; tenant, kind and id are its associated data.';
COMMENT ON COLUMN punctual.secrets.updated_at IS 'When it was last changed.';

CREATE TABLE punctual.links (
    job_id     uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    position   smallint NOT NULL,
    target_id  uuid NOT NULL,
    run_when   text NOT NULL CONSTRAINT link_is_known CHECK (run_when IN ('succeeded', 'failed', 'ended')),
    PRIMARY KEY (job_id, position)
);
CREATE INDEX links_by_target ON punctual.links (target_id);
COMMENT ON TABLE  punctual.links IS
    'The chains of the jobs'' present definitions, their member then: whose end triggers whom. A run is chained by the '
    'definition that it ran with.';
COMMENT ON COLUMN punctual.links.job_id IS 'The job whose end triggers the other.';
COMMENT ON COLUMN punctual.links.position IS 'The place in then, from 1.';
COMMENT ON COLUMN punctual.links.target_id IS
    'The job that is triggered, of the same tenant. It may be deleted, or gone: then runs of it are recorded as skipped.';
COMMENT ON COLUMN punctual.links.run_when IS
    'Which end triggers it: succeeded, failed (dead), or ended (either, or cancelled).';

CREATE TABLE punctual.secret_uses (
    tenant  integer NOT NULL,
    name    text NOT NULL,
    job_id  uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    PRIMARY KEY (tenant, name, job_id)
);
CREATE INDEX secret_uses_by_job ON punctual.secret_uses (job_id);
COMMENT ON TABLE  punctual.secret_uses IS
    'Which jobs have referred to which secrets in some version. It is consulted before a secret is deleted.';
COMMENT ON COLUMN punctual.secret_uses.name IS 'Name of the secret.';

CREATE TABLE punctual.job_secrets (
    id          uuid PRIMARY KEY,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    job_id      uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    data_key    bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext  bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX job_secrets_by_job ON punctual.job_secrets (job_id);
COMMENT ON TABLE  punctual.job_secrets IS
    'Values that were written into definitions, where {"sealed": id} stands in their place. A row never changes; '
    'another value gets another row.';
COMMENT ON COLUMN punctual.job_secrets.id IS 'The id by which the definition refers to it.';
COMMENT ON COLUMN punctual.job_secrets.job_id IS 'The job. The row goes when the job does.';
COMMENT ON COLUMN punctual.job_secrets.data_key IS 'The data key that encrypts it: data_keys.id.';
COMMENT ON COLUMN punctual.job_secrets.ciphertext IS 'AES-256-GCM; tenant, kind, job and id are its associated data.';
COMMENT ON COLUMN punctual.job_secrets.created_at IS 'When it was written.';

CREATE TABLE punctual.signing_secrets (
    id          uuid PRIMARY KEY,
    tenant      integer NOT NULL REFERENCES punctual.tenants,
    data_key    bigint NOT NULL REFERENCES punctual.data_keys,
    ciphertext  bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz
);
CREATE INDEX signing_secrets_by_tenant ON punctual.signing_secrets (tenant);
COMMENT ON TABLE  punctual.signing_secrets IS
    'The secrets that sign a tenant''s callbacks. Each live secret signs every callback. Every tenant has one that '
    'does not expire.';
COMMENT ON COLUMN punctual.signing_secrets.id IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.signing_secrets.data_key IS 'The data key that encrypts it: data_keys.id.';
COMMENT ON COLUMN punctual.signing_secrets.ciphertext IS 'AES-256-GCM; tenant, kind and id are its associated data.';
COMMENT ON COLUMN punctual.signing_secrets.expires_at IS 'When it stops signing; null: when it is deleted.';
-- +goose StatementEnd

-- The audit log. It is append-only.

-- +goose StatementBegin
-- The primary key begins with the tenant, as the order of every list does. The id contains the time. There are no
-- foreign keys to tenants or jobs: checking them would cost each change a look-up, and entries must stay when their job
-- is forgotten.
CREATE DOMAIN punctual.audit_action AS text CONSTRAINT audit_action_is_known CHECK (VALUE IN ('job.create',
    'job.update', 'job.pause', 'job.resume', 'job.delete', 'job.restore', 'job.backfill', 'run.trigger', 'run.cancel',
    'run.move', 'run.approve', 'run.reject', 'dead_letter.replay', 'dead_letter.resolve', 'operation.create', 'operation.cancel', 'api_key.create',
    'api_key.revoke', 'tenant.create', 'tenant.update', 'tenant.delete', 'secret.put', 'secret.delete', 'secret.rotate',
    'signing_secret.create', 'signing_secret.delete', 'limit.put', 'limit.delete', 'deployment.freeze', 'deployment.unfreeze', 'deployment.adopt',
    'tenant.freeze', 'tenant.unfreeze', 'tenant.grant', 'tenant.revoke', 'breaker.reset', 'set_aside.retry',
    'set_aside.drop'));
COMMENT ON DOMAIN punctual.audit_action IS 'What an actor did.';
CREATE TABLE punctual.audit_log (
    id           uuid NOT NULL,
    job_id       uuid,
    resource_id  uuid,
    at           timestamptz NOT NULL,
    tenant       integer NOT NULL,
    action       punctual.audit_action NOT NULL,
    actor_kind   text NOT NULL,
    actor        text,
    address      inet,
    request_id   text,
    name         text,
    before       json,
    after        json,
    CONSTRAINT audit_actor_kind_is_known CHECK (actor_kind IN ('anybody', 'key', 'token', 'command', 'database',
        'link', 'system')),
    PRIMARY KEY (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX audit_log_by_job ON punctual.audit_log (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX audit_log_of_no_job ON punctual.audit_log (tenant, id) WHERE job_id IS NULL;
COMMENT ON TABLE  punctual.audit_log IS
    'Every change that an actor made, written in the same transaction. Append-only: changing, deleting and truncating '
    'are refused, except for the rows that punctual.forget_audit_log removes.';
COMMENT ON COLUMN punctual.audit_log.id IS 'UUIDv7 of at: ids are in the order of time.';
COMMENT ON COLUMN punctual.audit_log.job_id IS
    'The job it is about, also of a change to one of its runs or dead letters; null: no single job.';
COMMENT ON COLUMN punctual.audit_log.resource_id IS
    'Id of the changed resource; action names its kind before the dot. Null: the resource has no such id.';
COMMENT ON COLUMN punctual.audit_log.at IS
    'When, by the database''s clock. Of a change to a job: the valid_from of the version that it created.';
COMMENT ON COLUMN punctual.audit_log.tenant IS
    'The tenant that the entry belongs to: tenants.id; -1: the whole deployment.';
COMMENT ON COLUMN punctual.audit_log.action IS 'What was done: the kind of resource, a dot, a verb.';
COMMENT ON COLUMN punctual.audit_log.actor_kind IS
    'How the actor authenticated: key, token, command, database (a role in SQL), link (in a notice). anybody: authentication was off. '
    'system: Punctual itself.';
COMMENT ON COLUMN punctual.audit_log.actor IS
    'Who: a key''s id, a token''s subject or a login; null: the actor is not known.';
COMMENT ON COLUMN punctual.audit_log.address IS
    'The address that the request came from; null: there was no request, as on the command line.';
COMMENT ON COLUMN punctual.audit_log.request_id IS 'The request''s id, as in its response and in the server''s log.';
COMMENT ON COLUMN punctual.audit_log.name IS
    'Name of the resource at that time; of a run or dead letter: its job''s name.';
COMMENT ON COLUMN punctual.audit_log.before IS
    'The resource before the change; null: it did not exist. Secrets read ***.';
COMMENT ON COLUMN punctual.audit_log.after IS
    'The resource after the change; null: it no longer exists. Secrets read ***.';

CREATE FUNCTION punctual.refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('punctual.forgetting', true) = 'on'
       AND OLD.at < now() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'punctual.audit_log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege',
        HINT = 'punctual.forget_audit_log removes entries older than --audit-retention, but never the last 30 days.';
END
$$;
COMMENT ON FUNCTION punctual.refuse_audit_change() IS
    'Refuses to change or delete audit entries, for every role. Only punctual.forget_audit_log may delete entries, if '
    'they are older than 30 days.';

CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE ON punctual.audit_log
    FOR EACH ROW EXECUTE FUNCTION punctual.refuse_audit_change();
CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON punctual.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_audit_change();

-- Deletes tenant by tenant, so that the primary key finds the old rows. It takes the tenants from the log itself.
CREATE FUNCTION punctual.forget_audit_log(older_than interval, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until constant timestamptz := now() - greatest(older_than, interval '30 days');
    below constant uuid := rpad(lpad(to_hex(floor(extract(epoch FROM until) * 1000)::bigint), 12, '0'), 32, '0')::uuid;
    forgotten integer;
BEGIN
    PERFORM set_config('punctual.forgetting', 'on', true);
    WITH RECURSIVE tenants(id) AS (
        SELECT min(tenant) FROM punctual.audit_log
        UNION ALL
        SELECT (SELECT min(a.tenant) FROM punctual.audit_log a WHERE a.tenant > t.id)
        FROM tenants t WHERE t.id IS NOT NULL),
    old AS (
        SELECT o.tenant, o.id FROM tenants t CROSS JOIN LATERAL (
            SELECT a.tenant, a.id FROM punctual.audit_log a
            WHERE a.tenant = t.id AND a.id < below ORDER BY a.id LIMIT most) o
        LIMIT most)
    DELETE FROM punctual.audit_log a USING old WHERE a.tenant = old.tenant AND a.id = old.id AND a.at < until;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    PERFORM set_config('punctual.forgetting', 'off', true);
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION punctual.forget_audit_log(interval, integer) IS
    'Removes rows of audit_log that are older than the interval, up to the given number. Never removes the last 30 '
    'days. Returns how many it removed.';
-- +goose StatementEnd

-- Functions that views and the replicas' statements share.

-- +goose StatementBegin
CREATE FUNCTION punctual.priority_name(lane smallint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (ARRAY['high', 'normal', 'low'])[lane % 4 + 1] $$;
COMMENT ON FUNCTION punctual.priority_name(smallint) IS 'Priority part of a lane: high, normal or low.';

-- Whoever reads the state of a job asks these three: they know that a one-shot without a row in schedules is completed.
-- They take a job and its row, which is null if there is none (LEFT JOIN). The planner inlines them, so they cost no
-- call and hide no column from it.
CREATE FUNCTION punctual.is_completed(j punctual.jobs, s punctual.schedules) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT j.state = 'active' AND (s.completed_at IS NOT NULL OR s.job_id IS NULL AND j.kind IN ('at', 'delay'))
$$;
COMMENT ON FUNCTION punctual.is_completed(punctual.jobs, punctual.schedules) IS
    'Whether the last slot of a job was claimed: its row in schedules has a completed_at, or it is a one-shot without '
    'such a row.';

CREATE FUNCTION punctual.job_state(j punctual.jobs, s punctual.schedules) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN punctual.is_completed(j, s) THEN 'completed' ELSE j.state END
$$;
COMMENT ON FUNCTION punctual.job_state(punctual.jobs, punctual.schedules) IS
    'State of a job: active, paused, completed or deleted.';

CREATE FUNCTION punctual.completed_at(j punctual.jobs, s punctual.schedules) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN s.job_id IS NOT NULL THEN s.completed_at ELSE punctual.slot_claimed_at(j.id) END
$$;
COMMENT ON FUNCTION punctual.completed_at(punctual.jobs, punctual.schedules) IS
    'When the last slot of a job was claimed; null if it has slots left, or if neither its run nor its skip is found.';

CREATE FUNCTION punctual.lane_of(queue smallint, definition json) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (queue * 4 + CASE definition ->> 'priority' WHEN 'high' THEN 0 WHEN 'low' THEN 2 ELSE 1 END)::smallint
$$;
COMMENT ON FUNCTION punctual.lane_of(smallint, json) IS
    'The lane of a job, as in schedules, from its queue and its definition.';

-- A UUIDv8 as that of a slot's run: the milliseconds, and bits of a hash.
CREATE FUNCTION punctual.chained_run(upstream uuid, target uuid, at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || left(h, 3) || 'a'
            || substr(h, 4, 15))::uuid
    FROM encode(sha256(uuid_send(upstream) || uuid_send(target)), 'hex') h
$$;
COMMENT ON FUNCTION punctual.chained_run(uuid, uuid, timestamptz) IS
    'The id of the run that the end of a run, at an instant, makes of another job: one and only one.';

CREATE FUNCTION punctual.held_by(held_by text, held_at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN held_at > now() - interval '5 s' AND held_at < now() + interval '5 s' THEN held_by END
$$;
COMMENT ON FUNCTION punctual.held_by(text, timestamptz) IS
    'The limit that a tenant''s due work waits for now, from held_by and held_at of tenant_usage; null: none.';

-- SECURITY DEFINER, because a tenant may not see replicas.
CREATE FUNCTION punctual.why_aside(of_kind text, item uuid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT 'set aside: ' || a.reason FROM punctual.set_aside a WHERE a.kind = of_kind AND a.item = why_aside.item
$$;
COMMENT ON FUNCTION punctual.why_aside(text, uuid) IS
    'Why an item is set aside, as in overdue.held_by; null: it is not.';

CREATE FUNCTION punctual.is_served(queue text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM punctual.replicas r
                   WHERE r.queues ? queue AND NOT r.draining AND r.renewed_at > now() - interval '15 s')
$$;
COMMENT ON FUNCTION punctual.is_served(text) IS 'Whether a live replica serves the queue of this name.';

-- SECURITY DEFINER for the same reason.
CREATE FUNCTION punctual.shortage(queue text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'replica ' || r.host || ' lacks ' || r.lacks || ', so it gives runs back and claims less'
    FROM punctual.replicas r
    WHERE r.queues ? queue AND r.lacks IS NOT NULL AND r.renewed_at > now() - interval '15 s'
    ORDER BY r.host
    LIMIT 1
$$;
COMMENT ON FUNCTION punctual.shortage(text) IS
    'What a live replica lacks that serves the queue of this name, for people; null: none lacks anything.';

CREATE FUNCTION punctual.stamp(at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;
COMMENT ON FUNCTION punctual.stamp(timestamptz) IS 'An instant for people, in UTC, to the second.';

-- Six seconds are three heartbeats. A replica that renewed in the future did so before the clock was stepped back.
CREATE FUNCTION punctual.all_away() RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM punctual.replicas WHERE renewed_at > now() - interval '6 s' AND renewed_at <= now())
$$;
COMMENT ON FUNCTION punctual.all_away() IS
    'Whether no replica has renewed for three heartbeats: all of them, or the database, were away.';

-- The words for each kind of wait stand here, and nowhere else. Of a limit that jobs share they say who holds it.
CREATE FUNCTION punctual.wait_in_words(kind text, waits_on text, of_tenant integer) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE kind
        WHEN 'host' THEN 'breaker ' || waits_on
        WHEN 'hanging' THEN 'hanging ' || waits_on
        WHEN 'person' THEN 'approval'
        WHEN 'queue' THEN 'no live replica serves the queue "' || waits_on || '"'
        WHEN 'aside' THEN 'set aside: ' || waits_on
        WHEN 'tenant' THEN 'limit ' || waits_on
        WHEN 'limit' THEN coalesce((
            SELECT 'limit ' || l.name || coalesce(
                       (SELECT ' (held by run ' || h.run_id || ')' FROM punctual.limit_holders h
                        WHERE h.tenant = l.tenant AND h.name = l.name AND l.max_running IS NOT NULL
                        ORDER BY h.since, h.run_id LIMIT 1),
                       ' (' || l.max_starts_per_second || ' starts a second)', '')
            FROM punctual.limits l
            WHERE l.tenant = of_tenant AND l.name = waits_on), 'limit ' || waits_on)
        ELSE kind END -- gate, slots, frozen, paused
$$;
COMMENT ON FUNCTION punctual.wait_in_words(text, text, integer) IS
    'What is waited for, in words: a kind of waits_for, what of that kind, and the tenant.';

CREATE FUNCTION punctual.waits_for(
    served boolean, queue text, row_waits text, row_waits_on text, limit_of_tenant text, of_tenant integer,
    due timestamptz)
RETURNS TABLE (kind text, waits_on text, waits_for text)
LANGUAGE sql STABLE AS $$
    SELECT k.kind, o.waits_on, punctual.wait_in_words(k.kind, o.waits_on, of_tenant)
    FROM (SELECT CASE WHEN row_waits IN ('person', 'frozen', 'paused', 'aside') THEN row_waits
                      WHEN NOT served THEN 'queue'
                      WHEN row_waits = 'host' AND row_waits_on LIKE 'hanging %' THEN 'hanging'
                      WHEN row_waits <> 'turn' THEN row_waits
                      WHEN limit_of_tenant IS NOT NULL THEN 'tenant'
                      WHEN due < now() - interval '5 s' THEN 'slots' END AS kind) k
    CROSS JOIN LATERAL (SELECT CASE WHEN k.kind IN ('host', 'hanging') THEN substr(row_waits_on, strpos(row_waits_on, ' ') + 1)
                                    WHEN k.kind IN ('aside', 'limit') THEN row_waits_on
                                    WHEN k.kind = 'queue' THEN queue
                                    WHEN k.kind = 'tenant' THEN limit_of_tenant END AS waits_on) o
$$;
COMMENT ON FUNCTION punctual.waits_for(boolean, text, text, text, text, integer, timestamptz) IS
    'What due work waits for: its kind, what of that kind, and the same in words. All null: nothing, a replica is about '
    'to take it. row_waits and row_waits_on are those of ready, or frozen, paused or aside with the reason.';

-- Every claim asks for it. Postgres reads it from a file each time, so the backend remembers it in a setting of its own.
CREATE FUNCTION punctual.system_identifier() RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    here text := current_setting('punctual.system_identifier', true);
BEGIN
    IF here <> '' THEN
        RETURN here;
    END IF;
    BEGIN
        here := (SELECT system_identifier::text FROM pg_catalog.pg_control_system());
    EXCEPTION
        WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
            RETURN '';
    END;
    PERFORM set_config('punctual.system_identifier', here, false);
    RETURN here;
END
$$;
COMMENT ON FUNCTION punctual.system_identifier() IS
    'System identifier of this Postgres. Empty: this Postgres does not tell it, as on some hosted ones; a copy is '
    'then recognised by the name of the database alone.';

CREATE FUNCTION punctual.is_copy(database_name text, system_identifier text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    here text;
BEGIN
    IF database_name = '' OR database_name <> current_database() THEN
        RETURN database_name <> '';
    END IF;
    here := punctual.system_identifier();
    RETURN system_identifier <> '' AND here <> '' AND here <> system_identifier;
END
$$;
COMMENT ON FUNCTION punctual.is_copy(text, text) IS
    'Whether this database is not the one with the given name and system identifier, but a restored dump, a clone or '
    'an upgraded server. A promoted standby is not a copy.';

CREATE FUNCTION punctual.frozen_since(tenant integer) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT least((SELECT d.frozen_at FROM punctual.deployment d),
                 (SELECT t.frozen_at FROM punctual.tenants t WHERE t.id = $1))
$$;
COMMENT ON FUNCTION punctual.frozen_since(integer) IS
    'Since when nothing of a tenant (tenants.id) is claimed, because the tenant or the deployment is frozen; null: '
    'neither is frozen.';

-- The planner inlines it. A step is under the gate of its workflow alone, and only a run whose gate is held is looked up.
CREATE FUNCTION punctual.wait_of(y punctual.ready, queue text, served boolean)
RETURNS TABLE (kind text, waits_on text, waits_for text, since timestamptz, until timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT w.kind, w.waits_on, w.waits_for,
           CASE WHEN a.since IS NOT NULL THEN a.since
                WHEN y.waits = 'turn' THEN y.due_at ELSE coalesce(y.since, y.due_at) END,
           CASE y.waits WHEN 'host' THEN y.until WHEN 'person' THEN y.due_at END
    FROM (VALUES (true)) one
    LEFT JOIN punctual.set_aside a ON a.kind = 'run' AND a.item = y.run_id
    LEFT JOIN punctual.exclusive g ON y.waits = 'turn' AND g.job_id = y.job_id AND g.active_run <> y.run_id AND g.gated
         AND NOT EXISTS (SELECT FROM punctual.runs_of(ARRAY[y.run_id]) r WHERE r.parent_run IS NOT NULL)
    LEFT JOIN punctual.tenant_usage u ON u.tenant = y.tenant
    CROSS JOIN LATERAL punctual.waits_for(
        served, queue,
        CASE WHEN y.waits = 'person' THEN y.waits
             WHEN punctual.frozen_since(y.tenant) IS NOT NULL THEN 'frozen'
             WHEN a.item IS NOT NULL THEN 'aside'
             WHEN g.job_id IS NOT NULL THEN 'gate'
             ELSE y.waits END,
        coalesce(a.reason, y.waits_on), punctual.held_by(u.held_by, u.held_at), y.tenant, y.due_at) w
    WHERE y.waits <> 'target' AND (y.due_at <= now() OR y.waits IN ('host', 'person'))
$$;
COMMENT ON FUNCTION punctual.wait_of(punctual.ready, text, boolean) IS
    'What a run in ready waits for, in a queue that is served or not: as waits_for says, since when, and until when at '
    'most. No row: it is not due yet, or its target works on.';

CREATE FUNCTION punctual.acting_tenant() RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT nullif(current_setting('punctual.tenant', true), '')::integer $$;
COMMENT ON FUNCTION punctual.acting_tenant() IS
    'The tenant that this transaction acts for as the role punctual_tenant: tenants.id. Null: no tenant, so no row is '
    'visible.';

-- A gap in the service of a queue is noted up to 10 s after it ended, but slots are claimed at once.
--
-- An end of a freeze is in the audit log with the freeze before it. Entries of an unfreeze are found by their ids, which
-- are in the order of time. SECURITY DEFINER, because a tenant may not see the entries of the deployment. Tenants are
-- told the note of such a freeze, and not by whom it was.
CREATE FUNCTION punctual.held_up_by(tenant_id integer, queue_id smallint, due timestamptz, taken timestamptz)
RETURNS TABLE (cause text, since timestamptz, until timestamptz, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH freezes AS (
        SELECT a.tenant, (a.before ->> 'since')::timestamptz AS since, a.at AS until, a.before ->> 'by' AS by,
               a.before ->> 'note' AS note
        FROM punctual.audit_log a
        WHERE a.tenant IN (tenant_id, -1) AND a.job_id IS NULL
          AND a.id >= punctual.partition_bound(((due - interval '1 day') AT TIME ZONE 'UTC')::date) AND a.at > due
          AND a.action IN ('tenant.unfreeze', 'deployment.unfreeze', 'deployment.adopt')
        UNION ALL
        SELECT t.id, t.frozen_at, NULL, t.frozen_by, t.frozen_note FROM punctual.tenants t WHERE t.id = tenant_id
        UNION ALL
        SELECT -1, d.frozen_at, NULL, d.frozen_by, d.frozen_note FROM punctual.deployment d),
    periods AS (
        SELECT p.since, p.until, p.survived, lag(p.until) OVER (ORDER BY p.since) AS before
        FROM punctual.service_periods p
        WHERE p.queue = queue_id),
    serving AS (
        SELECT min(r.started_at) AS started
        FROM punctual.replicas r
        WHERE r.queues ? (SELECT q.name FROM punctual.queues q WHERE q.id = queue_id) AND NOT r.draining
          AND r.renewed_at > now() - interval '6 s'),
    gaps AS (
        SELECT before AS since, since AS until, survived FROM periods WHERE before < since
        UNION ALL
        SELECT max(p.until), CASE WHEN s.started IS NOT NULL THEN now() END, coalesce(s.started < max(p.until), false)
        FROM periods p CROSS JOIN serving s
        GROUP BY s.started HAVING max(p.until) < now() - interval '30 s'),
    causes AS (
        SELECT 1 AS rank, 'frozen' AS cause, f.since, f.until,
               CASE WHEN f.tenant = -1 THEN 'the deployment was frozen' ELSE 'the tenant was frozen' END AS fact,
               coalesce(' by ' || nullif(CASE WHEN f.tenant <> -1 THEN f.by END, ''), '') || coalesce(' (' || nullif(f.note, '') || ')', '') AS more
        FROM freezes f
        UNION ALL
        SELECT 2, 'limit', u.held_since, u.held_at, 'the tenant was at ' || u.held_by, ''
        FROM punctual.tenant_usage u WHERE u.tenant = tenant_id
        UNION ALL
        SELECT 3,
               CASE WHEN g.survived THEN 'database_away' WHEN x.others THEN 'queue_unserved' ELSE 'no_replica' END,
               g.since, g.until,
               CASE WHEN g.survived THEN 'no replica could reach the database'
                    WHEN x.others THEN 'no live replica served the queue "' || q.name || '"'
                    ELSE 'no replica was alive' END, ''
        FROM gaps g
        JOIN punctual.queues q ON q.id = queue_id
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM punctual.service_periods o
                           WHERE o.queue <> queue_id AND o.since <= g.since + (coalesce(g.until, now()) - g.since) / 2
                             AND o.until >= g.since + (coalesce(g.until, now()) - g.since) / 2) AS others) x)
    SELECT c.cause, c.since, c.until,
           c.fact || CASE WHEN c.until IS NULL THEN ' since ' || punctual.stamp(c.since)
                          ELSE ' from ' || punctual.stamp(c.since) || ' to ' || punctual.stamp(c.until) END || c.more
    FROM causes c
    WHERE c.since < taken AND coalesce(c.until, now()) > due
      AND tenant_id = coalesce(punctual.acting_tenant(), tenant_id)
    ORDER BY least(coalesce(c.until, now()), taken) - greatest(c.since, due) DESC, c.rank
    LIMIT 1
$$;
COMMENT ON FUNCTION punctual.held_up_by(integer, smallint, timestamptz, timestamptz) IS
    'Why work of a tenant in a queue that was due was taken only later, from the facts on record: frozen, limit, '
    'queue_unserved, database_away or no_replica, with the time that it lasted and a sentence. Of several causes: the '
    'one that took the largest part of the wait. No row: nothing on record explains it.';

-- SECURITY DEFINER, because leases belong to replicas and no tenant sees them. The function looks at every run in
-- flight, which are no more than there are worker slots.
CREATE FUNCTION punctual.runs_being_sent(job uuid) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT r.id FROM punctual.runs_of(ARRAY(SELECT unnest(c.run_ids) FROM punctual.claims c)) r
    WHERE r.job_id = job AND r.status = 'running'
      AND r.tenant = coalesce(punctual.acting_tenant(), r.tenant)
$$;
COMMENT ON FUNCTION punctual.runs_being_sent(uuid) IS 'The runs of a job that replicas are sending now.';

-- Likewise. An attempt and its lease were written together, so they have the instant in common.
CREATE FUNCTION punctual.is_claimed(run uuid, replica uuid, claimed_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM punctual.claims c
                   WHERE c.claimed_at = $3 AND c.replica = $2 AND $1 = ANY (c.run_ids))
$$;
COMMENT ON FUNCTION punctual.is_claimed(uuid, uuid, timestamptz) IS
    'Whether a lease names an attempt: a run, the replica that makes it and when it was claimed. A running run for which '
    'this is false, and that no target works on, would stay so for ever: a replica takes it back.';
-- +goose StatementEnd

-- Views for people.

-- +goose StatementBegin
-- A pause is over at its end time, even if no replica has written that yet.
CREATE VIEW punctual.job_status AS
SELECT t.name AS tenant, j.name, j.id,
       CASE WHEN j.state = 'paused' AND j.paused_until <= now() THEN 'active' ELSE punctual.job_state(j, s) END AS state,
       j.kind, q.name AS queue, punctual.priority_name(punctual.lane_of(j.queue, v.definition)) AS priority, j.version,
       v.definition -> 'schedule' AS schedule, v.definition #>> '{target,url}' AS url,
       coalesce(json_array_length(v.definition -> 'steps'), 0) AS steps,
       CASE WHEN s.enabled THEN s.next_run_at END AS next_run_at,
       CASE WHEN s.enabled THEN s.scheduled_for END AS next_scheduled_for,
       r.id AS last_run_id, r.status AS last_status, r.reason AS last_reason, r.scheduled_for AS last_scheduled_for,
       r.finished_at AS last_finished_at,
       CASE WHEN r.status = 'succeeded' THEN r.finished_at ELSE (
           SELECT o.finished_at
           FROM (SELECT n.status, n.finished_at FROM punctual.runs n
                 WHERE (n.job_id, n.id) >= (j.id, '00000000-0000-0000-0000-000000000000')
                   AND (n.job_id, n.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND n.parent_run IS NULL
                 ORDER BY n.job_id DESC, n.id DESC LIMIT 1000) o
           WHERE o.status = 'succeeded' LIMIT 1) END AS last_succeeded_at,
       j.labels, j.paused_at, j.paused_until, j.paused_by, j.pause_note, j.created_at, j.updated_at,
       w.runs AS waiting_runs, CASE WHEN w.runs > 0 THEN w.held_by END AS waiting_for,
       f.failing_since, f.stale_since, f.overlapping_since
FROM punctual.jobs j
JOIN punctual.tenants t ON t.id = j.tenant
JOIN punctual.queues q ON q.id = j.queue
LEFT JOIN punctual.schedules s ON s.job_id = j.id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
LEFT JOIN punctual.notified f ON f.job_id = j.id
LEFT JOIN LATERAL (
    SELECT n.id, n.status, n.reason, n.scheduled_for, n.finished_at FROM punctual.runs n
    WHERE (n.job_id, n.id) >= (j.id, '00000000-0000-0000-0000-000000000000')
      AND (n.job_id, n.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND n.parent_run IS NULL
    ORDER BY n.job_id DESC, n.id DESC LIMIT 1) r ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS runs, (array_agg(o.waits_for ORDER BY y.due_at))[1] AS held_by
    FROM punctual.ready y
    CROSS JOIN LATERAL punctual.wait_of(y, q.name, punctual.is_served(q.name)) o
    WHERE y.job_id = j.id AND y.waits <> 'person'
      AND (v.definition -> 'steps' IS NULL
           OR NOT EXISTS (SELECT FROM punctual.runs n WHERE n.id = y.run_id AND n.parent_run IS NOT NULL))) w
    ON true
WHERE j.state <> 'deleted';
COMMENT ON VIEW   punctual.job_status IS
    'Every job that is not deleted, with its schedule, its next slot and its newest run.';
COMMENT ON COLUMN punctual.job_status.name IS 'Name of the job.';
COMMENT ON COLUMN punctual.job_status.id IS 'Its id.';
COMMENT ON COLUMN punctual.job_status.state IS 'active, paused or completed.';
COMMENT ON COLUMN punctual.job_status.schedule IS 'The schedule as written.';
COMMENT ON COLUMN punctual.job_status.url IS 'Where the callback goes; null: the job has steps.';
COMMENT ON COLUMN punctual.job_status.steps IS 'How many steps it has; 0: it has a target instead.';
COMMENT ON COLUMN punctual.job_status.next_run_at IS
    'When the next slot is due (with jitter); null when there is none.';
COMMENT ON COLUMN punctual.job_status.next_scheduled_for IS 'The next slot; null when there is none.';
COMMENT ON COLUMN punctual.job_status.last_run_id IS 'Newest run or skip, leaving out those of steps.';
COMMENT ON COLUMN punctual.job_status.last_status IS 'Status of the newest run.';
COMMENT ON COLUMN punctual.job_status.last_reason IS 'Reason of the newest run.';
COMMENT ON COLUMN punctual.job_status.last_scheduled_for IS 'Slot of the newest run.';
COMMENT ON COLUMN punctual.job_status.last_finished_at IS 'When the newest run ended.';
COMMENT ON COLUMN punctual.job_status.last_succeeded_at IS
    'When the newest run that succeeded ended. Null: none of the newest 1,000 runs and skips has.';
COMMENT ON COLUMN punctual.job_status.waiting_runs IS 'Runs that are due and wait, leaving out those of steps.';
COMMENT ON COLUMN punctual.job_status.waiting_for IS
    'What the run that has waited longest waits for, as in overdue.held_by; null: no run waits, or it is about to be '
    'sent.';
COMMENT ON COLUMN punctual.job_status.failing_since IS
    'Since when its attempts fail. This and the next two are kept of jobs with recipients for such notices; null: it is '
    'not so.';
COMMENT ON COLUMN punctual.job_status.stale_since IS
    'Since when it has had no success, if it is stale: without one for expect_success_within.';
COMMENT ON COLUMN punctual.job_status.overlapping_since IS
    'Since when most of its slots are skipped, because the run before has not ended.';

CREATE VIEW punctual.run_history AS
SELECT t.name AS tenant, j.name AS job, r.id, r.trigger, r.scheduled_for, r.status, r.reason, r.late, r.attempt,
       r.http_status, r.error, q.name AS queue, punctual.priority_name(r.lane) AS priority, r.due_at, r.claimed_at,
       r.started_at, r.finished_at, r.next_attempt_at,
       r.started_at - r.due_at AS lateness, r.finished_at - r.started_at AS duration,
       r.job_version, r.replica, r.blocked_by, r.skipped_first, r.skipped_last, r.skipped_count, r.replay_of,
       r.job_id, r.triggered_by, r.caused_by, r.step, r.parent_run AS workflow_run,
       CASE WHEN r.late OR r.reason = 'missed' THEN (
           SELECT h.detail
           FROM punctual.held_up_by(r.tenant, (r.lane / 4)::smallint, r.due_at, r.created_at) h) END AS cause,
       p.host
FROM punctual.runs r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.jobs j ON j.id = r.job_id
LEFT JOIN punctual.replicas_seen p ON p.id = r.replica;
COMMENT ON VIEW   punctual.run_history IS
    'Every run and skip, with the names of its job, tenant, queue and replica. It reads all days that id does not rule '
    'out, so ask history_between. To count the runs of jobs, leave out those of steps: step IS NULL.';
COMMENT ON COLUMN punctual.run_history.host IS
    'The host of the replica that had it last; null: none has had it, or the replica is forgotten.';
COMMENT ON COLUMN punctual.run_history.cause IS
    'Why the slot was missed or the run was late, in words; null: it was neither, or nothing on record explains it.';
COMMENT ON COLUMN punctual.run_history.id IS 'Id of the run.';
COMMENT ON COLUMN punctual.run_history.lateness IS 'Time from due_at to started_at.';
COMMENT ON COLUMN punctual.run_history.duration IS 'Time from started_at to finished_at.';
COMMENT ON COLUMN punctual.run_history.workflow_run IS 'On a step: the run of its workflow.';

CREATE FUNCTION punctual.history_between(from_instant timestamptz, to_instant timestamptz, of_job uuid DEFAULT NULL)
RETURNS SETOF punctual.run_history
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    first constant uuid := punctual.instant_bound(from_instant);
    till  constant uuid := punctual.instant_bound(to_instant);
BEGIN
    IF of_job IS NULL THEN
        RETURN QUERY SELECT * FROM punctual.run_history r WHERE r.id >= first AND r.id < till;
    ELSE
        RETURN QUERY SELECT * FROM punctual.run_history r WHERE r.job_id = of_job AND r.id >= first AND r.id < till;
    END IF;
END
$$;
COMMENT ON FUNCTION punctual.history_between(timestamptz, timestamptz, uuid) IS
    'run_history of the runs and skips between two instants, as in runs_between.';

CREATE VIEW punctual.waiting_steps AS
SELECT t.name AS tenant, j.name AS job, r.id AS workflow_run, s.step ->> 'name' AS step,
       ARRAY(SELECT d.name FROM json_array_elements_text(s.step -> 'depends_on') d(name)
             WHERE d.name <> ALL (n.ended)) AS waits_for,
       r.scheduled_for, r.started_at AS workflow_started_at, r.job_id
FROM punctual.runs_of(ARRAY(SELECT w.run_id FROM punctual.workflows w)) r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.job_versions v ON v.job_id = r.job_id AND v.version = r.job_version
LEFT JOIN punctual.jobs j ON j.id = r.job_id
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(o.step), '{}') AS begun,
           coalesce(array_agg(o.step) FILTER (WHERE o.finished_at IS NOT NULL), '{}') AS ended
    FROM punctual.steps_of(r.id) o) n
CROSS JOIN LATERAL json_array_elements(v.definition -> 'steps') s(step)
WHERE s.step ->> 'name' <> ALL (n.begun);
COMMENT ON VIEW   punctual.waiting_steps IS
    'The steps of running workflows that have no run yet, because they wait for others.';
COMMENT ON COLUMN punctual.waiting_steps.workflow_run IS 'The run of the workflow.';
COMMENT ON COLUMN punctual.waiting_steps.scheduled_for IS 'The slot of the workflow''s run, or when it was asked for.';
COMMENT ON COLUMN punctual.waiting_steps.step IS 'Name of the step.';
COMMENT ON COLUMN punctual.waiting_steps.waits_for IS
    'The steps that it depends on and that have not ended; empty: it begins, or is skipped, within a moment.';
COMMENT ON COLUMN punctual.waiting_steps.workflow_started_at IS 'When the run of the workflow began.';

-- The last part lists jobs whose pause is over but which no replica has resumed yet.
CREATE VIEW punctual.overdue AS
WITH queues AS (SELECT id, name, punctual.is_served(name) AS served FROM punctual.queues)
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for,
       s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue,
       CASE WHEN t.frozen_at IS NOT NULL OR (SELECT d.frozen_at FROM punctual.deployment d) IS NOT NULL THEN 'frozen'
            ELSE coalesce(punctual.why_aside('slot', j.id), w.waits_for) END AS held_by,
       NULL::timestamptz AS held_until, NULL::text AS step
FROM punctual.schedules s
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.tenants t ON t.id = s.tenant
JOIN queues q ON q.id = s.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = s.tenant
CROSS JOIN LATERAL punctual.waits_for(q.served, q.name, 'turn', NULL, punctual.held_by(u.held_by, u.held_at), s.tenant,
                                      s.next_run_at) w
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', r.scheduled_for, r.due_at, now() - r.due_at, q.name, w.waits_for,
       w.until, r.step
FROM punctual.ready y
JOIN punctual.runs_of(ARRAY(
    SELECT o.run_id FROM punctual.ready o
    WHERE o.waits NOT IN ('target', 'person') AND (o.due_at <= now() OR o.waits = 'host'))) r ON r.id = y.run_id
JOIN queues q ON q.id = y.lane / 4
CROSS JOIN LATERAL punctual.wait_of(y, q.name, q.served) w
LEFT JOIN punctual.jobs j ON j.id = y.job_id
JOIN punctual.tenants t ON t.id = y.tenant
UNION ALL
SELECT t.name, j.name, d.job_id, d.run_id, 'dated', d.due_at, d.due_at, now() - d.due_at, q.name,
       CASE WHEN t.frozen_at IS NOT NULL OR (SELECT d.frozen_at FROM punctual.deployment d) IS NOT NULL THEN 'frozen'
            ELSE coalesce(punctual.why_aside('run', d.run_id), w.waits_for) END,
       NULL, NULL
FROM punctual.dated d
JOIN punctual.jobs j ON j.id = d.job_id
JOIN punctual.tenants t ON t.id = d.tenant
JOIN queues q ON q.id = d.lane / 4
LEFT JOIN punctual.tenant_usage u ON u.tenant = d.tenant
CROSS JOIN LATERAL punctual.waits_for(q.served, q.name, 'turn', NULL, punctual.held_by(u.held_by, u.held_at), d.tenant,
                                      d.due_at) w
WHERE d.waits <> 'aside' AND d.due_at <= now() AND j.state = 'active'
UNION ALL
SELECT t.name, j.name, j.id, NULL, 'slot', s.scheduled_for,
       greatest(s.next_run_at, j.paused_until), now() - greatest(s.next_run_at, j.paused_until), q.name,
       CASE WHEN NOT q.served THEN punctual.wait_in_words('queue', q.name, NULL) END, NULL, NULL
FROM punctual.jobs j
JOIN punctual.schedules s ON s.job_id = j.id
JOIN punctual.tenants t ON t.id = j.tenant
JOIN queues q ON q.id = s.lane / 4
WHERE j.state = 'paused' AND j.paused_until <= now() AND s.next_run_at <= now();
COMMENT ON VIEW   punctual.overdue IS
    'Work that is due now and waits: slots not claimed yet, jobs whose pause has ended but that are not resumed yet, '
    'and runs in ready. When all is well, the view is empty or its rows are milliseconds old.';
COMMENT ON COLUMN punctual.overdue.run_id IS 'Id of the run, or the id that a dated run will have; null: the row is a slot.';
COMMENT ON COLUMN punctual.overdue.what IS 'slot or dated: not claimed yet; run: waiting in ready.';
COMMENT ON COLUMN punctual.overdue.scheduled_for IS 'Its slot; of a dated run, its instant.';
COMMENT ON COLUMN punctual.overdue.due_at IS 'When it was due.';
COMMENT ON COLUMN punctual.overdue.overdue_by IS 'For how long it has been due.';
COMMENT ON COLUMN punctual.overdue.held_by IS
    'What it waits for. frozen: nothing of the deployment or its tenant is claimed. breaker HOST: the host cannot be '
    'reached. hanging HOST or PATH: its requests time out. gate: another run of the job is active, or comes '
    'first. limit NAME: a limit of its tenant, or one that jobs share, with a run that holds it. slots: all worker slots are taken. set aside: it fails by itself, and why. Or a text that no live replica serves its queue. Null: '
    'nothing, a replica is about to take it.';
COMMENT ON COLUMN punctual.overdue.held_until IS 'Until when at most it waits for its host.';
COMMENT ON COLUMN punctual.overdue.step IS 'On the run of a step: its name.';

CREATE VIEW punctual.upcoming AS
SELECT t.name AS tenant, j.name AS job, s.job_id, s.scheduled_for, s.next_run_at, s.next_run_at - now() AS due_in,
       q.name AS queue, punctual.priority_name(s.lane) AS priority, NULL::text AS key
FROM punctual.schedules s
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.tenants t ON t.id = s.tenant
JOIN punctual.queues q ON q.id = s.lane / 4
WHERE s.enabled
UNION ALL
SELECT t.name, j.name, d.job_id, d.due_at, d.due_at, d.due_at - now(), q.name, punctual.priority_name(d.lane), d.key
FROM punctual.dated d
JOIN punctual.jobs j ON j.id = d.job_id
JOIN punctual.tenants t ON t.id = d.tenant
JOIN punctual.queues q ON q.id = d.lane / 4
WHERE d.waits <> 'aside' AND j.state = 'active';
COMMENT ON VIEW   punctual.upcoming IS
    'The next slot of every enabled job, and dated runs. ORDER BY next_run_at to see what fires next.';
COMMENT ON COLUMN punctual.upcoming.scheduled_for IS 'The next slot: nominal fire time.';
COMMENT ON COLUMN punctual.upcoming.next_run_at IS 'When the next slot is due (with jitter).';
COMMENT ON COLUMN punctual.upcoming.due_in IS 'Time until it is due.';
COMMENT ON COLUMN punctual.upcoming.key IS 'Key of the dated run; null: the row is a slot.';

CREATE VIEW punctual.event_history AS
SELECT t.name AS tenant, e.name, e.id, e.emitted_at, e.emitted_by, e.subscribed, e.made, e.skipped, e.unmatched,
       e.turn_at IS NOT NULL AS pending, punctual.payload_bytes(e.body) AS body_bytes
FROM punctual.events e
JOIN punctual.tenants t ON t.id = e.tenant;
COMMENT ON VIEW   punctual.event_history IS 'Every event, and how far its fan-out is.';
COMMENT ON COLUMN punctual.event_history.id IS 'Its id, as in run_history.caused_by.';
COMMENT ON COLUMN punctual.event_history.pending IS 'True: subscribers are left that it has not come to.';
COMMENT ON COLUMN punctual.event_history.body_bytes IS 'Length of its body; null: it has none.';

CREATE VIEW punctual.failures AS
SELECT t.name AS tenant, d.job_name AS job, d.job_id, d.run_id, d.scheduled_for, d.died_at, d.reason, d.attempts,
       d.http_status, d.error, d.trigger, d.resolved_at, d.note, d.replayed_as
FROM punctual.dead_letters d
JOIN punctual.tenants t ON t.id = d.tenant;
COMMENT ON VIEW   punctual.failures IS
    'The dead-letter list: runs that ended dead, resolved ones included.';
COMMENT ON COLUMN punctual.failures.scheduled_for IS
    'The slot: nominal fire time. Of a manual run: when it was requested.';

CREATE VIEW punctual.usage AS
SELECT u.day, t.name AS tenant, u.job, u.job_id, u.runs, u.attempts, u.seconds, u.bytes, u.counted_at
FROM punctual.daily_usage u
JOIN punctual.tenants t ON t.id = u.tenant;
COMMENT ON VIEW   punctual.usage IS
    'What the runs of each day used, by tenant and job, as summed by a chore. Kept for 400 days.';
COMMENT ON COLUMN punctual.usage.job IS
    'The name of the job when the day was summed; null: all but the 1,000 jobs with the most attempts.';

CREATE VIEW punctual.replica_status AS
SELECT r.id, r.host, r.version, r.queues, r.started_at, r.renewed_at, now() - r.renewed_at AS silent_for, r.draining,
       r.lacks, coalesce(c.batches, 0) AS claimed_batches, coalesce(c.runs, 0) AS claimed_runs
FROM punctual.replicas r
LEFT JOIN (SELECT replica, count(*) AS batches, sum(cardinality(run_ids)) AS runs
           FROM punctual.claims GROUP BY replica) c ON c.replica = r.id;
COMMENT ON VIEW   punctual.replica_status IS
    'Running processes: since when they run, when they last renewed their heartbeat, and what they hold.';
COMMENT ON COLUMN punctual.replica_status.id IS 'Its id.';
COMMENT ON COLUMN punctual.replica_status.silent_for IS 'Time since it last renewed its heartbeat.';
COMMENT ON COLUMN punctual.replica_status.claimed_batches IS 'Batches it holds.';
COMMENT ON COLUMN punctual.replica_status.claimed_runs IS 'Runs in those batches.';

CREATE VIEW punctual.audit AS
SELECT a.at, t.name AS tenant, a.actor_kind, coalesce(k.name, a.actor) AS actor, a.address, a.action,
       split_part(a.action, '.', 1) AS resource, a.name, a.before, a.after, a.request_id, a.id, a.resource_id, a.job_id,
       a.actor AS actor_id
FROM punctual.audit_log a
LEFT JOIN punctual.tenants t ON t.id = a.tenant
LEFT JOIN punctual.api_keys k ON a.actor_kind = 'key' AND k.id::text = a.actor;
COMMENT ON VIEW   punctual.audit IS
    'Who changed what and when, with the state before and after. Filter by at, job_id or name to read less.';
COMMENT ON COLUMN punctual.audit.actor IS 'Name of the key, subject of the token, or login.';
COMMENT ON COLUMN punctual.audit.resource IS 'Kind of the changed resource.';
COMMENT ON COLUMN punctual.audit.actor_id IS 'Id of the key; for other kinds the same as actor.';

-- The log itself has no row-level security, because only the owner can run pg_dump on a table that has it. The view is
-- not a security barrier, because Postgres would then sort all entries to find the newest.
CREATE VIEW punctual.audit_entries AS
SELECT id, job_id, resource_id, at, tenant, action, actor_kind, actor, address, request_id, name, before, after
FROM punctual.audit_log
WHERE current_user <> 'punctual_tenant' OR tenant = punctual.acting_tenant()
WITH LOCAL CHECK OPTION;
COMMENT ON VIEW   punctual.audit_entries IS
    'The part of audit_log that a transaction may read and add to: as the role punctual_tenant, the acting tenant''s '
    'entries; otherwise all entries.';

-- A column that is not described is the column of the same name of the table that its view shows, or is named as others
-- of its type that mean the same.
DO $$
DECLARE
    undescribed record;
BEGIN
    FOR undescribed IN
        SELECT a.attrelid::regclass AS relation, a.attname, coalesce(t.comment, n.comment) AS comment
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN (VALUES
            ('tenant',     'integer',     'Owner: tenants.id.'),
            ('tenant',     'text',        'Name of the tenant.'),
            ('job_id',     'uuid',        'The job.'),
            ('job',        'text',        'Name of the job.'),
            ('run_id',     'uuid',        'The run.'),
            ('queue',      'text',        'Name of the queue.'),
            ('priority',   'text',        'high, normal or low.'),
            ('recipient_id', 'uuid',      'The recipient: outbox.id.'),
            ('created_at', 'timestamptz', 'When it was created.')
        ) n(name, type, comment) ON n.name = a.attname AND n.type::regtype = a.atttypid
        LEFT JOIN (VALUES
            ('job_status', 'jobs'), ('run_history', 'runs'), ('failures', 'dead_letters'), ('event_history', 'events'),
            ('usage', 'daily_usage'), ('replica_status', 'replicas'), ('audit', 'audit_log'),
            ('audit_entries', 'audit_log')) v(name, shows) ON v.name = c.relname
        LEFT JOIN LATERAL (
            SELECT pg_catalog.col_description(s.attrelid, s.attnum) AS comment
            FROM pg_catalog.pg_attribute s
            WHERE s.attrelid = ('punctual.' || v.shows)::regclass AND s.attname = a.attname AND s.atttypid = a.atttypid
        ) t ON true
        WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
          AND pg_catalog.col_description(c.oid, a.attnum) IS NULL AND coalesce(t.comment, n.comment) IS NOT NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', undescribed.relation, undescribed.attname, undescribed.comment);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Row-level security for the role punctual_tenant: the rows that a tenant's requests may see.

-- +goose StatementBegin
-- Volatile, so that it sees a job that the same statement has just written.
CREATE FUNCTION punctual.acts_for_job(job uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM punctual.jobs j WHERE j.id = job AND j.tenant = punctual.acting_tenant());
END
$$;
COMMENT ON FUNCTION punctual.acts_for_job(uuid) IS 'Whether a job is the acting tenant''s.';

-- Planned for the given id, so that it looks into the partition of one day and not of all days.
CREATE FUNCTION punctual.acts_for_run(run uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM punctual.runs r WHERE r.id = run AND r.tenant = punctual.acting_tenant());
END
$$;
COMMENT ON FUNCTION punctual.acts_for_run(uuid) IS 'Whether a run is the acting tenant''s.';

-- Only the owner of the tables can create a partition. An edit of a job whose slots were due long ago may need one.
CREATE FUNCTION punctual.create_partition_of(slot timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM punctual.create_partitions(d.day, d.day) FROM (SELECT (slot AT TIME ZONE 'UTC')::date) d(day);
END
$$;
COMMENT ON FUNCTION punctual.create_partition_of(timestamptz) IS
    'Creates the missing partitions for the day (UTC) of a slot.';

-- By default PUBLIC may execute every function. Whoever may execute one that runs with the rights of its owner is one step
-- from having them. So each is granted by name, and no role is granted what it does not need. What belongs to another
-- role (punctual_audit) was closed before it was given away.
CREATE FUNCTION punctual.guard_functions() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    callee regprocedure;
BEGIN
    FOR callee IN
        SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'punctual'::regnamespace AND pg_has_role(p.proowner, 'USAGE') AND EXISTS (
            SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0)
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', callee);
    END LOOP;
END
$$;
COMMENT ON FUNCTION punctual.guard_functions() IS
    'Takes from PUBLIC all functions of the schema. punctual migrate calls it after each migration.';

-- What runs with the rights of the caller lets nobody do what he may not. What runs with those of the owner is named.
CREATE FUNCTION punctual.functions_of_tenants() RETURNS regprocedure[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(p.oid::regprocedure) FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'punctual'::regnamespace AND CASE
        WHEN p.prosecdef THEN p.proname IN ('acts_for_job', 'acts_for_run', 'create_partition_of', 'held_up_by',
            'is_claimed', 'is_served', 'runs_being_sent', 'shortage')
        ELSE p.provolatile <> 'v' OR p.proname IN ('run_id_at', 'write_dated', 'count_dated', 'write_event',
            'system_identifier') END
$$;
COMMENT ON FUNCTION punctual.functions_of_tenants() IS
    'The functions that policies, views and the statements of tenants call.';

CREATE FUNCTION punctual.functions_of_readers() RETURNS regprocedure[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(p.oid::regprocedure) FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'punctual'::regnamespace AND CASE
        WHEN p.prosecdef THEN p.proname IN ('held_up_by', 'is_claimed', 'is_served', 'runs_being_sent', 'shortage')
        ELSE p.provolatile <> 'v' OR p.proname = 'system_identifier' END
$$;
COMMENT ON FUNCTION punctual.functions_of_readers() IS 'The functions that views and the queries of readers call.';

CREATE FUNCTION punctual.guard_table(relation text, privileges text, visible text, writable text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE punctual.%I ENABLE ROW LEVEL SECURITY', relation);
    EXECUTE format('DROP POLICY IF EXISTS everybody ON punctual.%I', relation);
    EXECUTE format('DROP POLICY IF EXISTS own_rows_of_a_tenant ON punctual.%I', relation);
    EXECUTE format('CREATE POLICY everybody ON punctual.%I USING (true)', relation);
    EXECUTE format('CREATE POLICY own_rows_of_a_tenant ON punctual.%I AS RESTRICTIVE TO punctual_tenant '
                   'USING (current_user <> ''punctual_tenant'' OR %s) '
                   'WITH CHECK (current_user <> ''punctual_tenant'' OR %s)', relation, visible, writable);
    EXECUTE format('REVOKE ALL ON punctual.%I FROM punctual_tenant', relation);
    EXECUTE format('GRANT %s ON punctual.%I TO punctual_tenant', privileges, relation);
END
$$;
COMMENT ON FUNCTION punctual.guard_table(text, text, text, text) IS
    'Gives the role punctual_tenant privileges on those rows of a table that meet a condition, and on no other rows.';

-- The policies restrict only the role punctual_tenant. All others see every row, and so do the members of that role
-- unless they switch to it. The tables are listed in the order in which writers lock them.
CREATE FUNCTION punctual.guard_tenants() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    own     constant text := 'tenant = punctual.acting_tenant()';
    -- Not EXISTS: if the planner expects many rows, it turns that into a hash of all jobs.
    by_job  constant text := '(SELECT j.tenant FROM punctual.jobs j WHERE j.id = job_id) = punctual.acting_tenant()';
    by_run  constant text := 'punctual.acts_for_run(run_id)';
    -- Table, privileges, condition on visible rows, and condition on new rows if that differs.
    guarded constant text[] := ARRAY[
        ['operations',       'SELECT, INSERT, UPDATE',         own, NULL],
        ['operation_jobs',   'SELECT, INSERT, DELETE',         own, NULL],
        ['dead_letters',     'SELECT, UPDATE',                 own, NULL],
        ['schedules',        'SELECT, INSERT, UPDATE',         own, NULL],
        ['exclusive',        'SELECT, INSERT, UPDATE',         by_job, 'punctual.acts_for_job(job_id)'],
        ['jobs',             'SELECT, INSERT, UPDATE',         own, NULL],
        -- An existing job has its first version already. A new job is written in one statement with its first version.
        ['job_versions',     'SELECT, INSERT, UPDATE (rerun_at)', by_job, 'version = 1 OR ' || by_job],
        ['links',            'SELECT, INSERT, DELETE',         by_job, NULL],
        ['waiting',          'SELECT',                         own, NULL],
        ['dated',            'SELECT, INSERT, UPDATE, DELETE', own, NULL],
        ['dated_work',       'SELECT, INSERT, UPDATE',         own, NULL],
        ['dated_sequences',  'SELECT, INSERT, UPDATE',         own, NULL],
        ['grants',           'SELECT',                         own, NULL],
        ['events',           'SELECT, INSERT',                 own, NULL],
        ['set_aside',        'SELECT',                         own, NULL],
        ['ready',            'SELECT, INSERT, UPDATE, DELETE', own, NULL],
        ['runs',             'SELECT, INSERT, UPDATE',         own, NULL],
        ['attempts',         'SELECT, INSERT',                 by_run, NULL],
        ['run_data',         'SELECT, INSERT',                 by_run, NULL],
        ['cancels',          'SELECT, INSERT, UPDATE',         by_run, NULL],
        ['reports',          'SELECT',                         own, NULL],
        ['notified',         'SELECT',                         by_job, NULL],
        ['notices',          'SELECT, INSERT',                 own, NULL],
        ['lifecycle_events', 'SELECT, INSERT',                 own, NULL],
        ['outbox',           'SELECT, INSERT',                 own, NULL],
        ['notice_messages',  'SELECT',                         own, NULL],
        ['notice_states',    'SELECT',                         by_job, NULL],
        ['hourly_runs',      'SELECT',                         own, NULL],
        ['daily_usage',      'SELECT',                         own, NULL],
        ['change_feeds',     'SELECT',                         own, NULL],
        ['changes',          'SELECT',                         own, NULL],
        ['idempotency_keys', 'SELECT, INSERT, UPDATE',         own, NULL],
        -- Locking rows needs an UPDATE privilege, even if nothing is changed.
        ['tenants',          'SELECT, UPDATE (updated_at)',    'id = punctual.acting_tenant()', NULL]];
    entry text[];
    callee regprocedure;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'punctual_tenant') THEN
        RAISE NOTICE 'there is no role punctual_tenant';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA punctual TO punctual_tenant;
    GRANT SELECT ON punctual.queues, punctual.archives TO punctual_tenant;
    GRANT SELECT, UPDATE (secrets_changed) ON punctual.deployment TO punctual_tenant;
    GRANT SELECT, UPDATE (created_at) ON punctual.data_keys TO punctual_tenant; -- encrypted keys, locked while in use
    GRANT SELECT (hour, counted_at, shown) ON punctual.counted_hours TO punctual_tenant; -- the rest is of all tenants
    GRANT SELECT, INSERT ON punctual.audit_entries TO punctual_tenant;
    FOREACH callee IN ARRAY punctual.functions_of_tenants() LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO punctual_tenant', callee);
    END LOOP;
    FOREACH entry SLICE 1 IN ARRAY guarded LOOP
        PERFORM punctual.guard_table(entry[1], entry[2], entry[3], coalesce(entry[4], entry[3]));
    END LOOP;
    -- All other tables with a column tenant: keys, secrets, limits.
    PERFORM punctual.guard_table(c.relname, 'SELECT, INSERT, UPDATE, DELETE', own, own)
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND a.atttypid = 'integer'::regtype
    WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relname <> ALL(ARRAY(SELECT guarded[i][1] FROM generate_subscripts(guarded, 1) i))
      AND c.relname <> 'audit_log' AND c.relname !~ '_\d{8}(_failures)?$';
END
$$;
COMMENT ON FUNCTION punctual.guard_tenants() IS
    'Gives the role punctual_tenant the privileges that the API needs for a tenant, on that tenant''s rows. If that '
    'role was created later, call this again as the owner of the tables or a superuser.';

CREATE FUNCTION punctual.guard_readers() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    callee regprocedure;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'punctual_reader') THEN
        RAISE NOTICE 'there is no role punctual_reader';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA punctual TO punctual_reader;
    GRANT SELECT ON ALL TABLES IN SCHEMA punctual TO punctual_reader;
    REVOKE SELECT ON punctual.idempotency_keys, punctual.run_token_key, punctual.request_rates, punctual.api_keys,
        punctual.data_keys, punctual.secrets, punctual.secret_uses, punctual.job_secrets, punctual.signing_secrets,
        punctual.audit_entries FROM punctual_reader;
    FOREACH callee IN ARRAY punctual.functions_of_readers() LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO punctual_reader', callee);
    END LOOP;
END
$$;
COMMENT ON FUNCTION punctual.guard_readers() IS
    'Lets the role punctual_reader read what people may see. If that role was created later, call this again as the '
    'owner of the tables or a superuser.';
-- +goose StatementEnd

-- Roles belong to the whole cluster, and creating one needs a privilege. Without it everything else still works.

-- +goose StatementBegin
DO $$
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
            CREATE ROLE punctual_reader NOLOGIN;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_reader was not created: the migrating user may not create roles';
        WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this cluster is being migrated at the same moment
    END;
    PERFORM punctual.guard_readers();
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    latest constant boolean := current_setting('server_version_num')::integer >= 160000;
    granted constant text := CASE WHEN latest THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
    how constant text := CASE WHEN latest THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant') THEN
            CREATE ROLE punctual_tenant NOLOGIN;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_tenant was not created: the migrating user may not create roles';
        WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this cluster is being migrated at the same moment
    END;
    BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant')
           AND NOT pg_has_role('punctual_tenant', how) THEN
            EXECUTE format('GRANT punctual_tenant TO %I', current_user) || granted;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_tenant was not granted: the migrating user may not grant it';
        WHEN unique_violation THEN
            NULL; -- likewise
    END;
    PERFORM punctual.guard_tenants();
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The owner of a table may do anything to it. So the log belongs to a role as which no user logs in. The owner of the
-- schema, as which Punctual connects, may only add to the log and read it.
DO $$
DECLARE
    me constant name := current_user;
    latest constant boolean := current_setting('server_version_num')::integer >= 160000;
    mine boolean;
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_audit') THEN
            CREATE ROLE punctual_audit NOLOGIN;
        END IF;
    EXCEPTION
        WHEN duplicate_object OR unique_violation THEN
            NULL;
    END;
    mine := pg_has_role('punctual_audit', CASE WHEN latest THEN 'SET' ELSE 'MEMBER' END);
    IF NOT mine THEN
        EXECUTE format('GRANT punctual_audit TO %I', me)
            || CASE WHEN latest THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END;
    END IF;
    PERFORM punctual.guard_functions(); -- before some are another role's
    GRANT USAGE, CREATE ON SCHEMA punctual TO punctual_audit;
    ALTER TABLE punctual.audit_log OWNER TO punctual_audit;
    ALTER FUNCTION punctual.forget_audit_log(interval, integer) OWNER TO punctual_audit;
    ALTER FUNCTION punctual.refuse_audit_change() OWNER TO punctual_audit;
    EXECUTE format('GRANT SELECT, INSERT ON punctual.audit_log TO %I', me);
    EXECUTE format('GRANT EXECUTE ON FUNCTION punctual.forget_audit_log(interval, integer) TO %I', me);
    REVOKE CREATE ON SCHEMA punctual FROM punctual_audit;
    IF NOT mine THEN
        EXECUTE format('REVOKE punctual_audit FROM %I', me);
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'punctual.audit_log stays owned by the migrating user, who may not create or use the role '
            'punctual_audit; its triggers still protect it';
END
$$;
-- +goose StatementEnd

-- The last statement, so that it closes every function above. Up calls it after each later migration.

-- +goose StatementBegin
DO $$ BEGIN PERFORM punctual.guard_functions(); END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- The schema itself stays, because it holds goose's own table. Its owner may drop everything in it, even the audit log
-- of another role.
DO $$ BEGIN PERFORM punctual.drop_schema(schema, punctual.end_grant(schema)) FROM punctual.grants; END $$;
DROP FUNCTION punctual.history_between;
DROP VIEW punctual.waiting_steps, punctual.job_status, punctual.run_history, punctual.overdue, punctual.upcoming, punctual.event_history, punctual.failures,
    punctual.usage, punctual.replica_status, punctual.audit, punctual.audit_entries;
DROP FUNCTION punctual.wait_of, punctual.runs_of, punctual.runs_between, punctual.steps_of, punctual.is_completed, punctual.job_state, punctual.completed_at,
    punctual.room_at_limit;
DROP TABLE punctual.grants, punctual.changes, punctual.change_feeds, punctual.events, punctual.audit_log, punctual.signing_secrets, punctual.job_secrets,
    punctual.secret_uses, punctual.links, punctual.secrets,
    punctual.data_keys, punctual.api_keys, punctual.request_rates, punctual.limit_holders, punctual.job_limits,
    punctual.limits, punctual.tenant_jobs, punctual.allowances,
    punctual.tenant_usage, punctual.run_token_key, punctual.notified, punctual.notices,
    punctual.lifecycle_events, punctual.notice_messages, punctual.notice_states, punctual.outbox, punctual.hourly_runs,
    punctual.counted_hours, punctual.daily_usage, punctual.counted_days, punctual.idempotency_keys, punctual.operation_jobs, punctual.operations,
    punctual.dead_letters, punctual.holds, punctual.service_periods, punctual.replicas_seen, punctual.replicas, punctual.cancels,
    punctual.reports, punctual.completions,
    punctual.claims, punctual.ready, punctual.workflows, punctual.set_aside, punctual.dated, punctual.dated_work, punctual.dated_sequences, punctual.waiting, punctual.run_data, punctual.attempts, punctual.runs, punctual.exclusive, punctual.schedules, punctual.job_versions,
    punctual.jobs, punctual.queues, punctual.tenants, punctual.archives, punctual.locks, punctual.deployment;
DROP DOMAIN punctual.audit_action, punctual.run_reason, punctual.run_trigger, punctual.run_status;
DROP SEQUENCE punctual.fences;
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'punctual'::regnamespace LOOP
        EXECUTE format('DROP FUNCTION %s', f);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_tenant') THEN
        REVOKE ALL ON SCHEMA punctual FROM punctual_tenant;
    END IF;
END
$$;
-- +goose StatementEnd
