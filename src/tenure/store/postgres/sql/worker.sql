-- name: count_control_group(namespace, queue, worker_id, since_ms, seen_max)
-- Other workers of a queue that were lost since an instant, of the last ones of all queues, unless
-- a suspect explains why; and live ones, of the first ones.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT id, namespace, queue, end_reason, is_end_explained
            FROM workers
            WHERE status = 'offline' AND ended_at_ms >= :since_ms
            ORDER BY ended_at_ms DESC
            LIMIT CAST(:seen_max AS integer)
        ) AS e
        WHERE e.namespace = :namespace
          AND e.queue = :queue
          AND e.id <> CAST(:worker_id AS uuid)
          AND e.end_reason IN ('lease_expired', 'unreachable', 'superseded')
          AND NOT e.is_end_explained
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM leases AS l
            JOIN workers AS w ON w.id = l.worker_id
            WHERE l.namespace = :namespace AND w.queue = :queue
            LIMIT CAST(:seen_max AS integer)
        ) AS live
    );

-- name: count_crews(deaf, now_ms)
SELECT j.namespace, j.queue, j.status, j.health, count(*), sum(j.slots)
FROM (
    SELECT
        w.namespace, w.queue, w.status, w.slots,
        CASE
            WHEN l.worker_id IS NULL THEN ''
            WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
            WHEN l.failures > 0 THEN 'late'
            WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
            WHEN l.loop_lag_ms > 1000 THEN 'blocked'
            WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
            WHEN l.stuck_count > 0 THEN 'stuck'
            ELSE 'healthy'
        END AS health
    FROM workers AS w
    LEFT JOIN leases AS l ON l.worker_id = w.id
) AS j
GROUP BY j.namespace, j.queue, j.status, j.health;

-- name: count_listed_workers(namespace, queue, status, software_version, labels, health, deaf, now_ms, amount)
-- Counts what list_workers would list among the newest workers, and how many were read.
SELECT count(*) FILTER (WHERE j.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR w.queue = :queue)
        AND (CAST(:status AS text) = '' OR w.status = :status)
        AND (CAST(:software_version AS text) = '' OR w.software_version = :software_version)
        AND w.labels @> CAST(:labels AS jsonb)
        AND (
            CAST(:health AS text) = ''
            OR :health = CASE
                WHEN l.worker_id IS NULL THEN ''
                WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
                WHEN l.failures > 0 THEN 'late'
                WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
                WHEN l.loop_lag_ms > 1000 THEN 'blocked'
                WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
                WHEN l.stuck_count > 0 THEN 'stuck'
                ELSE 'healthy'
            END
        ) AS is_listed
    FROM (
        SELECT *
        FROM workers
        WHERE namespace = :namespace
        ORDER BY namespace DESC, id DESC
        LIMIT CAST(:amount AS integer)
    ) AS w
    LEFT JOIN leases AS l ON l.worker_id = w.id
) AS j;

