-- kind: expand
-- breaking: no

-- When workers registered, connected, were drained and ended, and why: for people, kept for a week,
-- while the workers themselves are kept for a day.
CREATE TABLE worker_changes (
    namespace text NOT NULL,
    worker_id uuid NOT NULL,
    id uuid NOT NULL,
    at_ms bigint NOT NULL,
    change text NOT NULL,
    cause text NOT NULL,
    audit_id text NOT NULL,
    PRIMARY KEY (namespace, worker_id, id)
);
CREATE INDEX worker_changes_age ON worker_changes (at_ms);
