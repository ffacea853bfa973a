-- kind: expand
-- breaking: no

-- Rules that start tasks and runs. A scheduler looks at active ones when `due_at_ms` has come;
-- `spec` is what the user has put, `progress` how far it has come.
CREATE TABLE schedules (
    namespace text NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'paused', 'broken', 'ended')),
    due_at_ms bigint CHECK ((due_at_ms IS NOT NULL) = (state = 'active')),
    failure_count integer NOT NULL CHECK (failure_count >= 0),
    created_at_ms bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    version integer NOT NULL,
    spec bytea NOT NULL,
    progress bytea NOT NULL,
    PRIMARY KEY (namespace, id)
);
-- Neither paused nor broken ones; the head is all that a scheduler reads.
CREATE INDEX schedules_due ON schedules (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX schedules_broken ON schedules (namespace, id) WHERE state = 'broken';
CREATE INDEX schedules_failing ON schedules (namespace, id) WHERE failure_count >= 3;

-- How many schedules a namespace has: counting them would cost each new one.
CREATE TABLE schedule_counts (
    namespace text PRIMARY KEY,
    count integer NOT NULL
);

-- What became of ticks: one row for each that has started something, with the key that makes it
-- the only one, and one for each range that was skipped. Rows are appended; only `outcome` and
-- `settled_at_ms` are filled in, once, when the task has ended. Keys of ticks sort by time.
CREATE TABLE fires (
    namespace text NOT NULL,
    schedule_id text NOT NULL,
    id uuid NOT NULL,
    key text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('tick', 'backfill', 'trigger', 'skipped')),
    fire_at_ms bigint NOT NULL,
    until_ms bigint NOT NULL CHECK (until_ms >= fire_at_ms),
    recorded_at_ms bigint NOT NULL,
    task_id uuid CHECK ((task_id IS NULL) = (kind = 'skipped')),
    outcome text CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'unknown')),
    settled_at_ms bigint CHECK ((settled_at_ms IS NULL) = (outcome IS NULL)),
    reason text CHECK ((reason IS NOT NULL) = (kind = 'skipped')),
    count integer NOT NULL CHECK (count > 0),
    is_count_exact boolean NOT NULL,
    PRIMARY KEY (namespace, schedule_id, id),
    UNIQUE (namespace, key)
);
CREATE INDEX fires_open ON fires (namespace, task_id)
WHERE outcome IS NULL AND task_id IS NOT NULL;
CREATE INDEX fires_recorded ON fires (recorded_at_ms);
