-- The whole data model of Punctual, in one schema so that it can share an application's database.
-- Migrations only expand: schema N serves binaries N-1 and N.

-- +goose Up

-- +goose StatementBegin
CREATE TABLE punctual.deployment (
    singleton  boolean PRIMARY KEY DEFAULT true,
    zone_data  text NOT NULL DEFAULT '',
    tidied_at  timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT deployment_has_one_row CHECK (singleton)
);
COMMENT ON TABLE  punctual.deployment           IS 'Facts about this deployment; exactly one row.';
COMMENT ON COLUMN punctual.deployment.singleton IS 'Always true: keeps the table at one row.';
COMMENT ON COLUMN punctual.deployment.zone_data IS 'Version of the time zone data the next slots were computed with; when a binary with other data starts, the next slots of zoned jobs are computed again.';
COMMENT ON COLUMN punctual.deployment.tidied_at IS 'When a replica last began to remove what is older than its retention: one does so each minute, not all of them.';
INSERT INTO punctual.deployment DEFAULT VALUES;

CREATE TABLE punctual.tenants (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tenant_name_is_unique UNIQUE (name),
    CONSTRAINT tenant_name_is_1_to_128_letters_digits_dot_underscore_colon_dash CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$')
);
COMMENT ON TABLE  punctual.tenants            IS 'Owners of jobs. The tenant "default" always exists.';
COMMENT ON COLUMN punctual.tenants.id         IS 'Small key used in every other table.';
COMMENT ON COLUMN punctual.tenants.name       IS 'Name used in the API.';
COMMENT ON COLUMN punctual.tenants.created_at IS 'When the tenant was made.';
INSERT INTO punctual.tenants (name) VALUES ('default');

CREATE TABLE punctual.queues (
    id    smallint GENERATED ALWAYS AS IDENTITY (START WITH 1 MAXVALUE 8000) PRIMARY KEY,
    name  text NOT NULL,
    CONSTRAINT queue_name_is_unique UNIQUE (name),
    CONSTRAINT queue_name_is_1_to_64_letters_digits_dot_underscore_dash CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$')
);
COMMENT ON TABLE  punctual.queues      IS 'Named lanes with their own worker slots on each replica. A lane number is queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.queues.id   IS 'Small number, part of every lane.';
COMMENT ON COLUMN punctual.queues.name IS 'Name used in job definitions and in --queues.';
INSERT INTO punctual.queues (name) VALUES ('default');

CREATE TABLE punctual.jobs (
    id            uuid PRIMARY KEY,
    tenant        integer NOT NULL REFERENCES punctual.tenants,
    version       integer NOT NULL,
    name          text NOT NULL,
    state         text NOT NULL,
    kind          text NOT NULL,
    queue         smallint NOT NULL REFERENCES punctual.queues,
    labels        jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    paused_at     timestamptz,
    paused_until  timestamptz,
    pause_note    text,
    completed_at  timestamptz,
    deleted_at    timestamptz,
    CONSTRAINT job_name_is_1_to_128_letters_digits_dot_underscore_colon_dash CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
    CONSTRAINT job_state_is_active_paused_completed_or_deleted CHECK (state IN ('active', 'paused', 'completed', 'deleted')),
    CONSTRAINT job_kind_is_cron_every_at_delay_or_none CHECK (kind IN ('cron', 'every', 'at', 'delay', 'none')),
    CONSTRAINT job_version_is_positive CHECK (version > 0),
    CONSTRAINT paused_job_has_paused_at CHECK ((state <> 'paused') OR (paused_at IS NOT NULL)),
    CONSTRAINT completed_job_has_completed_at CHECK ((state <> 'completed') OR (completed_at IS NOT NULL)),
    CONSTRAINT deleted_job_has_deleted_at CHECK ((state = 'deleted') = (deleted_at IS NOT NULL))
);
CREATE UNIQUE INDEX job_name_is_unique ON punctual.jobs (tenant, name) WHERE state IN ('active', 'paused');
CREATE INDEX jobs_by_name ON punctual.jobs (tenant, name text_pattern_ops, id);
CREATE INDEX jobs_by_id ON punctual.jobs (tenant, id) WHERE state <> 'deleted';
CREATE INDEX jobs_by_label ON punctual.jobs USING gin (labels jsonb_path_ops);
CREATE INDEX jobs_to_resume ON punctual.jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_completed ON punctual.jobs (completed_at) WHERE state = 'completed';
CREATE INDEX jobs_deleted ON punctual.jobs (deleted_at, id) WHERE state = 'deleted';
COMMENT ON TABLE  punctual.jobs              IS 'Identity and state of each job. What it does is in job_versions; when it fires next is in schedules.';
COMMENT ON COLUMN punctual.jobs.id           IS 'UUIDv7 of the job; never reused.';
COMMENT ON COLUMN punctual.jobs.tenant       IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.jobs.version      IS 'Current version: the row of job_versions that holds now. Also the ETag of the API.';
COMMENT ON COLUMN punctual.jobs.name         IS 'Unique among the active and paused jobs of a tenant; a completed or deleted job frees its name.';
COMMENT ON COLUMN punctual.jobs.state        IS 'active, paused, completed (no slot is left) or deleted (kept for its history).';
COMMENT ON COLUMN punctual.jobs.kind         IS 'Kind of schedule: cron, every, at, delay or none.';
COMMENT ON COLUMN punctual.jobs.queue        IS 'Queue its runs wait in: queues.id.';
COMMENT ON COLUMN punctual.jobs.labels       IS 'Labels to filter by: a flat object of strings.';
COMMENT ON COLUMN punctual.jobs.created_at   IS 'When the job was first written.';
COMMENT ON COLUMN punctual.jobs.updated_at   IS 'When the job was last changed by somebody.';
COMMENT ON COLUMN punctual.jobs.paused_at    IS 'When it was paused; null unless paused.';
COMMENT ON COLUMN punctual.jobs.paused_until IS 'When it resumes by itself; null: only when asked to.';
COMMENT ON COLUMN punctual.jobs.pause_note   IS 'Why it was paused.';
COMMENT ON COLUMN punctual.jobs.completed_at IS 'When its last slot was claimed.';
COMMENT ON COLUMN punctual.jobs.deleted_at   IS 'When it was deleted.';

