-- kind: expand
-- breaking: no

-- From where a worker is driven that does not call by itself: one server has its seat. Taking one
-- raises the worker's session_no. `caller` is the host that registered it. What the driver saw last is for people.
CREATE TABLE seats (
    worker_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    mode text NOT NULL,
    address text NOT NULL,
    caller text NOT NULL,
    is_open boolean NOT NULL,
    server_id uuid,
    session_no integer NOT NULL,
    taken_at_ms bigint NOT NULL,
    call_at_ms bigint NOT NULL,
    call_ms bigint NOT NULL,
    call_error text NOT NULL,
    unconfirmed_count integer NOT NULL,
    kill_count integer NOT NULL,
    CONSTRAINT only_open_ones_are_driven CHECK (is_open OR server_id IS NULL)
);
CREATE INDEX seats_open ON seats (server_id, worker_id) WHERE is_open;

-- When a server last showed that it drives its seats; an older server, and one that stops, does not.
ALTER TABLE servers ADD COLUMN driver_at_ms bigint;
