-- name: count_live_api_keys(now_ms)
SELECT count(*)
FROM api_keys
WHERE revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms);

-- name: find_api_key()
SELECT id FROM api_keys LIMIT 1;

-- name: insert_api_keys(key_id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms, revoked_at_ms)
INSERT INTO api_keys (
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms
)
VALUES (
    :key_id, :name, :role, :namespaces, :secret_digest, :created_at_ms, :created_by, :expires_at_ms,
    :revoked_at_ms
);

-- name: list_api_keys(scope, before_ms, before_key, amount)
-- A key is in a scope if none of its namespaces is outside, and it is not for all of them.
SELECT
    k.id, k.name, k.role, k.namespaces, k.secret_digest, k.created_at_ms, k.created_by,
    k.expires_at_ms, k.revoked_at_ms, k.last_used_at_ms
FROM api_keys AS k
WHERE (k.created_at_ms, k.id) < (:before_ms, :before_key)
  AND (
    :scope = '[]'
    OR (
        k.namespaces <> '[]'
        AND NOT EXISTS (
            SELECT 1 FROM json_each(k.namespaces) AS n
            WHERE n.value NOT IN (SELECT s.value FROM json_each(:scope) AS s)
        )
    )
  )
ORDER BY k.created_at_ms DESC, k.id DESC
LIMIT :amount;

-- name: list_live_api_keys(now_ms)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
ORDER BY id;

-- name: lock_access()
-- There is one writer.
SELECT version FROM access WHERE id = 1;

-- name: lock_api_keys(key_id)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE id = :key_id;

-- name: raise_access()
UPDATE access SET version = version + 1 WHERE id = 1 RETURNING version;

-- name: read_access()
SELECT version FROM access WHERE id = 1;

-- name: read_api_keys(key_id)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE id = :key_id;

-- name: revoke_api_keys(key_id, revoked_at_ms)
UPDATE api_keys
SET revoked_at_ms = :revoked_at_ms
WHERE id = :key_id AND revoked_at_ms IS NULL
RETURNING id;

-- name: touch_api_keys(key_id, last_used_at_ms)
UPDATE api_keys
SET last_used_at_ms = :last_used_at_ms
WHERE id = :key_id AND (last_used_at_ms IS NULL OR last_used_at_ms < :last_used_at_ms)
RETURNING id;