CREATE TABLE punctual.job_versions (
    job_id      uuid NOT NULL REFERENCES punctual.jobs ON DELETE CASCADE,
    version     integer NOT NULL,
    valid_from  timestamptz NOT NULL DEFAULT now(),
    state       text NOT NULL,
    definition  json NOT NULL,
    note        text,
    PRIMARY KEY (job_id, version),
    CONSTRAINT job_version_state_is_active_paused_completed_or_deleted CHECK (state IN ('active', 'paused', 'completed', 'deleted'))
);
COMMENT ON TABLE  punctual.job_versions            IS 'Every definition a job ever had, and every pause, resume and end: immutable, one row per change.';
COMMENT ON COLUMN punctual.job_versions.job_id     IS 'The job.';
COMMENT ON COLUMN punctual.job_versions.version    IS 'Counts from 1; a run pins the version it was claimed with.';
COMMENT ON COLUMN punctual.job_versions.valid_from IS 'When this version took effect; it holds until the next one.';
COMMENT ON COLUMN punctual.job_versions.state      IS 'State of the job under this version.';
COMMENT ON COLUMN punctual.job_versions.definition IS 'The definition as it was written, in the form of the API (json, not jsonb: a body keeps its bytes); what is absent has its default.';
COMMENT ON COLUMN punctual.job_versions.note       IS 'Why, where somebody said so.';

