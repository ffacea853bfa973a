-- name: create_schema()
-- A file has one schema.
SELECT 1 WHERE 0;

-- name: insert_migration(number, name, checksum, is_breaking, applied_at_ms)
INSERT INTO schema_migrations (number, name, checksum, is_breaking, applied_at_ms)
VALUES (:number, :name, :checksum, :is_breaking, :applied_at_ms);

-- name: list_migrations()
SELECT number, name, checksum, is_breaking FROM schema_migrations ORDER BY number;

-- name: list_schemas(name)
SELECT :name, true, true WHERE 0;

-- name: prepare_migrations()
CREATE TABLE IF NOT EXISTS schema_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    is_breaking INTEGER NOT NULL,
    applied_at_ms INTEGER NOT NULL
) STRICT;

-- name: use_schema()
SELECT 1 WHERE 0;
