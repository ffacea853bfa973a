-- kind: expand
-- breaking: no

-- When workers registered, connected, were drained and ended, and why: for people, kept for a week,
-- while the workers themselves are kept for a day.
CREATE TABLE worker_changes (
    namespace TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    change TEXT NOT NULL,
    cause TEXT NOT NULL,
    audit_id TEXT NOT NULL,
    PRIMARY KEY (namespace, worker_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX worker_changes_age ON worker_changes (at_ms);
