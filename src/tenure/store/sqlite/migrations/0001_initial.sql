-- kind: expand
-- breaking: no

CREATE TABLE namespaces (
    name TEXT PRIMARY KEY,
    created_at_ms INTEGER NOT NULL,
    is_disabled INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    is_paused INTEGER NOT NULL,
    concurrency_max INTEGER NOT NULL CHECK (concurrency_max >= 0),
    version INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- The live table. It stays small: a finished task moves to history in the transaction that
-- finishes it.
CREATE TABLE tasks (
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL,
    line INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    run_at_ms INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    version INTEGER NOT NULL,
    worker_id TEXT,
    handed_at_ms INTEGER NOT NULL,
    session_no INTEGER NOT NULL,
    last_outcome TEXT,
    due_at_ms INTEGER,
    is_guarded INTEGER NOT NULL,
    labels TEXT,
    spec BLOB NOT NULL,
    progress BLOB,
    input BLOB,
    PRIMARY KEY (namespace, id),
    -- OR chains: for IN with a list SQLite builds a table at each write, which doubles its time.
    CONSTRAINT known_state CHECK (
        state = 'pending' OR state = 'dispatched' OR state = 'running' OR state = 'cancelling'
        OR state = 'waiting' OR state = 'paused'
    ),
    CONSTRAINT known_line CHECK (line >= 0 AND line <= 2),
    CONSTRAINT known_priority CHECK (priority >= 0 AND priority <= 9),
    CONSTRAINT line_only_while_pending CHECK (line = 0 OR state = 'pending'),
    CONSTRAINT held_by_somebody CHECK (
        worker_id IS NOT NULL OR (state <> 'dispatched' AND state <> 'running')
    ),
    CONSTRAINT held_by_nobody CHECK (
        worker_id IS NULL OR state = 'dispatched' OR state = 'running' OR state = 'cancelling'
    )
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_claim ON tasks (namespace, queue, type, line, priority, run_at_ms, id)
    WHERE line > 0;
CREATE INDEX tasks_due ON tasks (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX tasks_held ON tasks (namespace, queue, worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_cancelling ON tasks (worker_id) WHERE state = 'cancelling';

CREATE TABLE history (
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'succeeded' OR state = 'failed' OR state = 'cancelled'
    ),
    priority INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    run_at_ms INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    version INTEGER NOT NULL,
    worker_id TEXT,
    handed_at_ms INTEGER NOT NULL,
    session_no INTEGER NOT NULL,
    last_outcome TEXT,
    labels TEXT,
    spec BLOB NOT NULL,
    progress BLOB,
    input BLOB,
    output BLOB,
    finished_at_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_finished ON history (finished_at_ms);

CREATE TABLE attempts (
    namespace TEXT NOT NULL,
    task_id TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    outcome TEXT NOT NULL,
    worker_id TEXT,
    handed_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER NOT NULL,
    state_after TEXT NOT NULL,
    error BLOB,
    PRIMARY KEY (namespace, task_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_ended ON attempts (ended_at_ms);

CREATE TABLE idempotency_keys (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at_ms);

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    types TEXT NOT NULL CHECK (json_array_length(types) > 0),
    instance_key TEXT NOT NULL,
    registered_at_ms INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('online', 'draining', 'offline')),
    mode TEXT NOT NULL,
    slots INTEGER NOT NULL CHECK (slots > 0),
    name TEXT NOT NULL,
    hostname TEXT NOT NULL,
    pid INTEGER NOT NULL,
    software_version TEXT NOT NULL,
    labels TEXT NOT NULL,
    session_no INTEGER NOT NULL,
    end_reason TEXT,
    drain_at_ms INTEGER,
    ended_at_ms INTEGER,
    release_pending INTEGER NOT NULL,
    version INTEGER NOT NULL,
    CONSTRAINT ended_with_reason CHECK ((status = 'offline') = (end_reason IS NOT NULL)),
    CONSTRAINT release_after_end CHECK (status = 'offline' OR NOT release_pending)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX workers_instance ON workers (namespace, instance_key);
CREATE UNIQUE INDEX workers_name ON workers (namespace, name)
    WHERE status <> 'offline' AND name <> '';
CREATE INDEX workers_list ON workers (namespace, id);
CREATE INDEX workers_release ON workers (id) WHERE release_pending;
CREATE INDEX workers_ended ON workers (ended_at_ms) WHERE status = 'offline';

-- One narrow row per active worker, rewritten by each heartbeat. No index on the deadline: the
-- expiry scan is bounded and cheap.
CREATE TABLE leases (
    worker_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    server_id TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL CHECK (lease_ms > 0),
    token INTEGER NOT NULL CHECK (token >= 1),
    beat_at_ms INTEGER NOT NULL,
    previous_beat_at_ms INTEGER NOT NULL,
    total_completed INTEGER NOT NULL,
    total_failed INTEGER NOT NULL,
    active_count INTEGER NOT NULL,
    loop_lag_ms INTEGER NOT NULL,
    stuck_count INTEGER NOT NULL,
    suspect_until_ms INTEGER,
    failures INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE servers (
    id TEXT PRIMARY KEY,
    started_at_ms INTEGER NOT NULL,
    touched_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
