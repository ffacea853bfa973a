-- name: insert_namespaces(name, created_at_ms)
INSERT INTO namespaces (name, created_at_ms)
VALUES (:name, :created_at_ms)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: list_disabled_namespaces()
SELECT name FROM namespaces WHERE is_disabled <> 0 ORDER BY name;

-- name: list_namespaces(after_name, amount)
SELECT name, created_at_ms, is_disabled
FROM namespaces
WHERE name > :after_name
ORDER BY name
LIMIT :amount;

-- name: list_queues(namespace, name)
SELECT namespace, name, is_paused, concurrency_max, version
FROM queues
WHERE namespace = :namespace
  AND (:name = '' OR name = :name)
ORDER BY name;

-- name: lock_queues(namespace, name)
SELECT namespace, name, is_paused, concurrency_max, version
FROM queues
WHERE namespace = :namespace AND name = :name;

-- name: now_ms()
-- The injected clock is the time here; see SqliteTx.now_ms.
SELECT NULL WHERE 0;

-- name: read_namespaces(name)
SELECT name, created_at_ms, is_disabled
FROM namespaces
WHERE name = :name;

-- name: save_queues(namespace, name, is_paused, concurrency_max, version)
INSERT INTO queues (namespace, name, is_paused, concurrency_max, version)
VALUES (:namespace, :name, :is_paused, :concurrency_max, :version)
ON CONFLICT (namespace, name) DO UPDATE
SET is_paused = excluded.is_paused,
    concurrency_max = excluded.concurrency_max,
    version = version + 1
RETURNING namespace;

-- name: set_namespace(name, is_disabled)
UPDATE namespaces
SET is_disabled = :is_disabled
WHERE name = :name
RETURNING name;