CREATE TABLE punctual.schedules (
    job_id         uuid PRIMARY KEY REFERENCES punctual.jobs ON DELETE CASCADE,
    scheduled_for  timestamptz,
    next_run_at    timestamptz,
    tenant         integer NOT NULL,
    version        integer NOT NULL,
    lane           smallint NOT NULL,
    enabled        boolean NOT NULL,
    CONSTRAINT enabled_schedule_has_a_next_slot CHECK (NOT enabled OR (scheduled_for IS NOT NULL AND next_run_at IS NOT NULL)),
    CONSTRAINT schedule_is_never_due_before_its_slot CHECK (next_run_at >= scheduled_for)
-- Every fire is a non-HOT update here (next_run_at is indexed), so dead rows appear as fast as runs do:
-- vacuum by number, not by share, or the due end of the index silts up on a large table.
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX schedules_due ON punctual.schedules (lane, next_run_at) WHERE enabled;
CREATE INDEX schedules_due_by_tenant ON punctual.schedules (lane, tenant, next_run_at) WHERE enabled;
COMMENT ON TABLE  punctual.schedules               IS 'When each job fires next: one narrow row per job, the only hot row. Its lock is the first that anything changing a job takes.';
COMMENT ON COLUMN punctual.schedules.job_id        IS 'The job.';
COMMENT ON COLUMN punctual.schedules.scheduled_for IS 'Next slot (nominal fire time); null when none is left.';
COMMENT ON COLUMN punctual.schedules.next_run_at   IS 'When that slot is due: scheduled_for plus the job''s jitter.';
COMMENT ON COLUMN punctual.schedules.tenant        IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.schedules.version       IS 'Version a run claimed now is pinned to.';
COMMENT ON COLUMN punctual.schedules.lane          IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.schedules.enabled       IS 'False while paused and once no slot is left.';

CREATE SEQUENCE punctual.fences;
COMMENT ON SEQUENCE punctual.fences IS 'Fencing tokens: each claim of an attempt takes the next one.';

CREATE TABLE punctual.runs (
    id               uuid NOT NULL,
    job_id           uuid NOT NULL,
    replica          uuid,
    blocked_by       uuid,
    replay_of        uuid,
    parent_run       uuid,
    scheduled_for    timestamptz NOT NULL,
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    claimed_at       timestamptz,
    started_at       timestamptz,
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
    status           text NOT NULL,
    trigger          text NOT NULL,
    reason           text,
    error            text,
    step             text,
    PRIMARY KEY (id),
    CONSTRAINT run_status_is_known CHECK (status IN ('blocked', 'pending', 'running', 'retrying', 'succeeded', 'dead', 'skipped', 'cancelled')),
    CONSTRAINT run_trigger_is_known CHECK (trigger IN ('schedule', 'catchup', 'manual', 'event', 'backfill', 'replay', 'step')),
    CONSTRAINT run_reason_is_known CHECK (reason IN ('missed', 'paused', 'overlap', 'replaced', 'expired', 'limit', 'timeout', 'connect', 'tls', 'blocked_address',
        'http_4xx', 'http_5xx', 'redirect', 'gone', 'lost', 'poison', 'upstream_failed', 'cancelled_by_user', 'job_deleted')),
    CONSTRAINT final_run_has_finished_at CHECK ((status IN ('succeeded', 'dead', 'skipped', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT skipped_run_has_a_reason CHECK (status <> 'skipped' OR reason IS NOT NULL),
    CONSTRAINT running_run_has_a_fence CHECK (status <> 'running' OR fence IS NOT NULL)
) PARTITION BY RANGE (id);
CREATE INDEX runs_by_job ON punctual.runs (job_id, id);
COMMENT ON TABLE  punctual.runs                 IS 'One row per run, and one per recorded skip; partitioned by day on the time in the id. No index on a column that a successful finish changes: finishing is a HOT update.';
COMMENT ON COLUMN punctual.runs.id              IS 'For a slot: UUIDv8 of its milliseconds and a hash of (job, slot), so that a slot can have only one run. Otherwise UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.runs.job_id          IS 'The job.';
COMMENT ON COLUMN punctual.runs.replica         IS 'Replica that made the latest attempt.';
COMMENT ON COLUMN punctual.runs.blocked_by      IS 'On a skip for overlap: the run that was in the way.';
COMMENT ON COLUMN punctual.runs.replay_of       IS 'On a replay: the dead run it repeats.';
COMMENT ON COLUMN punctual.runs.parent_run      IS 'On a step: the run of its workflow.';
COMMENT ON COLUMN punctual.runs.scheduled_for   IS 'The slot: nominal fire time. Of a manual run, when it was asked for.';
COMMENT ON COLUMN punctual.runs.due_at          IS 'When it was due: the slot plus the job''s jitter.';
COMMENT ON COLUMN punctual.runs.created_at      IS 'When the row was written.';
COMMENT ON COLUMN punctual.runs.claimed_at      IS 'When the latest attempt was claimed.';
COMMENT ON COLUMN punctual.runs.started_at      IS 'When the latest attempt was sent.';
COMMENT ON COLUMN punctual.runs.finished_at     IS 'When it reached its final status.';
COMMENT ON COLUMN punctual.runs.next_attempt_at IS 'While retrying: when the next attempt may start.';
COMMENT ON COLUMN punctual.runs.skipped_first   IS 'On a skip: the first slot it stands for.';
COMMENT ON COLUMN punctual.runs.skipped_last    IS 'On a skip: the last slot it stands for.';
COMMENT ON COLUMN punctual.runs.fence           IS 'Fencing token of the latest attempt; only its holder may finish the run.';
COMMENT ON COLUMN punctual.runs.tenant          IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.runs.job_version     IS 'Version of the definition it uses on every attempt.';
COMMENT ON COLUMN punctual.runs.skipped_count   IS 'On a skip: how many slots it stands for; null above 1,000.';
COMMENT ON COLUMN punctual.runs.lane            IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.runs.attempt         IS 'Number of the latest attempt, from 1; 0 before the first.';
COMMENT ON COLUMN punctual.runs.http_status     IS 'HTTP status of the latest attempt''s response, if there was one.';
COMMENT ON COLUMN punctual.runs.late            IS 'Made after the job''s tolerance for missed slots.';
COMMENT ON COLUMN punctual.runs.status          IS 'blocked, pending, running, retrying; final: succeeded, dead, skipped, cancelled.';
COMMENT ON COLUMN punctual.runs.trigger         IS 'What made it: schedule, catchup, manual, event, backfill, replay or step.';
COMMENT ON COLUMN punctual.runs.reason          IS 'Why it is not a plain success; null on a plain success. On a running run, cancelled_by_user or replaced: it is to be cancelled.';
COMMENT ON COLUMN punctual.runs.error           IS 'The latest error, for people.';
COMMENT ON COLUMN punctual.runs.step            IS 'On a step: its name.';

CREATE TABLE punctual.attempts (
    run_id       uuid NOT NULL,
    fence        bigint NOT NULL,
    number       smallint NOT NULL,
    http_status  smallint,
    replica      uuid,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    outcome      text NOT NULL,
    reason       text,
    error        text,
    response     text,
    PRIMARY KEY (run_id, fence),
    CONSTRAINT attempt_outcome_is_known CHECK (outcome IN ('failed', 'timed_out', 'lost', 'interrupted', 'cancelled')),
    CONSTRAINT attempt_number_is_positive CHECK (number > 0)
) PARTITION BY RANGE (run_id);
COMMENT ON TABLE  punctual.attempts             IS 'One row per unsuccessful attempt; a success is on its run. Append-only, partitioned like runs.';
COMMENT ON COLUMN punctual.attempts.run_id      IS 'The run.';
COMMENT ON COLUMN punctual.attempts.fence       IS 'Fencing token of the attempt.';
COMMENT ON COLUMN punctual.attempts.number      IS 'Counts from 1; an interrupted attempt does not count, so its number is used again.';
COMMENT ON COLUMN punctual.attempts.http_status IS 'Status of the response, if there was one.';
COMMENT ON COLUMN punctual.attempts.replica     IS 'Replica that made it.';
COMMENT ON COLUMN punctual.attempts.started_at  IS 'When the request was sent.';
COMMENT ON COLUMN punctual.attempts.finished_at IS 'When it ended.';
COMMENT ON COLUMN punctual.attempts.outcome     IS 'failed, timed_out, lost (its replica vanished), interrupted (its replica was stopped) or cancelled.';
COMMENT ON COLUMN punctual.attempts.reason      IS 'Same list as runs.reason.';
COMMENT ON COLUMN punctual.attempts.error       IS 'What went wrong, for people.';
COMMENT ON COLUMN punctual.attempts.response    IS 'Start of the response body.';

CREATE TABLE punctual.run_data (
    run_id           uuid NOT NULL,
    webhook_id       uuid,
    headers          jsonb,
    body             bytea,
    idempotency_key  text,
    PRIMARY KEY (run_id)
) PARTITION BY RANGE (run_id);
COMMENT ON TABLE  punctual.run_data                 IS 'What a single run sends in place of what its job says, only where there is any. Partitioned like runs.';
COMMENT ON COLUMN punctual.run_data.run_id          IS 'The run.';
COMMENT ON COLUMN punctual.run_data.webhook_id      IS 'On a replay: the webhook-id of the run that died first; null: the run''s id.';
COMMENT ON COLUMN punctual.run_data.headers         IS 'Headers that replace the job''s for this run; null: the job''s.';
COMMENT ON COLUMN punctual.run_data.body            IS 'Body that replaces the job''s for this run; null: the job''s.';
COMMENT ON COLUMN punctual.run_data.idempotency_key IS 'On a replay: the Idempotency-Key of the run that died first; null: what follows from the run itself.';

CREATE TABLE punctual.ready (
    run_id   uuid PRIMARY KEY,
    job_id   uuid NOT NULL,
    due_at   timestamptz NOT NULL,
    tenant   integer NOT NULL,
    lane     smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_due ON punctual.ready (lane, due_at);
CREATE INDEX ready_by_job ON punctual.ready (job_id);
COMMENT ON TABLE  punctual.ready        IS 'Runs that any replica may claim: retries, manual runs, runs given back. A row leaves when it is claimed.';
COMMENT ON COLUMN punctual.ready.run_id IS 'The run.';
COMMENT ON COLUMN punctual.ready.job_id IS 'Its job.';
COMMENT ON COLUMN punctual.ready.due_at IS 'When it may be claimed.';
COMMENT ON COLUMN punctual.ready.tenant IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.ready.lane   IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';

CREATE TABLE punctual.claims (
    id          uuid PRIMARY KEY,
    replica     uuid NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT now(),
    run_ids     uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE  punctual.claims            IS 'The leases: one row per claimed batch, gone when all of its runs have left the replica.';
COMMENT ON COLUMN punctual.claims.id         IS 'The batch.';
COMMENT ON COLUMN punctual.claims.replica    IS 'Replica that holds it.';
COMMENT ON COLUMN punctual.claims.claimed_at IS 'When it was claimed.';
COMMENT ON COLUMN punctual.claims.run_ids    IS 'The runs claimed together.';

CREATE TABLE punctual.exclusive (
    job_id       uuid PRIMARY KEY REFERENCES punctual.jobs ON DELETE CASCADE,
    active_run   uuid,
    waiting_run  uuid
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.exclusive             IS 'The gate of each job whose concurrency_policy is not allow: a permanent row, locked before a run of the job is started or ended.';
COMMENT ON COLUMN punctual.exclusive.job_id      IS 'The job.';
COMMENT ON COLUMN punctual.exclusive.active_run  IS 'Its active run; one that is final or missing counts as none.';
COMMENT ON COLUMN punctual.exclusive.waiting_run IS 'Under wait: the run that starts when the active one ends.';

CREATE TABLE punctual.cancels (
    run_id        uuid PRIMARY KEY,
    replica       uuid NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  punctual.cancels              IS 'Tells replicas which of the runs they are sending are to be cancelled; that they are is said by runs.reason.';
COMMENT ON COLUMN punctual.cancels.run_id       IS 'The running run.';
COMMENT ON COLUMN punctual.cancels.replica      IS 'Replica that is sending it.';
COMMENT ON COLUMN punctual.cancels.requested_at IS 'When it was asked for.';

CREATE TABLE punctual.dead_letters (
    run_id           uuid PRIMARY KEY,
    job_id           uuid NOT NULL,
    tenant           integer NOT NULL,
    job_name         text NOT NULL,
    job_version      integer NOT NULL,
    scheduled_for    timestamptz NOT NULL,
    died_at          timestamptz NOT NULL DEFAULT now(),
    trigger          text NOT NULL,
    reason           text,
    attempts         smallint NOT NULL,
    http_status      smallint,
    error            text,
    headers          jsonb,
    body             bytea,
    resolved_at      timestamptz,
    note             text,
    webhook_id       uuid,
    idempotency_key  text,
    replayed_as      uuid,
    operation        uuid,
    CONSTRAINT replayed_dead_letter_is_resolved CHECK (replayed_as IS NULL OR resolved_at IS NOT NULL)
);
CREATE INDEX dead_letters_open ON punctual.dead_letters (tenant, run_id) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_by_job ON punctual.dead_letters (job_id, run_id);
CREATE INDEX dead_letters_of_operation ON punctual.dead_letters (operation, run_id) WHERE operation IS NOT NULL;
COMMENT ON TABLE  punctual.dead_letters                 IS 'Runs that exhausted their attempts, with what a replay needs, until somebody resolves them. Outlives the run''s partition.';
COMMENT ON COLUMN punctual.dead_letters.run_id          IS 'The dead run.';
COMMENT ON COLUMN punctual.dead_letters.job_id          IS 'Its job.';
COMMENT ON COLUMN punctual.dead_letters.tenant          IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.dead_letters.job_name        IS 'Name of the job when the run died.';
COMMENT ON COLUMN punctual.dead_letters.job_version     IS 'Version the run used.';
COMMENT ON COLUMN punctual.dead_letters.scheduled_for   IS 'Its slot.';
COMMENT ON COLUMN punctual.dead_letters.died_at         IS 'When it became dead.';
COMMENT ON COLUMN punctual.dead_letters.trigger         IS 'What made the run.';
COMMENT ON COLUMN punctual.dead_letters.reason          IS 'Why its last attempt failed; same list as runs.reason.';
COMMENT ON COLUMN punctual.dead_letters.attempts        IS 'How many attempts it had.';
COMMENT ON COLUMN punctual.dead_letters.http_status     IS 'HTTP status of the last response, if there was one.';
COMMENT ON COLUMN punctual.dead_letters.error           IS 'Its last error.';
COMMENT ON COLUMN punctual.dead_letters.headers         IS 'Headers given to this run alone.';
COMMENT ON COLUMN punctual.dead_letters.body            IS 'Body given to this run alone.';
COMMENT ON COLUMN punctual.dead_letters.resolved_at     IS 'When somebody resolved or replayed it.';
COMMENT ON COLUMN punctual.dead_letters.note            IS 'What they said.';
COMMENT ON COLUMN punctual.dead_letters.webhook_id      IS 'Of a replay that died: the webhook-id it carried; null: the run''s id.';
COMMENT ON COLUMN punctual.dead_letters.idempotency_key IS 'Of a replay that died: the Idempotency-Key it carried; null: what follows from the run itself.';
COMMENT ON COLUMN punctual.dead_letters.replayed_as     IS 'The run that repeats it, once it was replayed.';
COMMENT ON COLUMN punctual.dead_letters.operation       IS 'The running operation that is to replay or resolve it: operations.id.';

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
    CONSTRAINT operation_kind_is_replay_or_resolve CHECK (kind IN ('replay', 'resolve')),
    CONSTRAINT operation_state_is_running_done_cancelled_or_failed CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
    CONSTRAINT ended_operation_has_finished_at CHECK ((state = 'running') = (finished_at IS NULL)),
    CONSTRAINT failed_operation_has_an_error CHECK (state <> 'failed' OR error IS NOT NULL),
    CONSTRAINT operation_does_no_more_than_it_matched CHECK (done >= 0 AND failed >= 0 AND done + failed <= matched),
    CONSTRAINT operation_rate_is_positive CHECK (max_per_second > 0)
);
CREATE INDEX operations_by_tenant ON punctual.operations (tenant, id);
CREATE INDEX operations_running ON punctual.operations (next_at) WHERE state = 'running';
COMMENT ON TABLE  punctual.operations                IS 'Work on many dead letters at once. Any replica does the next batch of a running one, in a transaction with the progress it makes.';
COMMENT ON COLUMN punctual.operations.id             IS 'UUIDv7 of its creation.';
COMMENT ON COLUMN punctual.operations.tenant         IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.operations.kind           IS 'replay or resolve.';
COMMENT ON COLUMN punctual.operations.state          IS 'running, done, cancelled or failed (it could not be carried on).';
COMMENT ON COLUMN punctual.operations.request        IS 'What was asked for: the filter, and whether only the latest of each job.';
COMMENT ON COLUMN punctual.operations.note           IS 'What was said with it.';
COMMENT ON COLUMN punctual.operations.max_per_second IS 'How many dead letters it takes a second at most; null: as many as it can.';
COMMENT ON COLUMN punctual.operations.matched        IS 'How many dead letters were open and selected when it was made; those are marked, and no others are touched.';
COMMENT ON COLUMN punctual.operations.done           IS 'How many of them have been replayed or resolved.';
COMMENT ON COLUMN punctual.operations.failed         IS 'How many of them could not be.';
COMMENT ON COLUMN punctual.operations.next_at        IS 'When its next batch may be done, by its rate.';
COMMENT ON COLUMN punctual.operations.created_at     IS 'When it was asked for.';
COMMENT ON COLUMN punctual.operations.finished_at    IS 'When it ended.';
COMMENT ON COLUMN punctual.operations.error          IS 'The latest dead letter that could not be done and why, or why the operation could not be carried on.';

CREATE TABLE punctual.replicas (
    id          uuid PRIMARY KEY,
    host        text NOT NULL,
    version     text NOT NULL,
    queues      jsonb NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    renewed_at  timestamptz NOT NULL DEFAULT now(),
    beat        bigint NOT NULL DEFAULT 0,
    draining    boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
COMMENT ON TABLE  punctual.replicas            IS 'One row per running process, under a fresh random id at every start.';
COMMENT ON COLUMN punctual.replicas.id         IS 'The process.';
COMMENT ON COLUMN punctual.replicas.host       IS 'Host name, for people.';
COMMENT ON COLUMN punctual.replicas.version    IS 'Version of its binary.';
COMMENT ON COLUMN punctual.replicas.queues     IS 'Its worker slots per queue.';
COMMENT ON COLUMN punctual.replicas.started_at IS 'When it started.';
COMMENT ON COLUMN punctual.replicas.renewed_at IS 'When it last renewed, for people: others judge by watching beat.';
COMMENT ON COLUMN punctual.replicas.beat       IS 'Heartbeat counter, raised every 2 s.';
COMMENT ON COLUMN punctual.replicas.draining   IS 'It was asked to stop and claims no more.';

CREATE TABLE punctual.idempotency_keys (
    tenant        integer NOT NULL,
    key           text NOT NULL,
    request_hash  bytea NOT NULL,
    status        smallint NOT NULL,
    response      json NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_by_age ON punctual.idempotency_keys (created_at);
COMMENT ON TABLE  punctual.idempotency_keys              IS 'First answers to requests that carried an Idempotency-Key, kept for 24 hours.';
COMMENT ON COLUMN punctual.idempotency_keys.tenant       IS 'Owner: tenants.id.';
COMMENT ON COLUMN punctual.idempotency_keys.key          IS 'The key the client sent.';
COMMENT ON COLUMN punctual.idempotency_keys.request_hash IS 'SHA-256 of method, path and body: the same key with another request is an error.';
COMMENT ON COLUMN punctual.idempotency_keys.status       IS 'HTTP status of the first answer.';
COMMENT ON COLUMN punctual.idempotency_keys.response     IS 'Body of the first answer.';
COMMENT ON COLUMN punctual.idempotency_keys.created_at   IS 'When the first answer was given.';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION punctual.partition_bound(day date) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM day)::bigint * 1000)), 12, '0'), 32, '0')::uuid
$$;
COMMENT ON FUNCTION punctual.partition_bound(date) IS 'Lowest run id of a day (UTC): the first 48 bits of a run id are milliseconds since 1970.';

-- By name, so that it costs two look-ups however many days are kept.
CREATE FUNCTION punctual.has_partition(parent text, day date) RETURNS boolean
LANGUAGE sql STABLE STRICT AS $$
    SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE NOT inhdetachpending AND inhrelid IN (
        to_regclass('punctual.' || parent || to_char(day, '_YYYYMMDD')), to_regclass('punctual.' || parent || to_char(day, '_YYYYMMDD"_failures"'))))
$$;
COMMENT ON FUNCTION punctual.has_partition(text, date) IS 'Whether a day (UTC) of runs, attempts or run_data has its partition: that of a whole day or of its failures.';

-- A partition is made beside the parent and then attached: PARTITION OF would lock the parent against every reader and writer.
-- One that is there and not attached, because its removal has begun, is attached again: what is in it is lost to nobody.
-- Pages are filled to 45 %, so that finishing a run finds room beside it for its second version (a HOT update, no index write).
CREATE FUNCTION punctual.create_partitions(first_day date, last_day date) RETURNS integer
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
COMMENT ON FUNCTION punctual.create_partitions(date, date) IS 'Makes the daily partitions of runs, attempts and run_data that are missing between two days (UTC, inclusive); returns how many.';
-- +goose StatementEnd

-- +goose StatementBegin
-- The time limit keeps it from standing in a line of locks with others behind it.
CREATE FUNCTION punctual.retire_partitions(day date, keep_failures boolean) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    parents constant text[] := ARRAY['runs', 'attempts', 'run_data'];
    suffix constant text := to_char(day, '_YYYYMMDD');
    parent text;
    kept bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('punctual.create_partitions'));
    -- Somebody may have attached one again, because a slot of that day needs it.
    IF EXISTS (SELECT FROM unnest(parents) p JOIN pg_catalog.pg_inherits i
                   ON i.inhrelid IN (to_regclass('punctual.' || p || suffix), to_regclass('punctual.' || p || suffix || '_failures'))) THEN
        RETURN NULL;
    END IF;
    IF keep_failures AND to_regclass('punctual.runs' || suffix || '_failures') IS NOT NULL THEN
        PERFORM punctual.create_partitions(day, day); -- they were to go, and now they are to stay
        RETURN NULL;
    END IF;
    IF keep_failures AND to_regclass('punctual.runs' || suffix) IS NOT NULL THEN
        FOREACH parent IN ARRAY parents LOOP
            EXECUTE format('CREATE TABLE punctual.%I (LIKE punctual.%I INCLUDING ALL)', parent || suffix || '_failures', parent);
        END LOOP;
        EXECUTE format('INSERT INTO punctual.%I SELECT * FROM punctual.%I WHERE status <> ''succeeded''', 'runs' || suffix || '_failures', 'runs' || suffix);
        GET DIAGNOSTICS kept = ROW_COUNT;
        FOREACH parent IN ARRAY parents[2:] LOOP
            IF kept > 0 AND to_regclass('punctual.' || parent || suffix) IS NOT NULL THEN
                EXECUTE format('INSERT INTO punctual.%I SELECT * FROM punctual.%I WHERE run_id IN (SELECT id FROM punctual.%I)',
                    parent || suffix || '_failures', parent || suffix, 'runs' || suffix || '_failures');
            END IF;
        END LOOP;
    END IF;
    FOREACH parent IN ARRAY parents LOOP
        EXECUTE format('DROP TABLE IF EXISTS punctual.%I', parent || suffix);
        IF kept = 0 THEN
            EXECUTE format('DROP TABLE IF EXISTS punctual.%I', parent || suffix || '_failures');
        ELSE
            EXECUTE format('ALTER TABLE punctual.%I ATTACH PARTITION punctual.%I FOR VALUES FROM (%L) TO (%L)',
                parent, parent || suffix || '_failures', punctual.partition_bound(day), punctual.partition_bound(day + 1));
        END IF;
    END LOOP;
    RETURN kept;
END
$$;
COMMENT ON FUNCTION punctual.retire_partitions(date, boolean) IS 'Drops the detached tables of a day (UTC) of runs, attempts and run_data; keeping failures, first moves every run that did not succeed, with its attempts and data, into a partition of its own. Returns how many runs were kept; null when a partition of the day is attached.';
-- +goose StatementEnd

-- +goose StatementBegin
SELECT punctual.create_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 7);
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION punctual.priority_name(lane smallint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (ARRAY['high', 'normal', 'low'])[lane % 4 + 1] $$;
COMMENT ON FUNCTION punctual.priority_name(smallint) IS 'Priority part of a lane: high, normal or low.';

CREATE VIEW punctual.job_status AS
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
LEFT JOIN LATERAL (SELECT id, status, reason, scheduled_for, finished_at FROM punctual.runs WHERE job_id = j.id ORDER BY id DESC LIMIT 1) r ON true
WHERE j.state <> 'deleted';
COMMENT ON VIEW punctual.job_status IS 'Every job that is not deleted, with its schedule, its next slot and its newest run.';

CREATE VIEW punctual.run_history AS
SELECT t.name AS tenant, j.name AS job, r.id, r.trigger, r.scheduled_for, r.status, r.reason, r.late, r.attempt, r.http_status, r.error,
       q.name AS queue, punctual.priority_name(r.lane) AS priority, r.due_at, r.claimed_at, r.started_at, r.finished_at, r.next_attempt_at,
       r.started_at - r.due_at AS lateness, r.finished_at - r.started_at AS duration,
       r.job_version, r.replica, r.blocked_by, r.skipped_first, r.skipped_last, r.skipped_count, r.replay_of, r.parent_run, r.step, r.job_id
FROM punctual.runs r
JOIN punctual.tenants t ON t.id = r.tenant
JOIN punctual.queues q ON q.id = r.lane / 4
LEFT JOIN punctual.jobs j ON j.id = r.job_id;
COMMENT ON VIEW punctual.run_history IS 'Every run and skip, with the names of its job, tenant and queue. Narrow it by id or scheduled_for and job_id.';

CREATE VIEW punctual.overdue AS
SELECT t.name AS tenant, j.name AS job, j.id AS job_id, NULL::uuid AS run_id, 'slot' AS what, s.scheduled_for, s.next_run_at AS due_at, now() - s.next_run_at AS overdue_by, q.name AS queue
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN punctual.queues q ON q.id = s.lane / 4
WHERE s.enabled AND s.next_run_at <= now()
UNION ALL
SELECT t.name, j.name, y.job_id, y.run_id, 'run', NULL, y.due_at, now() - y.due_at, q.name
FROM punctual.ready y LEFT JOIN punctual.jobs j ON j.id = y.job_id JOIN punctual.tenants t ON t.id = y.tenant JOIN punctual.queues q ON q.id = y.lane / 4
WHERE y.due_at <= now();
COMMENT ON VIEW punctual.overdue IS 'What is due now and waits for a replica: slots not claimed yet, and runs in ready. Empty or milliseconds old when all is well.';

CREATE VIEW punctual.upcoming AS
SELECT t.name AS tenant, j.name AS job, s.job_id, s.scheduled_for, s.next_run_at, s.next_run_at - now() AS due_in, q.name AS queue, punctual.priority_name(s.lane) AS priority
FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id JOIN punctual.tenants t ON t.id = s.tenant JOIN punctual.queues q ON q.id = s.lane / 4
WHERE s.enabled;
COMMENT ON VIEW punctual.upcoming IS 'The next slot of every enabled job. ORDER BY next_run_at to see what fires next.';

CREATE VIEW punctual.failures AS
SELECT t.name AS tenant, d.job_name AS job, d.job_id, d.run_id, d.scheduled_for, d.died_at, d.reason, d.attempts, d.http_status, d.error, d.trigger, d.resolved_at, d.note, d.replayed_as
FROM punctual.dead_letters d JOIN punctual.tenants t ON t.id = d.tenant;
COMMENT ON VIEW punctual.failures IS 'The dead-letter list: runs that exhausted their attempts, resolved ones included.';

CREATE VIEW punctual.replica_status AS
SELECT r.id, r.host, r.version, r.queues, r.started_at, r.renewed_at, now() - r.renewed_at AS silent_for, r.draining,
       coalesce(c.batches, 0) AS claimed_batches, coalesce(c.runs, 0) AS claimed_runs
FROM punctual.replicas r
LEFT JOIN (SELECT replica, count(*) AS batches, sum(cardinality(run_ids)) AS runs FROM punctual.claims GROUP BY replica) c ON c.replica = r.id;
COMMENT ON VIEW punctual.replica_status IS 'Running processes: since when, when they last renewed, and what they hold.';
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    c record;
    texts jsonb := '{
        "tenant": "Name of the tenant.", "name": "Name of the job.", "job": "Name of the job.", "id": "Its id.", "job_id": "Id of the job.", "run_id": "Id of the run.",
        "state": "active, paused or completed.", "kind": "cron, every, at, delay or none.", "queue": "Name of the queue.", "priority": "high, normal or low.",
        "version": "Version.", "schedule": "The schedule as written.", "url": "Where the callback goes.", "next_run_at": "When the next slot is due (with jitter); null when there is none.",
        "next_scheduled_for": "The next slot; null when there is none.", "last_run_id": "Newest run or skip.", "last_status": "Status of the newest run.",
        "last_reason": "Reason of the newest run.", "last_scheduled_for": "Slot of the newest run.", "last_finished_at": "When the newest run ended.",
        "lateness": "From due to sent.", "duration": "From sent to its end.", "what": "slot: not claimed yet; run: waiting in ready.", "overdue_by": "For how long it has been due.",
        "due_in": "Time until it is due.", "silent_for": "Time since it last renewed.", "claimed_batches": "Batches it holds.", "claimed_runs": "Runs in those batches.",
        "host": "Host name.", "queues": "Worker slots per queue."}';
BEGIN
    -- A view's column says what the column of the same name in a table says, unless it has a meaning of its own.
    FOR c IN
        SELECT v.relname, a.attname, coalesce(texts ->> a.attname::text,
               (SELECT col_description(t.oid, ta.attnum) FROM pg_class t JOIN pg_attribute ta ON ta.attrelid = t.oid AND ta.attname = a.attname
                 WHERE t.relnamespace = 'punctual'::regnamespace AND t.relname IN ('runs', 'jobs', 'dead_letters', 'replicas', 'schedules')
                   AND col_description(t.oid, ta.attnum) IS NOT NULL
                 ORDER BY array_position(ARRAY['runs', 'jobs', 'dead_letters', 'replicas', 'schedules']::name[], t.relname) LIMIT 1)) AS text
        FROM pg_class v JOIN pg_attribute a ON a.attrelid = v.oid AND a.attnum > 0
        WHERE v.relnamespace = 'punctual'::regnamespace AND v.relkind = 'v'
    LOOP
        EXECUTE format('COMMENT ON COLUMN punctual.%I.%I IS %L', c.relname, c.attname, c.text);
    END LOOP;

    -- Roles belong to the whole cluster and making one needs a privilege; without it everything else still works.
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
            CREATE ROLE punctual_reader NOLOGIN;
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role punctual_reader was not made: the migrating user may not create roles';
        WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this cluster is being migrated at the same moment
    END;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader') THEN
        GRANT USAGE ON SCHEMA punctual TO punctual_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA punctual TO punctual_reader;
        REVOKE SELECT ON punctual.idempotency_keys FROM punctual_reader;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- The schema itself stays: it holds goose's own table.
DROP VIEW punctual.job_status, punctual.run_history, punctual.overdue, punctual.upcoming, punctual.failures, punctual.replica_status;
DROP TABLE punctual.idempotency_keys, punctual.replicas, punctual.operations, punctual.dead_letters, punctual.cancels, punctual.exclusive, punctual.claims, punctual.ready, punctual.run_data,
    punctual.attempts, punctual.runs, punctual.schedules, punctual.job_versions, punctual.jobs, punctual.queues, punctual.tenants, punctual.deployment;
DROP FUNCTION punctual.create_partitions(date, date), punctual.retire_partitions(date, boolean), punctual.has_partition(text, date), punctual.partition_bound(date), punctual.priority_name(smallint);
DROP SEQUENCE punctual.fences;
-- +goose StatementEnd
