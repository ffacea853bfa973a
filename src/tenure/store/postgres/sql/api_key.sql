-- name: count_live_api_keys(now_ms)
SELECT count(*)
FROM api_keys
WHERE revoked_at_ms IS NULL
  AND (expires_at_ms IS NULL OR expires_at_ms > CAST(:now_ms AS bigint));

-- name: find_api_key()
SELECT id FROM api_keys LIMIT 1;

-- name: insert_api_keys(key_id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms, revoked_at_ms)
INSERT INTO api_keys (
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms
)
SELECT *
FROM unnest(
    CAST(:key_id AS text[]), CAST(:name AS text[]), CAST(:role AS text[]),
    CAST(:namespaces AS text[]), CAST(:secret_digest AS bytea[]), CAST(:created_at_ms AS bigint[]),
    CAST(:created_by AS text[]), CAST(:expires_at_ms AS bigint[]), CAST(:revoked_at_ms AS bigint[])
);

-- name: list_api_keys(scope, before_ms, before_key, amount)
-- A key is in a scope if none of its namespaces is outside, and it is not for all of them.
SELECT
    k.id, k.name, k.role, k.namespaces, k.secret_digest, k.created_at_ms, k.created_by,
    k.expires_at_ms, k.revoked_at_ms, k.last_used_at_ms
FROM api_keys AS k
WHERE (k.created_at_ms, k.id) < (CAST(:before_ms AS bigint), CAST(:before_key AS text))
  AND (
    CAST(:scope AS text) = '[]'
    OR (
        k.namespaces <> '[]'
        AND NOT EXISTS (
            SELECT FROM json_array_elements_text(CAST(k.namespaces AS json)) AS n (name)
            WHERE n.name NOT IN (
                SELECT s.name
                FROM json_array_elements_text(CAST(CAST(:scope AS text) AS json)) AS s (name)
            )
        )
    )
  )
ORDER BY k.created_at_ms DESC, k.id DESC
LIMIT CAST(:amount AS integer);

-- name: list_live_api_keys(now_ms)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE revoked_at_ms IS NULL
  AND (expires_at_ms IS NULL OR expires_at_ms > CAST(:now_ms AS bigint))
ORDER BY id;

-- name: lock_access()
SELECT version FROM access WHERE id = 1 FOR UPDATE;

-- name: lock_api_keys(key_id)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE id = ANY(CAST(:key_id AS text[]))
ORDER BY id
FOR UPDATE;

-- name: raise_access()
UPDATE access SET version = version + 1 WHERE id = 1 RETURNING version;

-- name: read_access()
SELECT version FROM access WHERE id = 1;

-- name: read_api_keys(key_id)
SELECT
    id, name, role, namespaces, secret_digest, created_at_ms, created_by, expires_at_ms,
    revoked_at_ms, last_used_at_ms
FROM api_keys
WHERE id = ANY(CAST(:key_id AS text[]))
ORDER BY id;

-- name: revoke_api_keys(key_id, revoked_at_ms)
UPDATE api_keys AS k
SET revoked_at_ms = g.revoked_at_ms
FROM unnest(CAST(:key_id AS text[]), CAST(:revoked_at_ms AS bigint[])) AS g (id, revoked_at_ms)
WHERE k.id = g.id AND k.revoked_at_ms IS NULL
RETURNING k.id;

-- name: touch_api_keys(key_id, last_used_at_ms)
UPDATE api_keys AS k
SET last_used_at_ms = g.last_used_at_ms
FROM unnest(CAST(:key_id AS text[]), CAST(:last_used_at_ms AS bigint[])) AS g (id, last_used_at_ms)
WHERE k.id = g.id AND (k.last_used_at_ms IS NULL OR k.last_used_at_ms < g.last_used_at_ms)
RETURNING k.id;
