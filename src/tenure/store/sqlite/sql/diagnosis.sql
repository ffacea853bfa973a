-- name: count_fleet(scope, deaf, now_ms, amount)
-- Active workers by namespace, status and health; a test compares the CASE with
-- core.worker.health.judge. Here and below an empty scope means all namespaces, and the amount
-- counts rows in the scope.
SELECT j.namespace, j.status, j.health, count(*)
FROM (
    SELECT
        w.namespace,
        w.status,
        CASE
            WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
            WHEN l.failures > 0 THEN 'late'
            WHEN :now_ms - l.beat_at_ms >= 2 * max(1, l.lease_ms / 3) THEN 'late'
            WHEN l.loop_lag_ms > 1000 THEN 'blocked'
            WHEN EXISTS (SELECT 1 FROM json_each(:deaf) AS d WHERE d.value = w.id) THEN 'deaf'
            WHEN l.stuck_count > 0 THEN 'stuck'
            ELSE 'healthy'
        END AS health
    FROM leases AS l
    CROSS JOIN workers AS w ON w.id = l.worker_id
    WHERE (:scope = '[]' OR l.namespace IN (SELECT s.value FROM json_each(:scope) AS s))
) AS j
GROUP BY j.namespace, j.status, j.health
ORDER BY j.namespace, j.status, j.health
LIMIT :amount;

-- name: count_sdk_versions(scope, amount)
-- The SDK of the active workers, from a label of Tenure.
SELECT j.namespace, j.sdk, count(*)
FROM (
    SELECT
        w.namespace,
        coalesce((SELECT o.value FROM json_each(w.labels) AS o WHERE o.key = 'tenure.sdk'), '')
            AS sdk
    FROM leases AS l
    CROSS JOIN workers AS w ON w.id = l.worker_id
    WHERE (:scope = '[]' OR l.namespace IN (SELECT s.value FROM json_each(:scope) AS s))
) AS j
GROUP BY j.namespace, j.sdk
ORDER BY j.namespace, j.sdk
LIMIT :amount;

-- name: list_offered_types(scope, amount)
-- Workers of one program offer the same types, so there are few lists even with many workers.
SELECT DISTINCT w.namespace, w.queue, w.types
FROM leases AS l
CROSS JOIN workers AS w ON w.id = l.worker_id
WHERE w.status = 'online'
  AND (:scope = '[]' OR l.namespace IN (SELECT s.value FROM json_each(:scope) AS s))
LIMIT :amount;

-- name: list_overdue(scope, before_ms, amount)
-- Tasks with late timers, up to an amount. Those of other namespaces are skipped one by one: the
-- index has only the time, and such tasks are few while servers work normally.
SELECT o.namespace, count(*), min(o.due_at_ms)
FROM (
    SELECT namespace, due_at_ms
    FROM tasks
    WHERE due_at_ms IS NOT NULL
      AND due_at_ms < :before_ms
      AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
    ORDER BY due_at_ms
    LIMIT :amount
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: list_servers(amount)
SELECT s.id, s.started_at_ms, s.touched_at_ms, coalesce(h.lease_count, 0)
FROM servers AS s
LEFT JOIN (
    SELECT server_id, count(*) AS lease_count FROM leases GROUP BY server_id
) AS h ON h.server_id = s.id
ORDER BY s.touched_at_ms DESC
LIMIT :amount;

-- name: list_settings()
-- The settings for durability and space, by name.
SELECT 'file', file FROM pragma_database_list WHERE name = 'main'
UNION ALL
SELECT 'journal_mode', journal_mode FROM pragma_journal_mode
UNION ALL
SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous
UNION ALL
SELECT 'version', sqlite_version();

-- name: list_stuck_leases(scope, before_ms, amount)
-- A bounded scan without an index, by design: see the table.
SELECT l.worker_id, l.namespace, w.name, l.lease_until_ms, l.server_id
FROM leases AS l
CROSS JOIN workers AS w ON w.id = l.worker_id
WHERE l.lease_until_ms < :before_ms
  AND (:scope = '[]' OR l.namespace IN (SELECT s.value FROM json_each(:scope) AS s))
ORDER BY l.lease_until_ms, l.worker_id
LIMIT :amount;

-- name: list_unreleased(scope, before_ms, amount)
SELECT id, namespace, name, ended_at_ms
FROM workers
WHERE release_pending
  AND ended_at_ms < :before_ms
  AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
ORDER BY ended_at_ms, id
LIMIT :amount;
