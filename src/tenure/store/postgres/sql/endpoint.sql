-- name: change_workers(worker_id, types, slots)
-- Under the lock of the worker; its session was raised by the same transaction.
UPDATE workers AS w
SET types = CAST(g.types AS jsonb), slots = g.slots
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:types AS text[]), CAST(:slots AS integer[])
) AS g (worker_id, types, slots)
WHERE w.id = g.worker_id
RETURNING CAST(w.id AS text);

-- name: delete_endpoints(worker_id)
DELETE FROM endpoints AS e
USING unnest(CAST(:worker_id AS uuid[])) AS g (worker_id)
WHERE e.worker_id = g.worker_id
RETURNING CAST(e.worker_id AS text);

-- name: find_endpoint(namespace, name)
SELECT
    CAST(worker_id AS text), namespace, name, queue, is_deleting, pause, failure_count,
    held_until_ms, last_error, last_error_at_ms, created_at_ms, version, content
FROM endpoints
WHERE namespace = :namespace AND name = :name;

-- name: insert_endpoints(worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error, last_error_at_ms, created_at_ms, content)
INSERT INTO endpoints (
    worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, created_at_ms, content, version
)
SELECT g.*, 0
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:namespace AS text[]), CAST(:name AS text[]),
    CAST(:queue AS text[]), CAST(:is_deleting AS boolean[]), CAST(:pause AS text[]),
    CAST(:failure_count AS integer[]), CAST(:held_until_ms AS bigint[]),
    CAST(:last_error AS text[]), CAST(:last_error_at_ms AS bigint[]),
    CAST(:created_at_ms AS bigint[]), CAST(:content AS bytea[])
) AS g;

-- name: list_endpoints(namespace, after_name, amount)
SELECT
    CAST(worker_id AS text), namespace, name, queue, is_deleting, pause, failure_count,
    held_until_ms, last_error, last_error_at_ms, created_at_ms, version, content
FROM endpoints
WHERE namespace = :namespace AND name > CAST(:after_name AS text)
ORDER BY name
LIMIT CAST(:amount AS integer);

-- name: list_leaving_endpoints(amount)
-- Those that are deleted, or whose worker an operator has ended.
SELECT CAST(e.worker_id AS text), e.namespace
FROM endpoints AS e
JOIN workers AS w ON w.id = e.worker_id
WHERE e.is_deleting OR w.status = 'offline'
LIMIT CAST(:amount AS integer);

-- name: lock_endpoints(worker_id)
SELECT
    CAST(e.worker_id AS text), e.namespace, e.name, e.queue, e.is_deleting, e.pause,
    e.failure_count, e.held_until_ms, e.last_error, e.last_error_at_ms, e.created_at_ms, e.version,
    e.content
FROM endpoints AS e
WHERE e.worker_id = ANY (CAST(:worker_id AS uuid[]))
ORDER BY e.worker_id
FOR UPDATE OF e;

-- name: update_endpoints(worker_id, version, is_deleting, pause, failure_count, held_until_ms, last_error, last_error_at_ms, content)
UPDATE endpoints AS e
SET is_deleting = g.is_deleting,
    pause = g.pause,
    failure_count = g.failure_count,
    held_until_ms = g.held_until_ms,
    last_error = g.last_error,
    last_error_at_ms = g.last_error_at_ms,
    content = g.content,
    version = e.version + 1
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:version AS integer[]), CAST(:is_deleting AS boolean[]),
    CAST(:pause AS text[]), CAST(:failure_count AS integer[]), CAST(:held_until_ms AS bigint[]),
    CAST(:last_error AS text[]), CAST(:last_error_at_ms AS bigint[]), CAST(:content AS bytea[])
) AS g (
    worker_id, version, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, content
)
WHERE e.worker_id = g.worker_id AND e.version = g.version
RETURNING CAST(e.worker_id AS text);
