-- name: change_workers(worker_id, types, slots)
-- Under the lock of the worker; its session was raised by the same transaction.
UPDATE workers SET types = :types, slots = :slots WHERE id = :worker_id RETURNING id;

-- name: delete_endpoints(worker_id)
DELETE FROM endpoints WHERE worker_id = :worker_id RETURNING worker_id;

-- name: find_endpoint(namespace, name)
SELECT
    worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, created_at_ms, version, content
FROM endpoints
WHERE namespace = :namespace AND name = :name;

-- name: insert_endpoints(worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error, last_error_at_ms, created_at_ms, content)
INSERT INTO endpoints (
    worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, created_at_ms, content, version
)
VALUES (
    :worker_id, :namespace, :name, :queue, :is_deleting, :pause, :failure_count, :held_until_ms,
    :last_error, :last_error_at_ms, :created_at_ms, :content, 0
);

-- name: list_endpoints(namespace, after_name, amount)
SELECT
    worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, created_at_ms, version, content
FROM endpoints
WHERE namespace = :namespace AND name > :after_name
ORDER BY name
LIMIT :amount;

-- name: list_leaving_endpoints(amount)
-- Those that are deleted, or whose worker an operator has ended.
SELECT e.worker_id, e.namespace
FROM endpoints AS e
JOIN workers AS w ON w.id = e.worker_id
WHERE e.is_deleting = 1 OR w.status = 'offline'
LIMIT :amount;

-- name: lock_endpoints(worker_id)
SELECT
    worker_id, namespace, name, queue, is_deleting, pause, failure_count, held_until_ms, last_error,
    last_error_at_ms, created_at_ms, version, content
FROM endpoints
WHERE worker_id = :worker_id;

-- name: update_endpoints(worker_id, version, is_deleting, pause, failure_count, held_until_ms, last_error, last_error_at_ms, content)
UPDATE endpoints
SET is_deleting = :is_deleting,
    pause = :pause,
    failure_count = :failure_count,
    held_until_ms = :held_until_ms,
    last_error = :last_error,
    last_error_at_ms = :last_error_at_ms,
    content = :content,
    version = :version + 1
WHERE worker_id = :worker_id AND version = :version
RETURNING worker_id;
