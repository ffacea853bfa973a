-- name: delete_worker_changes(before_ms, amount)
DELETE FROM worker_changes
WHERE (namespace, worker_id, id) IN (
    SELECT namespace, worker_id, id
    FROM worker_changes
    WHERE at_ms < :before_ms
    ORDER BY at_ms
    LIMIT :amount
)
RETURNING id;

-- name: insert_worker_changes(namespace, worker_id, id, at_ms, change, cause, audit_id)
INSERT INTO worker_changes (namespace, worker_id, id, at_ms, change, cause, audit_id)
VALUES (:namespace, :worker_id, :id, :at_ms, :change, :cause, :audit_id);

-- name: list_worker_changes(namespace, worker_id, before_id, amount)
SELECT id, namespace, worker_id, at_ms, change, cause, audit_id
FROM worker_changes
WHERE namespace = :namespace AND worker_id = :worker_id AND id < :before_id
ORDER BY id DESC
LIMIT :amount;

-- name: read_drains(namespace, worker_id)
-- When each of some workers began to drain; one that never did is missing.
SELECT :worker_id, at_ms, audit_id
FROM worker_changes
WHERE namespace = :namespace AND worker_id = :worker_id AND change = 'draining'
ORDER BY id DESC
LIMIT 1;
