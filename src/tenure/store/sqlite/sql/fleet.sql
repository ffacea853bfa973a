-- name: list_fleet(namespace, deaf, now_ms, held_max, amount)
-- Active workers with what they hold: one index probe each, and narrow rows. A test compares the CASE
-- with core.worker.health.judge.
SELECT
    w.id, w.name, w.status,
    CASE
        WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
        WHEN :now_ms - l.beat_at_ms >= 2 * max(1, l.lease_ms / 3) THEN 'late'
        WHEN l.loop_lag_ms > 1000 THEN 'blocked'
        WHEN EXISTS (SELECT 1 FROM json_each(:deaf) AS d WHERE d.value = w.id) THEN 'deaf'
        WHEN l.stuck_count > 0 THEN 'stuck'
        ELSE 'healthy'
    END AS health,
    w.software_version, w.queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM tasks AS h INDEXED BY tasks_held
            WHERE h.worker_id IS NOT NULL
              AND h.namespace = w.namespace
              AND h.queue = w.queue
              AND h.worker_id = w.id
            LIMIT :held_max
        )
    ) AS held,
    w.slots, l.lease_until_ms - :now_ms, w.labels
FROM leases AS l
CROSS JOIN workers AS w ON w.id = l.worker_id
WHERE l.namespace = :namespace
ORDER BY w.id DESC
LIMIT :amount;

-- name: list_past_fleet(namespace, at_ms, amount)
-- Workers that were active at an instant, among those that are kept.
SELECT
    w.id, w.name,
    CASE WHEN EXISTS (
        SELECT 1
        FROM worker_changes AS c
        WHERE c.namespace = w.namespace
          AND c.worker_id = w.id
          AND c.change = 'draining'
          AND c.at_ms <= :at_ms
    ) THEN 'draining' ELSE 'online' END,
    '', w.software_version, w.queue, -1, w.slots, 0, w.labels
FROM workers AS w INDEXED BY workers_list
WHERE w.namespace = :namespace
  AND w.registered_at_ms <= :at_ms
  AND (w.ended_at_ms IS NULL OR w.ended_at_ms > :at_ms)
ORDER BY w.id DESC
LIMIT :amount;
