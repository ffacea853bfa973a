-- name: delete_keys(namespace, key, task_id)
DELETE FROM idempotency_keys
WHERE namespace = :namespace AND key = :key AND task_id = :task_id
RETURNING key;

-- name: delete_old_keys(before_ms, amount)
-- A key outlives its task by a day: the key is old, and its task neither lives nor ended recently.
DELETE FROM idempotency_keys
WHERE (namespace, key) IN (
    SELECT k.namespace, k.key
    FROM idempotency_keys AS k
    WHERE k.created_at_ms < :before_ms
      AND NOT EXISTS (
        SELECT 1 FROM tasks AS t WHERE t.namespace = k.namespace AND t.id = k.task_id
      )
      AND NOT EXISTS (
        SELECT 1 FROM history AS h
        WHERE h.namespace = k.namespace AND h.id = k.task_id
          AND h.finished_at_ms >= :before_ms
      )
    ORDER BY k.created_at_ms
    LIMIT :amount
)
RETURNING key;

-- name: insert_keys(namespace, key, task_id, digest, created_at_ms)
INSERT INTO idempotency_keys (namespace, key, task_id, digest, created_at_ms)
VALUES (:namespace, :key, :task_id, :digest, :created_at_ms);

-- name: lock_keys(namespace, key)
-- With the end of the key's task, which distinguishes an old key from a live one.
SELECT
    k.namespace, k.key, k.task_id, k.digest,
    (
        SELECT h.finished_at_ms FROM history AS h
        WHERE h.namespace = k.namespace AND h.id = k.task_id
    ),
    EXISTS (SELECT 1 FROM tasks AS t WHERE t.namespace = k.namespace AND t.id = k.task_id)
FROM idempotency_keys AS k
WHERE k.namespace = :namespace AND k.key = :key;
