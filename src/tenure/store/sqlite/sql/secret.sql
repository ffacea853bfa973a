-- name: insert_secrets(name, value, created_at_ms)
INSERT INTO secrets (name, value, created_at_ms)
VALUES (:name, :value, :created_at_ms)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: list_secrets()
SELECT name, value, created_at_ms FROM secrets ORDER BY name;