-- name: delete_offline_workers(before_ms, amount)
DELETE FROM workers
WHERE id = ANY (ARRAY(
    SELECT id FROM workers
    WHERE status = 'offline' AND NOT release_pending AND ended_at_ms < :before_ms
    ORDER BY ended_at_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING CAST(id AS text);

-- name: find_workers(namespace, instance_key, name)
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version, key_id
FROM workers
WHERE namespace = :namespace
  AND (
    instance_key = :instance_key
    OR (CAST(:name AS text) <> '' AND name = :name AND status <> 'offline')
  )
ORDER BY id
FOR UPDATE;

-- name: insert_workers(id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version, key_id)
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
)
SELECT
    id, namespace, queue, CAST(types AS jsonb), instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version,
    CAST(labels AS jsonb), session_no, end_reason, drain_at_ms, ended_at_ms, release_pending,
    version, key_id
FROM unnest(
    CAST(:id AS uuid[]), CAST(:namespace AS text[]), CAST(:queue AS text[]),
    CAST(:types AS text[]), CAST(:instance_key AS text[]), CAST(:registered_at_ms AS bigint[]),
    CAST(:status AS text[]), CAST(:mode AS text[]), CAST(:slots AS integer[]),
    CAST(:name AS text[]), CAST(:hostname AS text[]), CAST(:pid AS integer[]),
    CAST(:software_version AS text[]), CAST(:labels AS text[]), CAST(:session_no AS integer[]),
    CAST(:end_reason AS text[]), CAST(:drain_at_ms AS bigint[]), CAST(:ended_at_ms AS bigint[]),
    CAST(:release_pending AS boolean[]), CAST(:version AS integer[]), CAST(:key_id AS text[])
) AS g (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
);

-- name: keep_totals(id, completed, failed)
-- The totals of a worker's lease when it was deleted.
UPDATE workers AS w
SET total_completed = g.completed, total_failed = g.failed
FROM unnest(
    CAST(:id AS uuid[]), CAST(:completed AS bigint[]), CAST(:failed AS bigint[])
) AS g (id, completed, failed)
WHERE w.id = g.id
RETURNING CAST(w.id AS text);

-- name: list_online_workers(server_id, after_id, amount)
-- Workers whose last heartbeat came to one server. The leases are few and narrow, so they come
-- first.
SELECT
    CAST(w.id AS text), w.namespace, w.queue, CAST(w.types AS text), w.slots, l.lease_ms,
    l.total_completed + l.total_failed, l.stuck_count
FROM leases AS l
JOIN workers AS w ON w.id = l.worker_id
WHERE l.server_id = CAST(:server_id AS uuid)
  AND l.worker_id > CAST(:after_id AS uuid)
  AND w.status = 'online'
ORDER BY l.worker_id
LIMIT CAST(:amount AS integer);

-- name: list_workers(namespace, queue, status, software_version, labels, health, deaf, now_ms, before_id, seen_max, amount)
-- With the leases in the same read, so that a worker is listed with the health that is shown;
-- a test compares the CASE with core.worker.health.judge. An empty text means no filter. The number
-- of rows that are read is limited, as in find_live_tasks.
SELECT
    CAST(w.id AS text), w.namespace, w.queue, CAST(w.types AS text), w.instance_key,
    w.registered_at_ms, w.status, w.mode, w.slots, w.name, w.hostname, w.pid,
    w.software_version, CAST(w.labels AS text), w.session_no, w.end_reason, w.drain_at_ms,
    w.ended_at_ms, w.release_pending, w.version, w.key_id, CAST(l.worker_id AS text), l.namespace,
    CAST(l.server_id AS text), l.lease_until_ms, l.lease_ms, l.token, l.beat_at_ms,
    l.previous_beat_at_ms, l.total_completed, l.total_failed, l.active_count, l.loop_lag_ms,
    l.stuck_count, l.suspect_until_ms, l.failures, f.is_listed, w.place
FROM (
    SELECT *, row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM workers
    WHERE namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS w
LEFT JOIN leases AS l ON l.worker_id = w.id
CROSS JOIN LATERAL (
    SELECT
        (CAST(:queue AS text) = '' OR w.queue = :queue)
        AND (CAST(:status AS text) = '' OR w.status = :status)
        AND (CAST(:software_version AS text) = '' OR w.software_version = :software_version)
        AND w.labels @> CAST(:labels AS jsonb)
        AND (
            CAST(:health AS text) = ''
            OR :health = CASE
                WHEN l.worker_id IS NULL THEN ''
                WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
                WHEN l.failures > 0 THEN 'late'
                WHEN CAST(:now_ms AS bigint) - l.beat_at_ms >= 2 * greatest(1, l.lease_ms / 3) THEN 'late'
                WHEN l.loop_lag_ms > 1000 THEN 'blocked'
                WHEN CAST(:deaf AS jsonb) @> to_jsonb(CAST(w.id AS text)) THEN 'deaf'
                WHEN l.stuck_count > 0 THEN 'stuck'
                ELSE 'healthy'
            END
        ) AS is_listed
) AS f
WHERE f.is_listed OR w.place = CAST(:seen_max AS integer)
ORDER BY w.id DESC
LIMIT CAST(:amount AS integer);

-- name: load_releasing(amount)
SELECT CAST(id AS text)
FROM workers
WHERE release_pending
ORDER BY id
LIMIT CAST(:amount AS integer);

-- name: lock_receivers(id)
-- As share_workers, for workers of whom nobody knows what they hold without counting. The lock
-- excludes every other hand-out to them, and held_counts counts after it. The join is as there.
WITH locked AS MATERIALIZED (
    SELECT *
    FROM workers
    WHERE id = ANY(CAST(:id AS uuid[]))
    ORDER BY workers.id
    FOR UPDATE
), counted AS MATERIALIZED (
    SELECT held_counts(
        array_agg(x.namespace), array_agg(x.queue), array_agg(x.id), array_agg(x.slots)
    ) AS held
    FROM locked AS x
)
SELECT
    CAST(w.id AS text), w.namespace, w.queue, CAST(w.types AS text), w.instance_key,
    w.registered_at_ms, w.status, w.mode, w.slots, w.name, w.hostname, w.pid,
    w.software_version, CAST(w.labels AS text), w.session_no, w.end_reason, w.drain_at_ms,
    w.ended_at_ms, w.release_pending, w.version, w.key_id, q.is_paused, q.concurrency_max,
    l.beat_at_ms, l.lease_ms,
    CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint),
    CAST((SELECT c.held FROM counted AS c) ->> CAST(w.id AS text) AS integer)
FROM locked AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN LATERAL (
    SELECT x.beat_at_ms, x.lease_ms
    FROM leases AS x
    WHERE x.worker_id = w.id
    OFFSET 0
) AS l ON true;

-- name: lock_workers(id)
-- Taken by every change of a worker's status; the hand-out's lock below excludes it.
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version, key_id
FROM workers
WHERE id = ANY(CAST(:id AS uuid[]))
ORDER BY workers.id
FOR UPDATE;

-- name: mark_ends_explained(id)
UPDATE workers SET is_end_explained = true
WHERE id = ANY (CAST(:id AS uuid[]))
RETURNING CAST(id AS text);

-- name: read_news(namespace, queue, worker_id, session_no, held_count)
-- Of the workers with sessions or polls at a server, only those whose state differs from what the
-- server knows. Held tasks are counted in the index, and not at all for a worker that holds nothing
-- as far as the server knows.
SELECT
    CAST(d.worker_id AS text), w.status, w.end_reason, w.session_no,
    CAST(h.held_count AS integer)
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:worker_id AS uuid[]),
    CAST(:session_no AS integer[]), CAST(:held_count AS integer[])
) AS d (namespace, queue, worker_id, session_no, held_count)
LEFT JOIN LATERAL (
    SELECT x.status, x.end_reason, x.session_no
    FROM workers AS x
    WHERE x.id = d.worker_id
    OFFSET 0
) AS w ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS held_count
    FROM tasks AS c
    WHERE d.held_count > 0
      AND c.worker_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.queue = d.queue
      AND c.worker_id = d.worker_id
) AS h
WHERE w.status IS DISTINCT FROM 'online'
   OR w.session_no > d.session_no
   OR h.held_count < d.held_count;

