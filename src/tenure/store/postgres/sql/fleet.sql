-- name: list_fleet(namespace, deaf, now_ms, held_max, amount)
-- Active workers with what they hold: one index probe each, and narrow rows. A test compares the CASE
-- with core.worker.health.judge.
SELECT
    CAST(w.id AS text), w.name, w.status,
    CASE
        WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
        WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
        WHEN l.loop_lag_ms > 1000 THEN 'blocked'
        WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
        WHEN l.stuck_count > 0 THEN 'stuck'
        ELSE 'healthy'
    END AS health,
    w.software_version, w.queue, h.held, w.slots, l.lease_until_ms - CAST(:now_ms AS bigint),
    CAST(w.labels AS text)
FROM (
    SELECT * FROM leases WHERE namespace = :namespace OFFSET 0
) AS l
CROSS JOIN LATERAL (SELECT * FROM workers AS o WHERE o.id = l.worker_id OFFSET 0) AS w
CROSS JOIN LATERAL (
    SELECT count(*) AS held
    FROM (
        SELECT 1
        FROM tasks AS t
        WHERE t.worker_id IS NOT NULL
          AND t.namespace = w.namespace
          AND t.queue = w.queue
          AND t.worker_id = w.id
        LIMIT CAST(:held_max AS integer)
    ) AS s
) AS h
ORDER BY w.id DESC
LIMIT CAST(:amount AS integer);

-- name: list_past_fleet(namespace, at_ms, amount)
-- Workers that were active at an instant, among those that are kept.
SELECT
    CAST(w.id AS text), w.name,
    CASE WHEN EXISTS (
        SELECT
        FROM worker_changes AS c
        WHERE c.namespace = w.namespace
          AND c.worker_id = w.id
          AND c.change = 'draining'
          AND c.at_ms <= CAST(:at_ms AS bigint)
    ) THEN 'draining' ELSE 'online' END,
    '', w.software_version, w.queue, -1, w.slots, 0, CAST(w.labels AS text)
FROM workers AS w
WHERE w.namespace = :namespace
  AND w.registered_at_ms <= CAST(:at_ms AS bigint)
  AND (w.ended_at_ms IS NULL OR w.ended_at_ms > CAST(:at_ms AS bigint))
ORDER BY w.namespace DESC, w.id DESC
LIMIT CAST(:amount AS integer);
