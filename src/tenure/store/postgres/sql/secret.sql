-- name: insert_secrets(name, value, created_at_ms)
-- The second server waits for the first to commit, and its next statement reads the first one's
-- row.
INSERT INTO secrets (name, value, created_at_ms)
SELECT *
FROM unnest(CAST(:name AS text[]), CAST(:value AS bytea[]), CAST(:created_at_ms AS bigint[]))
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: list_secrets()
SELECT name, value, created_at_ms FROM secrets ORDER BY name;