-- name: read_totals(id)
SELECT CAST(id AS text), total_completed, total_failed
FROM workers
WHERE id = ANY (CAST(:id AS uuid[]));

-- name: read_workers(id)
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version, key_id
FROM workers
WHERE id = ANY(CAST(:id AS uuid[]))
ORDER BY workers.id;

-- name: share_workers(id)
-- Taken by every hand-out: a drain or an expiry comes before it, or finds its task, because
-- every change of a status takes FOR UPDATE. With the settings of the worker's queue, its last
-- heartbeat and the time after the lock: one round trip instead of three before a hand-out. Each
-- lease is looked up by its key, whatever the statistics say: after a VACUUM of the empty table a
-- plain join went through the leases for every worker.
WITH locked AS MATERIALIZED (
    SELECT *
    FROM workers
    WHERE id = ANY(CAST(:id AS uuid[]))
    ORDER BY workers.id
    FOR KEY SHARE
)
SELECT
    CAST(w.id AS text), w.namespace, w.queue, CAST(w.types AS text), w.instance_key,
    w.registered_at_ms, w.status, w.mode, w.slots, w.name, w.hostname, w.pid,
    w.software_version, CAST(w.labels AS text), w.session_no, w.end_reason, w.drain_at_ms,
    w.ended_at_ms, w.release_pending, w.version, w.key_id, q.is_paused, q.concurrency_max,
    l.beat_at_ms, l.lease_ms,
    CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
FROM locked AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN LATERAL (
    SELECT x.beat_at_ms, x.lease_ms
    FROM leases AS x
    WHERE x.worker_id = w.id
    OFFSET 0
) AS l ON true;

-- name: update_workers(id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, key_id)
UPDATE workers AS w
SET status = g.status,
    session_no = g.session_no,
    end_reason = g.end_reason,
    drain_at_ms = g.drain_at_ms,
    ended_at_ms = g.ended_at_ms,
    release_pending = g.release_pending,
    key_id = g.key_id,
    version = g.version + 1
FROM unnest(
    CAST(:id AS uuid[]), CAST(:version AS integer[]), CAST(:status AS text[]),
    CAST(:session_no AS integer[]), CAST(:end_reason AS text[]), CAST(:drain_at_ms AS bigint[]),
    CAST(:ended_at_ms AS bigint[]), CAST(:release_pending AS boolean[]),
    CAST(:key_id AS text[])
) AS g (
    id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending,
    key_id
)
WHERE w.id = g.id AND w.version = g.version
RETURNING CAST(w.id AS text);
