-- name: count_control_group(namespace, queue, worker_id, since_ms, seen_max)
-- Other workers of a queue that were lost since an instant, of the last ones of all queues, unless
-- a suspect explains why; and live ones, of the first ones.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT id, namespace, queue, end_reason, is_end_explained
            FROM workers INDEXED BY workers_ended
            WHERE status = 'offline' AND ended_at_ms >= :since_ms
            ORDER BY ended_at_ms DESC
            LIMIT :seen_max
        ) AS e
        WHERE e.namespace = :namespace
          AND e.queue = :queue
          AND e.id <> :worker_id
          AND e.end_reason IN ('lease_expired', 'unreachable', 'superseded')
          AND NOT e.is_end_explained
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM leases AS l
            CROSS JOIN workers AS w ON w.id = l.worker_id
            WHERE l.namespace = :namespace AND w.queue = :queue
            LIMIT :seen_max
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
            WHEN :now_ms - l.beat_at_ms >= 2 * max(1, l.lease_ms / 3) THEN 'late'
            WHEN l.loop_lag_ms > 1000 THEN 'blocked'
            WHEN EXISTS (SELECT 1 FROM json_each(:deaf) AS d WHERE d.value = w.id) THEN 'deaf'
            WHEN l.stuck_count > 0 THEN 'stuck'
            ELSE 'healthy'
        END AS health
    FROM workers AS w
    LEFT JOIN leases AS l ON l.worker_id = w.id
) AS j
GROUP BY j.namespace, j.queue, j.status, j.health;

-- name: count_listed_workers(namespace, queue, status, software_version, labels, health, deaf, now_ms, amount)
-- Counts what list_workers would list among the newest workers, and how many were read.
SELECT coalesce(sum(j.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR w.queue = :queue)
        AND (:status = '' OR w.status = :status)
        AND (:software_version = '' OR w.software_version = :software_version)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(w.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :health = ''
            OR :health = CASE
                WHEN l.worker_id IS NULL THEN ''
                WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
                WHEN l.failures > 0 THEN 'late'
                WHEN :now_ms - l.beat_at_ms >= 2 * max(1, l.lease_ms / 3) THEN 'late'
                WHEN l.loop_lag_ms > 1000 THEN 'blocked'
                WHEN EXISTS (SELECT 1 FROM json_each(:deaf) AS d WHERE d.value = w.id) THEN 'deaf'
                WHEN l.stuck_count > 0 THEN 'stuck'
                ELSE 'healthy'
            END
        ) AS is_listed
    FROM (
        SELECT *
        FROM workers INDEXED BY workers_list
        WHERE namespace = :namespace
        ORDER BY id DESC
        LIMIT :amount
    ) AS w
    LEFT JOIN leases AS l ON l.worker_id = w.id
) AS j;

-- name: delete_offline_workers(before_ms, amount)
DELETE FROM workers
WHERE id IN (
    SELECT id FROM workers
    WHERE status = 'offline' AND NOT release_pending AND ended_at_ms < :before_ms
    ORDER BY ended_at_ms
    LIMIT :amount
)
RETURNING id;

-- name: find_workers(namespace, instance_key, name)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
FROM workers
WHERE namespace = :namespace
  AND (
    instance_key = :instance_key
    OR (:name <> '' AND name = :name AND status <> 'offline')
  )
ORDER BY id;

-- name: insert_workers(id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version, key_id)
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
)
VALUES (
    :id, :namespace, :queue, :types, :instance_key, :registered_at_ms, :status, :mode, :slots,
    :name, :hostname, :pid, :software_version, :labels, :session_no, :end_reason, :drain_at_ms,
    :ended_at_ms, :release_pending, :version, :key_id
);

-- name: keep_totals(id, completed, failed)
-- The totals of a worker's lease when it was deleted.
UPDATE workers
SET total_completed = :completed, total_failed = :failed
WHERE id = :id
RETURNING id;

-- name: list_online_workers(server_id, after_id, amount)
-- Workers whose last heartbeat came to one server.
SELECT
    w.id, w.namespace, w.queue, w.types, w.slots, l.lease_ms,
    l.total_completed + l.total_failed, l.stuck_count
FROM leases AS l
JOIN workers AS w ON w.id = l.worker_id
WHERE l.server_id = :server_id AND l.worker_id > :after_id AND w.status = 'online'
ORDER BY l.worker_id
LIMIT :amount;

