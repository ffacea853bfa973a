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
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version
FROM workers
WHERE namespace = :namespace
  AND (
    instance_key = :instance_key
    OR (CAST(:name AS text) <> '' AND name = :name AND status <> 'offline')
  )
ORDER BY id
FOR UPDATE;

-- name: insert_workers(id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version)
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
)
SELECT
    id, namespace, queue, CAST(types AS jsonb), instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version,
    CAST(labels AS jsonb), session_no, end_reason, drain_at_ms, ended_at_ms, release_pending,
    version
FROM unnest(
    CAST(:id AS uuid[]), CAST(:namespace AS text[]), CAST(:queue AS text[]),
    CAST(:types AS text[]), CAST(:instance_key AS text[]), CAST(:registered_at_ms AS bigint[]),
    CAST(:status AS text[]), CAST(:mode AS text[]), CAST(:slots AS integer[]),
    CAST(:name AS text[]), CAST(:hostname AS text[]), CAST(:pid AS integer[]),
    CAST(:software_version AS text[]), CAST(:labels AS text[]), CAST(:session_no AS integer[]),
    CAST(:end_reason AS text[]), CAST(:drain_at_ms AS bigint[]), CAST(:ended_at_ms AS bigint[]),
    CAST(:release_pending AS boolean[]), CAST(:version AS integer[])
) AS g (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
);

-- name: list_workers(namespace, queue, status, before_id, amount)
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version
FROM workers
WHERE namespace = :namespace
  AND id < CAST(:before_id AS uuid)
  AND (CAST(:queue AS text) = '' OR queue = :queue)
  AND (CAST(:status AS text) = '' OR status = :status)
ORDER BY workers.id DESC
LIMIT CAST(:amount AS integer);

-- name: load_releasing(amount)
SELECT CAST(id AS text)
FROM workers
WHERE release_pending
ORDER BY id
LIMIT CAST(:amount AS integer);

-- name: lock_workers(id)
-- Taken by whatever changes a worker's status; the hand-out's lock below excludes it.
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version
FROM workers
WHERE id = ANY(CAST(:id AS uuid[]))
ORDER BY workers.id
FOR UPDATE;

-- name: read_workers(id)
SELECT
    CAST(id AS text), namespace, queue, CAST(types AS text), instance_key, registered_at_ms,
    status, mode, slots, name, hostname, pid, software_version, CAST(labels AS text),
    session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version
FROM workers
WHERE id = ANY(CAST(:id AS uuid[]))
ORDER BY workers.id;

-- name: share_workers(id)
-- Taken by every hand-out: a drain or an expiry comes before it, or finds its task, because
-- whatever changes a status takes FOR UPDATE. With the brakes of the worker's queue, its last
-- heartbeat and the time after the lock: one round trip instead of three on the way to a hand-out.
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
    w.ended_at_ms, w.release_pending, w.version, q.is_paused, q.concurrency_max,
    l.beat_at_ms, l.lease_ms,
    CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
FROM locked AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN leases AS l ON l.worker_id = w.id;

-- name: update_workers(id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending)
UPDATE workers AS w
SET status = g.status,
    session_no = g.session_no,
    end_reason = g.end_reason,
    drain_at_ms = g.drain_at_ms,
    ended_at_ms = g.ended_at_ms,
    release_pending = g.release_pending,
    version = g.version + 1
FROM unnest(
    CAST(:id AS uuid[]), CAST(:version AS integer[]), CAST(:status AS text[]),
    CAST(:session_no AS integer[]), CAST(:end_reason AS text[]), CAST(:drain_at_ms AS bigint[]),
    CAST(:ended_at_ms AS bigint[]), CAST(:release_pending AS boolean[])
) AS g (
    id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending
)
WHERE w.id = g.id AND w.version = g.version
RETURNING CAST(w.id AS text);
