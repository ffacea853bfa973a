-- The life of a task as bare SQL on SQLite: what Tenure is compared with, not what it runs.

-- name: claim_tasks
UPDATE task
SET state = 1, attempt = attempt + 1, version = version + 1, worker_id = ?6, due_at = ?7
WHERE rowid IN (
    SELECT rowid FROM task
    WHERE state = 0 AND namespace = ?1 AND queue = ?2 AND type = ?3 AND run_at <= ?4
    ORDER BY priority, run_at, id
    LIMIT ?5
)
RETURNING id, version, attempt, input

-- name: create_schema
CREATE TABLE task (
    id BLOB PRIMARY KEY,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    version INTEGER NOT NULL,
    worker_id BLOB,
    due_at INTEGER,
    input BLOB NOT NULL
) STRICT;

CREATE INDEX task_claim ON task (namespace, queue, type, priority, run_at, id) WHERE state = 0;
CREATE INDEX task_due ON task (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX task_worker ON task (worker_id) WHERE worker_id IS NOT NULL;

CREATE TABLE history (
    id BLOB NOT NULL,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    version INTEGER NOT NULL,
    worker_id BLOB,
    finished_at INTEGER NOT NULL,
    input BLOB NOT NULL,
    output BLOB NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;

-- name: delete_tasks
DELETE FROM task WHERE id = ?1 AND version = ?2

-- name: insert_history
INSERT INTO history (id, namespace, queue, type, state, priority, run_at, attempt, version,
    worker_id, finished_at, input, output)
SELECT id, namespace, queue, type, 3, priority, run_at, attempt, version, worker_id, ?4, input, ?3
FROM task WHERE id = ?1 AND version = ?2

-- name: insert_tasks
-- State 0 is pending; 1 is dispatched, and then with a worker and a deadline (direct hand-out).
INSERT INTO task (id, namespace, queue, type, state, priority, run_at, attempt, version,
    worker_id, due_at, input)
VALUES (?1, ?2, ?3, ?4, ?8, ?5, ?6, ?8, 1, ?9, ?10, ?7)

-- name: set_pragmas
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -65536
