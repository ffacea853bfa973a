-- kind: expand
-- breaking: no

-- URLs that tasks are pushed to, each beside a worker row of mode callback, whose lock protects all but the
-- failures. `content` has the URL, headers, times and secrets.
CREATE TABLE endpoints (
    worker_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    queue text NOT NULL,
    is_deleting boolean NOT NULL,
    pause text,
    failure_count bigint NOT NULL,
    held_until_ms bigint NOT NULL,
    last_error text NOT NULL,
    last_error_at_ms bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    version bigint NOT NULL,
    content bytea NOT NULL
);
CREATE UNIQUE INDEX endpoints_name ON endpoints (namespace, name);
