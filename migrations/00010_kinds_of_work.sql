-- Kinds of work: runs that were ordered in numbers, and deadlines, wait in lanes of their own. No row is moved: what replicas
-- of the version before have put into the other lanes, replicas of this one claim from there.

-- +goose Up

SET LOCAL lock_timeout = '500ms';

COMMENT ON TABLE  punctual.queues     IS 'Named lanes with their own worker slots on each replica. A lane number is queue id x 4 + priority (0 high, 1 normal, 2 low); see ready.lane for others.';
COMMENT ON COLUMN punctual.ready.lane IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low), or + 3 for backfills and replays of any priority; -1 - queue id for the deadline of a target that works on, which needs no worker slot.';
COMMENT ON COLUMN punctual.ready.due_at IS 'When it may be claimed; of a run whose target works on, its deadline.';

-- +goose Down

-- The version before looks into the lanes of priorities only.
UPDATE punctual.ready y SET lane = r.lane FROM punctual.runs r WHERE r.id = y.run_id AND y.lane <> r.lane;

COMMENT ON TABLE  punctual.queues     IS 'Named lanes with their own worker slots on each replica. A lane number is queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.ready.lane IS 'Queue id x 4 + priority (0 high, 1 normal, 2 low).';
COMMENT ON COLUMN punctual.ready.due_at IS 'When it may be claimed.';
