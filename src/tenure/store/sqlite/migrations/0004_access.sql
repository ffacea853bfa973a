-- kind: expand
-- breaking: no

-- One row, which whoever changes keys or namespaces locks first: its version tells the other
-- servers that there is something new.
CREATE TABLE access (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
) STRICT;

INSERT INTO access (id, version) VALUES (1, 0);

-- A revoked key keeps its row: a server that has ever had a key is never open again.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('admin', 'client', 'worker', 'viewer')),
    namespaces TEXT NOT NULL,
    secret_digest BLOB NOT NULL CHECK (length(secret_digest) = 32),
    created_at_ms INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER,
    last_used_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_newest ON api_keys (created_at_ms, id);

CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    namespaces TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_old ON audit (at_ms);
