-- name: count_depths(namespace, queue, amount)
-- Live tasks by state, for the metrics: exact far beyond the limit of lists, because nothing is
-- grouped where there may be millions.
SELECT d.queue, c.state, c.count
FROM unnest(CAST(:namespace AS text[]), CAST(:queue AS text[])) AS d (namespace, queue)
CROSS JOIN LATERAL (
    SELECT 'pending' AS state, count(*) AS count
    FROM (
        SELECT 1
        FROM tasks AS t
        WHERE t.line > 0 AND t.namespace = d.namespace AND t.queue = d.queue
        LIMIT CAST(:amount AS integer)
    ) AS s
    UNION ALL
    SELECT s.state, count(*)
    FROM (
        SELECT t.state
        FROM tasks AS t
        WHERE t.worker_id IS NOT NULL AND t.namespace = d.namespace AND t.queue = d.queue
        LIMIT CAST(:amount AS integer)
    ) AS s
    GROUP BY s.state
    UNION ALL
    SELECT s.state, count(*)
    FROM (
        SELECT t.state
        FROM tasks AS t
        WHERE t.line = 0
          AND t.worker_id IS NULL
          AND t.namespace = d.namespace
          AND t.queue = d.queue
        LIMIT CAST(:amount AS integer)
    ) AS s
    GROUP BY s.state
) AS c;

-- name: count_queue_tasks(namespace, queue, amount)
-- Live tasks by type and state, from the three indexes that contain all of them by queue; held
-- tasks come first, because millions may wait. Counting stops at an amount.
SELECT d.queue, c.type, c.state, count(*)
FROM unnest(CAST(:namespace AS text[]), CAST(:queue AS text[])) AS d (namespace, queue)
CROSS JOIN LATERAL (
    (
        SELECT t.type, t.state
        FROM tasks AS t
        WHERE t.worker_id IS NOT NULL AND t.namespace = d.namespace AND t.queue = d.queue
    )
    UNION ALL
    (
        SELECT t.type, t.state
        FROM tasks AS t
        WHERE t.line = 0
          AND t.worker_id IS NULL
          AND t.namespace = d.namespace
          AND t.queue = d.queue
    )
    UNION ALL
    (
        SELECT t.type, 'pending'
        FROM tasks AS t
        WHERE t.line > 0 AND t.namespace = d.namespace AND t.queue = d.queue
    )
    LIMIT CAST(:amount AS integer)
) AS c
GROUP BY d.queue, c.type, c.state;

-- name: find_busy_namespaces(after_name, amount)
-- Namespaces with live tasks, one index probe each.
WITH RECURSIVE busy AS (
    (
        SELECT namespace AS name
        FROM tasks
        WHERE namespace > CAST(:after_name AS text)
        ORDER BY namespace
        LIMIT 1
    )
    UNION ALL
    SELECT n.name
    FROM busy AS b
    CROSS JOIN LATERAL (
        SELECT namespace AS name
        FROM tasks
        WHERE namespace > b.name
        ORDER BY namespace
        LIMIT 1
    ) AS n
)
SELECT name FROM busy LIMIT CAST(:amount AS integer);

-- name: find_queues(namespace, after_name, amount)
-- Queues with settings or live tasks, by name: one probe per queue of each index that has them.
-- The order is that of the indexes, which is the database's own.
WITH RECURSIVE held AS (
    (
        SELECT queue AS name
        FROM tasks
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT n.name
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT queue AS name
        FROM tasks
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue > h.name
        ORDER BY queue
        LIMIT 1
    ) AS n
), resting AS (
    (
        SELECT queue AS name
        FROM tasks
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT n.name
    FROM resting AS r
    CROSS JOIN LATERAL (
        SELECT queue AS name
        FROM tasks
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue > r.name
        ORDER BY queue
        LIMIT 1
    ) AS n
), claimable AS (
    (
        SELECT queue AS name
        FROM tasks
        WHERE line > 0 AND namespace = :namespace AND queue > :after_name
        ORDER BY queue
        LIMIT 1
    )
    UNION ALL
    SELECT n.name
    FROM claimable AS c
    CROSS JOIN LATERAL (
        SELECT queue AS name
        FROM tasks
        WHERE line > 0 AND namespace = :namespace AND queue > c.name
        ORDER BY queue
        LIMIT 1
    ) AS n
)
SELECT name
FROM (
    (SELECT name FROM held LIMIT CAST(:amount AS integer))
    UNION
    (SELECT name FROM resting LIMIT CAST(:amount AS integer))
    UNION
    (SELECT name FROM claimable LIMIT CAST(:amount AS integer))
    UNION
    (
        SELECT name
        FROM queues
        WHERE namespace = :namespace AND name > :after_name
        ORDER BY name
        LIMIT CAST(:amount AS integer)
    )
) AS found
ORDER BY name
LIMIT CAST(:amount AS integer);

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

-- name: read_queues(namespace, name)
SELECT q.namespace, q.name, q.is_paused, q.concurrency_max, q.version
FROM unnest(CAST(:namespace AS text[]), CAST(:name AS text[])) AS d (namespace, name)
JOIN queues AS q ON q.namespace = d.namespace AND q.name = d.name;

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
