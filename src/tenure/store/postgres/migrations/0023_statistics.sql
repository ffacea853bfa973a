-- kind: expand
-- breaking: no

-- What each server has counted of a queue in one minute; an empty queue is the whole namespace. The
-- body is packed by queue type (engine/statistics), and no statement looks inside. Kept for a week.
CREATE TABLE statistics (
    namespace text NOT NULL,
    queue text NOT NULL,
    at_ms bigint NOT NULL,
    server_id uuid NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (namespace, queue, at_ms, server_id)
);
CREATE INDEX statistics_age ON statistics (at_ms);
