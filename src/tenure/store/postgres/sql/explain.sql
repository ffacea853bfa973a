-- name: count_ahead(namespace, queue, type, line, priority, run_at_ms, id, amount)
-- Tasks that come before one in a line, up to an amount.
SELECT count(*)
FROM (
    SELECT 1
    FROM tasks
    WHERE line > 0
      AND namespace = :namespace
      AND queue = :queue
      AND type = :type
      AND line = CAST(:line AS smallint)
      AND (priority, run_at_ms, id)
        < (CAST(:priority AS smallint), CAST(:run_at_ms AS bigint), CAST(:id AS uuid))
    LIMIT CAST(:amount AS integer)
) AS ahead;

-- name: count_served_workers(namespace, queue, type)
-- Active served workers of a queue that offer a type.
SELECT count(*)
FROM leases AS l
JOIN workers AS w ON w.id = l.worker_id
WHERE l.namespace = :namespace
  AND w.queue = :queue
  AND w.mode = 'served'
  AND w.types @> to_jsonb(CAST(:type AS text));

-- name: list_crews(namespace, queue, type, is_run, deaf, now_ms, amount)
-- Active workers of a queue that offer a type, by what they may be given: the first of each
-- kind, and how many there are. A served worker gets no runs. The leases are few and narrow, so they come first; a test compares
-- the CASE with core.worker.health.judge.
SELECT
    g.status, g.health, g.is_full, g.is_guarding, g.alike_count, CAST(g.id AS text), g.name,
    g.slots, g.held_count
FROM (
    SELECT
        c.*,
        count(*) OVER alike AS alike_count,
        row_number() OVER (
            PARTITION BY c.status, c.health, c.is_full, c.is_guarding ORDER BY c.id
        ) AS place
    FROM (
        SELECT
            w.id, w.name, w.status, w.slots,
            CASE
                WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
                WHEN l.failures > 0 THEN 'late'
                WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
                WHEN l.loop_lag_ms > 1000 THEN 'blocked'
                WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
                WHEN l.stuck_count > 0 THEN 'stuck'
                ELSE 'healthy'
            END AS health,
            coalesce(h.held_count, 0) AS held_count,
            coalesce(h.held_count, 0) >= w.slots AS is_full,
            coalesce(h.guarded_count, 0) > 0 AS is_guarding
        FROM leases AS l
        JOIN workers AS w ON w.id = l.worker_id
        LEFT JOIN (
            SELECT
                worker_id, count(*) AS held_count,
                count(*) FILTER (WHERE is_guarded) AS guarded_count
            FROM tasks
            WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
            GROUP BY worker_id
        ) AS h ON h.worker_id = w.id
        WHERE l.namespace = :namespace
          AND w.queue = :queue
          AND w.types @> to_jsonb(CAST(:type AS text))
          AND (NOT CAST(:is_run AS boolean) OR w.mode <> 'served')
    ) AS c
    WINDOW alike AS (PARTITION BY c.status, c.health, c.is_full, c.is_guarding)
) AS g
WHERE g.place <= CAST(:amount AS integer)
ORDER BY g.status, g.health, g.is_full, g.is_guarding, g.id;

-- name: list_ended_workers(namespace, queue, seen_max)
-- The worker of a queue that ended last, searched among the last ones of all queues.
SELECT CAST(e.id AS text), e.name, e.ended_at_ms, e.end_reason
FROM (
    SELECT id, namespace, queue, name, ended_at_ms, end_reason
    FROM workers
    WHERE status = 'offline'
    ORDER BY ended_at_ms DESC
    LIMIT CAST(:seen_max AS integer)
) AS e
WHERE e.namespace = :namespace AND e.queue = :queue
ORDER BY e.ended_at_ms DESC
LIMIT 1;

-- name: list_holders(namespace, queue, amount)
-- The tasks that count towards the limit of a queue, the longest held first.
SELECT
    CAST(t.id AS text), t.type, CAST(t.worker_id AS text), coalesce(w.name, ''), t.handed_at_ms
FROM (
    SELECT id, type, worker_id, handed_at_ms
    FROM tasks
    WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
    ORDER BY handed_at_ms, id
    LIMIT CAST(:amount AS integer)
) AS t
LEFT JOIN workers AS w ON w.id = t.worker_id
ORDER BY t.handed_at_ms, t.id;

-- name: list_near_workers(namespace, queue, type, amount)
-- Active workers that do not fit a task because of their queue or their types: the first of both
-- kinds, and how many there are.
SELECT CAST(n.id AS text), n.name, n.queue, CAST(n.types AS text), n.alike_count
FROM (
    SELECT
        w.id, w.name, w.queue, w.types,
        count(*) OVER (PARTITION BY w.queue = CAST(:queue AS text)) AS alike_count,
        row_number() OVER (PARTITION BY w.queue = CAST(:queue AS text) ORDER BY w.id) AS place
    FROM leases AS l
    JOIN workers AS w ON w.id = l.worker_id
    WHERE l.namespace = :namespace
      AND (w.queue = CAST(:queue AS text)) <> (w.types @> to_jsonb(CAST(:type AS text)))
) AS n
WHERE n.place <= CAST(:amount AS integer)
ORDER BY n.id;
