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
            WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
            WHEN l.loop_lag_ms > 1000 THEN 'blocked'
            WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
            WHEN l.stuck_count > 0 THEN 'stuck'
            ELSE 'healthy'
        END AS health
    FROM leases AS l
    JOIN workers AS w ON w.id = l.worker_id
    WHERE (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(l.namespace))
) AS j
GROUP BY j.namespace, j.status, j.health
ORDER BY j.namespace, j.status, j.health
LIMIT CAST(:amount AS integer);

-- name: count_sdk_versions(scope, amount)
-- The SDK of the active workers, from a label of Tenure.
SELECT j.namespace, j.sdk, count(*)
FROM (
    SELECT w.namespace, coalesce(w.labels ->> 'tenure.sdk', '') AS sdk
    FROM leases AS l
    JOIN workers AS w ON w.id = l.worker_id
    WHERE (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(l.namespace))
) AS j
GROUP BY j.namespace, j.sdk
ORDER BY j.namespace, j.sdk
LIMIT CAST(:amount AS integer);

-- name: list_offered_types(scope, amount)
-- Workers of one program offer the same types, so there are few lists even with many workers.
SELECT d.namespace, d.queue, CAST(d.types AS text)
FROM (
    SELECT DISTINCT w.namespace, w.queue, w.types
    FROM leases AS l
    JOIN workers AS w ON w.id = l.worker_id
    WHERE w.status = 'online'
      AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(l.namespace))
    LIMIT CAST(:amount AS integer)
) AS d;

-- name: list_overdue(scope, before_ms, amount)
-- Tasks with late timers, up to an amount. Those of other namespaces are skipped one by one: the
-- index has only the time, and such tasks are few while servers work normally.
SELECT o.namespace, count(*), min(o.due_at_ms)
FROM (
    SELECT namespace, due_at_ms
    FROM tasks
    WHERE due_at_ms IS NOT NULL
      AND due_at_ms < :before_ms
      AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
    ORDER BY due_at_ms
    LIMIT CAST(:amount AS integer)
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: list_servers(amount)
SELECT CAST(s.id AS text), s.started_at_ms, s.touched_at_ms, coalesce(h.lease_count, 0)
FROM servers AS s
LEFT JOIN (
    SELECT server_id, count(*) AS lease_count FROM leases GROUP BY server_id
) AS h ON h.server_id = s.id
ORDER BY s.touched_at_ms DESC
LIMIT CAST(:amount AS integer);

-- name: list_settings()
-- The settings for durability and space, by name. Every role may count the connections of a
-- database server; few roles may see whose they are.
SELECT name, setting
FROM pg_settings
WHERE name IN (
    'autovacuum', 'data_checksums', 'fsync', 'full_page_writes', 'max_connections',
    'superuser_reserved_connections', 'synchronous_commit'
)
UNION ALL
SELECT 'connection_count', CAST(count(*) AS text)
FROM pg_stat_activity
WHERE backend_type = 'client backend'
UNION ALL
SELECT 'version', current_setting('server_version_num');

-- name: list_stuck_leases(scope, before_ms, amount)
-- A bounded scan without an index, by design: see the table.
SELECT
    CAST(l.worker_id AS text), l.namespace, w.name, l.lease_until_ms, CAST(l.server_id AS text)
FROM leases AS l
JOIN workers AS w ON w.id = l.worker_id
WHERE l.lease_until_ms < :before_ms
  AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(l.namespace))
ORDER BY l.lease_until_ms, l.worker_id
LIMIT CAST(:amount AS integer);

-- name: list_unreleased(scope, before_ms, amount)
SELECT CAST(id AS text), namespace, name, ended_at_ms
FROM workers
WHERE release_pending
  AND ended_at_ms < :before_ms
  AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
ORDER BY ended_at_ms, id
LIMIT CAST(:amount AS integer);