-- name: list_workers(namespace, queue, status, software_version, labels, health, deaf, now_ms, before_id, seen_max, amount)
-- With the leases in the same read, so that a worker is listed with the health that is shown;
-- a test compares the CASE with core.worker.health.judge. An empty text means no filter. The number
-- of rows that are read is limited, as in find_live_tasks. Joins to the right keep the order, and
-- narrow rows are cheaper.
SELECT *
FROM (
    SELECT
        w.id, w.namespace, w.queue, w.types, w.instance_key, w.registered_at_ms, w.status, w.mode,
        w.slots, w.name, w.hostname, w.pid, w.software_version, w.labels, w.session_no,
        w.end_reason, w.drain_at_ms, w.ended_at_ms, w.release_pending, w.version, w.key_id,
        l.worker_id, l.namespace, l.server_id, l.lease_until_ms, l.lease_ms, l.token, l.beat_at_ms,
        l.previous_beat_at_ms, l.total_completed, l.total_failed, l.active_count, l.loop_lag_ms,
        l.stuck_count, l.suspect_until_ms, l.failures,
        (:queue = '' OR w.queue = :queue)
        AND (:status = '' OR w.status = :status)
        AND (:software_version = '' OR w.software_version = :software_version)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(w.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :health = ''
            OR :health = CASE
                WHEN l.worker_id IS NULL THEN ''
                WHEN l.suspect_until_ms IS NOT NULL THEN 'suspect'
                WHEN l.failures > 0 THEN 'late'
                WHEN :now_ms - l.beat_at_ms >= 2 * max(1, l.lease_ms / 3) THEN 'late'
                WHEN l.loop_lag_ms > 1000 THEN 'blocked'
                WHEN EXISTS (SELECT 1 FROM json_each(:deaf) AS d WHERE d.value = w.id) THEN 'deaf'
                WHEN l.stuck_count > 0 THEN 'stuck'
                ELSE 'healthy'
            END
        ) AS is_listed,
        s.place AS place
    FROM (
        SELECT id, row_number() OVER (ORDER BY id DESC) AS place
        FROM workers INDEXED BY workers_list
        WHERE namespace = :namespace AND id < :before_id
        ORDER BY id DESC
        LIMIT :seen_max
    ) AS s
    CROSS JOIN workers AS w ON w.id = s.id
    LEFT JOIN leases AS l ON l.worker_id = w.id
) AS j
WHERE j.is_listed OR j.place = :seen_max
LIMIT :amount;

-- name: load_releasing(amount)
SELECT id
FROM workers
WHERE release_pending
ORDER BY id
LIMIT :amount;

-- name: lock_receivers(id)
-- As share_workers, with the number of attempts that the worker holds.
SELECT
    w.id, w.namespace, w.queue, w.types, w.instance_key, w.registered_at_ms, w.status, w.mode,
    w.slots, w.name, w.hostname, w.pid, w.software_version, w.labels, w.session_no,
    w.end_reason, w.drain_at_ms, w.ended_at_ms, w.release_pending, w.version, w.key_id, q.is_paused,
    q.concurrency_max, l.beat_at_ms, l.lease_ms, NULL,
    (
        SELECT count(*)
        FROM tasks AS h INDEXED BY tasks_held
        WHERE h.worker_id IS NOT NULL
          AND h.namespace = w.namespace
          AND h.queue = w.queue
          AND h.worker_id = w.id
    )
FROM workers AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN leases AS l ON l.worker_id = w.id
WHERE w.id = :id;

-- name: lock_workers(id)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
FROM workers
WHERE id = :id;

-- name: mark_ends_explained(id)
UPDATE workers SET is_end_explained = 1 WHERE id = :id RETURNING id;

-- name: read_news(namespace, queue, worker_id, session_no, held_count)
-- Of the workers with sessions or polls at a server, only those whose state differs from what the
-- server knows.
SELECT d.worker_id, w.status, w.end_reason, w.session_no, d.held_count
FROM (
    SELECT
        :worker_id AS worker_id,
        (
            SELECT count(*)
            FROM tasks INDEXED BY tasks_held
            WHERE worker_id IS NOT NULL
              AND namespace = :namespace
              AND queue = :queue
              AND worker_id = :worker_id
              AND :held_count > 0
        ) AS held_count
) AS d
LEFT JOIN workers AS w ON w.id = d.worker_id
WHERE w.status IS NOT 'online'
   OR w.session_no > :session_no
   OR d.held_count < :held_count;

-- name: read_totals(id)
SELECT id, total_completed, total_failed FROM workers WHERE id = :id;

-- name: read_workers(id)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version, key_id
FROM workers
WHERE id = :id;

-- name: share_workers(id)
-- The single writer is the lock, and the injected clock gives the time.
SELECT
    w.id, w.namespace, w.queue, w.types, w.instance_key, w.registered_at_ms, w.status, w.mode,
    w.slots, w.name, w.hostname, w.pid, w.software_version, w.labels, w.session_no,
    w.end_reason, w.drain_at_ms, w.ended_at_ms, w.release_pending, w.version, w.key_id, q.is_paused,
    q.concurrency_max, l.beat_at_ms, l.lease_ms, NULL
FROM workers AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN leases AS l ON l.worker_id = w.id
WHERE w.id = :id;

-- name: update_workers(id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, key_id)
UPDATE workers
SET status = :status,
    session_no = :session_no,
    end_reason = :end_reason,
    drain_at_ms = :drain_at_ms,
    ended_at_ms = :ended_at_ms,
    release_pending = :release_pending,
    key_id = :key_id,
    version = :version + 1
WHERE id = :id AND version = :version;
