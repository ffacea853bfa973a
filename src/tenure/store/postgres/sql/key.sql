-- name: delete_keys(namespace, key, task_id)
DELETE FROM idempotency_keys AS k
USING unnest(
    CAST(:namespace AS text[]), CAST(:key AS text[]), CAST(:task_id AS uuid[])
) AS g (namespace, key, task_id)
WHERE k.namespace = g.namespace AND k.key = g.key AND k.task_id = g.task_id
RETURNING k.key;

-- name: delete_old_keys(before_ms, amount)
-- A key outlives its task by a day: the key is old, and its task neither lives nor ended recently.
DELETE FROM idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT k.ctid
    FROM idempotency_keys AS k
    WHERE k.created_at_ms < :before_ms
      AND NOT EXISTS (
        SELECT FROM tasks AS t WHERE t.namespace = k.namespace AND t.id = k.task_id
      )
      AND NOT EXISTS (
        SELECT FROM history AS h
        WHERE h.namespace = k.namespace AND h.id = k.task_id
          AND h.finished_at_ms >= CAST(:before_ms AS bigint)
      )
    ORDER BY k.created_at_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING key;

-- name: insert_keys(namespace, key, task_id, digest, created_at_ms)
INSERT INTO idempotency_keys (namespace, key, task_id, digest, created_at_ms)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:key AS text[]), CAST(:task_id AS uuid[]),
    CAST(:digest AS bytea[]), CAST(:created_at_ms AS bigint[])
);

-- name: lock_keys(namespace, key)
-- With the end of the key's task, which distinguishes an old key from a live one.
SELECT
    k.namespace, k.key, CAST(k.task_id AS text), k.digest,
    (
        SELECT h.finished_at_ms FROM history AS h
        WHERE h.namespace = k.namespace AND h.id = k.task_id
    ),
    EXISTS (SELECT FROM tasks AS t WHERE t.namespace = k.namespace AND t.id = k.task_id)
FROM unnest(CAST(:namespace AS text[]), CAST(:key AS text[])) AS d (namespace, key)
CROSS JOIN LATERAL (
    SELECT *
    FROM idempotency_keys AS c
    WHERE c.namespace = d.namespace AND c.key = d.key
    FOR UPDATE
) AS k;
