-- kind: expand
-- breaking: no

-- From where a worker is driven that does not call by itself: one server has its seat. Taking one
-- raises the worker's session_no. `caller` is the host that registered it. What the driver saw last is for people.
CREATE TABLE seats (
    worker_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    mode TEXT NOT NULL,
    address TEXT NOT NULL,
    caller TEXT NOT NULL,
    is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
    server_id TEXT,
    session_no INTEGER NOT NULL,
    taken_at_ms INTEGER NOT NULL,
    call_at_ms INTEGER NOT NULL,
    call_ms INTEGER NOT NULL,
    call_error TEXT NOT NULL,
    unconfirmed_count INTEGER NOT NULL,
    kill_count INTEGER NOT NULL,
    CONSTRAINT only_open_ones_are_driven CHECK (is_open = 1 OR server_id IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX seats_open ON seats (server_id, worker_id) WHERE is_open = 1;

-- When a server last showed that it drives its seats; an older server, and one that stops, does not.
ALTER TABLE servers ADD COLUMN driver_at_ms INTEGER;
