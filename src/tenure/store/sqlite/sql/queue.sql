-- name: count_depths(namespace, queue, amount)
-- Live tasks by state, for the metrics: exact far beyond the limit of lists, because nothing is
-- grouped where there may be millions.
SELECT :queue, 'pending', count(*)
FROM (
    SELECT 1
    FROM tasks INDEXED BY tasks_claim
    WHERE line > 0 AND namespace = :namespace AND queue = :queue
    LIMIT :amount
)
UNION ALL
SELECT :queue, state, count(*)
FROM (
    SELECT state
    FROM tasks INDEXED BY tasks_held
    WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
    LIMIT :amount
)
GROUP BY state
UNION ALL
SELECT :queue, state, count(*)
FROM (
    SELECT state
    FROM tasks INDEXED BY tasks_resting
    WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue = :queue
    LIMIT :amount
)
GROUP BY state;

-- name: count_queue_tasks(namespace, queue, amount)
-- Live tasks by type and state, from the three indexes that contain all of them by queue; held
-- tasks come first, because millions may wait. Counting stops at an amount.
SELECT :queue, c.type, c.state, count(*)
FROM (
    SELECT type, state
    FROM (
        SELECT type, state
        FROM tasks INDEXED BY tasks_held
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    SELECT type, state
    FROM (
        SELECT type, state
        FROM tasks INDEXED BY tasks_resting
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    SELECT type, state
    FROM (
        SELECT type, 'pending' AS state
        FROM tasks INDEXED BY tasks_claim
        WHERE line > 0 AND namespace = :namespace AND queue = :queue
    )
    LIMIT :amount
) AS c
GROUP BY c.type, c.state;

-- name: find_busy_namespaces(after_name, amount)
-- Namespaces with live tasks, one index probe each.
WITH RECURSIVE busy (name) AS (
    SELECT (SELECT namespace FROM tasks WHERE namespace > :after_name ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT namespace FROM tasks WHERE namespace > b.name ORDER BY namespace LIMIT 1)
    FROM busy AS b
    WHERE b.name IS NOT NULL
    LIMIT :amount
)
SELECT name FROM busy WHERE name IS NOT NULL;

-- name: find_queues(namespace, after_name, amount)
-- Queues with settings or live tasks, by name: one probe per queue of each index that has them.
WITH RECURSIVE held (name) AS (
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_held
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_held
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue > h.name
        ORDER BY queue
        LIMIT 1
    )
    FROM held AS h
    WHERE h.name IS NOT NULL
    LIMIT :amount
), resting (name) AS (
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_resting
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_resting
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue > r.name
        ORDER BY queue
        LIMIT 1
    )
    FROM resting AS r
    WHERE r.name IS NOT NULL
    LIMIT :amount
), claimable (name) AS (
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_claim
        WHERE line > 0 AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT queue
        FROM tasks INDEXED BY tasks_claim
        WHERE line > 0 AND namespace = :namespace AND queue > c.name
        ORDER BY queue
        LIMIT 1
    )
    FROM claimable AS c
    WHERE c.name IS NOT NULL
    LIMIT :amount
), braked (name) AS (
    SELECT name
    FROM queues
    WHERE namespace = :namespace AND name > :after_name
    ORDER BY name
    LIMIT :amount
)
SELECT name
FROM (
    SELECT name FROM held
    UNION
    SELECT name FROM resting
    UNION
    SELECT name FROM claimable
    UNION
    SELECT name FROM braked
)
WHERE name IS NOT NULL
ORDER BY name
LIMIT :amount;

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

-- name: lock_queues(namespace, name)
SELECT namespace, name, is_paused, concurrency_max, version
FROM queues
WHERE namespace = :namespace AND name = :name;

-- name: now_ms()
-- The injected clock gives the time here; see SqliteTx.now_ms.
SELECT NULL WHERE 0;

-- name: read_namespaces(name)
SELECT name, created_at_ms, is_disabled
FROM namespaces
WHERE name = :name;

-- name: read_queues(namespace, name)
SELECT namespace, name, is_paused, concurrency_max, version
FROM queues
WHERE namespace = :namespace AND name = :name;

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
