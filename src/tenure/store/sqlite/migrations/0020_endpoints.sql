-- kind: expand
-- breaking: no

-- URLs that tasks are pushed to, each beside a worker row of mode callback, whose lock protects all but the
-- failures. `content` has the URL, headers, times and secrets.
CREATE TABLE endpoints (
    worker_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    is_deleting INTEGER NOT NULL CHECK (is_deleting IN (0, 1)),
    pause TEXT,
    failure_count INTEGER NOT NULL,
    held_until_ms INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    last_error_at_ms INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX endpoints_name ON endpoints (namespace, name);
