-- kind: expand
-- breaking: no

-- One row, which whoever changes keys or namespaces locks first: its version tells the other
-- servers that there is something new.
CREATE TABLE access (
    id smallint PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL
);

INSERT INTO access (id, version) VALUES (1, 0);

-- A revoked key keeps its row: a server that has ever had a key is never open again.
CREATE TABLE api_keys (
    id text COLLATE "C" PRIMARY KEY CHECK (length(id) = 16),
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('admin', 'client', 'worker', 'viewer')),
    namespaces text NOT NULL,
    secret_digest bytea NOT NULL CHECK (length(secret_digest) = 32),
    created_at_ms bigint NOT NULL,
    created_by text NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint,
    last_used_at_ms bigint
);

CREATE INDEX api_keys_newest ON api_keys (created_at_ms, id);

CREATE TABLE audit (
    id uuid PRIMARY KEY,
    at_ms bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    namespaces text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL
);

CREATE INDEX audit_old ON audit (at_ms);
