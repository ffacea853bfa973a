-- kind: expand
-- breaking: no

-- What each server has counted of a queue in one minute; an empty queue is the whole namespace. The
-- body is packed by queue type (engine/statistics), and no statement looks inside. Kept for a week.
CREATE TABLE statistics (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    server_id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (namespace, queue, at_ms, server_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX statistics_age ON statistics (at_ms);
