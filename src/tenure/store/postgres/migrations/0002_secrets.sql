-- kind: expand
-- breaking: no

-- What all servers on this database must agree on and nobody else may know.
CREATE TABLE secrets (
    name text PRIMARY KEY,
    value bytea NOT NULL,
    created_at_ms bigint NOT NULL
);

-- A request that names no namespace means this one. It is as old as the database.
INSERT INTO namespaces (name, created_at_ms)
SELECT 'default/default', applied_at_ms FROM schema_migrations WHERE number = 1
ON CONFLICT (name) DO NOTHING;
