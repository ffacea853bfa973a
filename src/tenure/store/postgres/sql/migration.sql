-- name: insert_migration(number, name, checksum, is_breaking, applied_at_ms)
INSERT INTO schema_migrations (number, name, checksum, is_breaking, applied_at_ms)
VALUES (:number, :name, :checksum, :is_breaking, :applied_at_ms);

-- name: list_migrations()
SELECT number, name, checksum, is_breaking FROM schema_migrations ORDER BY number;

-- name: prepare_migrations()
CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    is_breaking boolean NOT NULL,
    applied_at_ms bigint NOT NULL
);
