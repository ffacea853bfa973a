-- name: insert_namespaces(name, created_at_ms)
INSERT INTO namespaces (name, created_at_ms)
SELECT * FROM unnest(CAST(:name AS text[]), CAST(:created_at_ms AS bigint[]))
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: list_disabled_namespaces()
SELECT name FROM namespaces WHERE is_disabled ORDER BY name COLLATE "C";

-- name: list_namespaces(after_name, amount)
SELECT name, created_at_ms, is_disabled
FROM namespaces
WHERE name COLLATE "C" > :after_name
ORDER BY name COLLATE "C"
LIMIT CAST(:amount AS integer);

-- name: list_queues(namespace, name)
SELECT namespace, name, is_paused, concurrency_max, version
FROM queues
WHERE namespace = :namespace
  AND (CAST(:name AS text) = '' OR name = :name)
ORDER BY name;

-- name: lock_queues(namespace, name)
SELECT q.namespace, q.name, q.is_paused, q.concurrency_max, q.version
FROM unnest(CAST(:namespace AS text[]), CAST(:name AS text[])) AS d (namespace, name)
JOIN queues AS q ON q.namespace = d.namespace AND q.name = d.name
ORDER BY q.namespace, q.name
FOR UPDATE OF q;

-- name: now_ms()
SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint);

-- name: read_namespaces(name)
SELECT name, created_at_ms, is_disabled
FROM namespaces
WHERE name = ANY(CAST(:name AS text[]));

-- name: save_queues(namespace, name, is_paused, concurrency_max, version)
INSERT INTO queues AS q (namespace, name, is_paused, concurrency_max, version)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:name AS text[]), CAST(:is_paused AS boolean[]),
    CAST(:concurrency_max AS integer[]), CAST(:version AS integer[])
)
ON CONFLICT (namespace, name) DO UPDATE
SET is_paused = EXCLUDED.is_paused,
    concurrency_max = EXCLUDED.concurrency_max,
    version = q.version + 1
RETURNING namespace;

-- name: set_namespace(name, is_disabled)
UPDATE namespaces AS n
SET is_disabled = g.is_disabled
FROM unnest(CAST(:name AS text[]), CAST(:is_disabled AS boolean[])) AS g (name, is_disabled)
WHERE n.name = g.name
RETURNING n.name;
