-- name: create_schema()
-- Run only if there is none: it needs a right on the database even if the schema exists.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: insert_migration(number, name, checksum, is_breaking, applied_at_ms)
INSERT INTO schema_migrations (number, name, checksum, is_breaking, applied_at_ms)
VALUES (:number, :name, :checksum, :is_breaking, :applied_at_ms);

-- name: list_migrations()
SELECT number, name, checksum, is_breaking FROM schema_migrations ORDER BY number;

-- name: list_schemas(name)
-- The named schema and those of the search path, in its order, and which of them have our tables.
SELECT
    CAST(n.nspname AS text) AS name,
    EXISTS (
        SELECT FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'is_breaking'
        WHERE c.relnamespace = n.oid AND c.relname = 'schema_migrations'
    ) AS has_tables,
    p.place IS NOT NULL AS is_on_path
FROM pg_namespace AS n
LEFT JOIN unnest(current_schemas(false)) WITH ORDINALITY AS p (name, place) ON p.name = n.nspname
WHERE p.place IS NOT NULL OR n.nspname = CAST(:name AS text)
ORDER BY p.place;

-- name: prepare_migrations()
CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    is_breaking boolean NOT NULL,
    applied_at_ms bigint NOT NULL
);

-- name: use_schema()
-- Migrations name tables without a schema. The path ends with the transaction.
SELECT set_config(
    'search_path', concat_ws(', ', '{schema}', nullif(current_setting('search_path'), '')), true
);
