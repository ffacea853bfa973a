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
    release_pending, version
FROM workers
WHERE namespace = :namespace
  AND (
    instance_key = :instance_key
    OR (:name <> '' AND name = :name AND status <> 'offline')
  )
ORDER BY id;

-- name: insert_workers(id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name, hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending, version)
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
)
VALUES (
    :id, :namespace, :queue, :types, :instance_key, :registered_at_ms, :status, :mode, :slots,
    :name, :hostname, :pid, :software_version, :labels, :session_no, :end_reason, :drain_at_ms,
    :ended_at_ms, :release_pending, :version
);

-- name: list_workers(namespace, queue, status, before_id, amount)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
FROM workers
WHERE namespace = :namespace
  AND id < :before_id
  AND (:queue = '' OR queue = :queue)
  AND (:status = '' OR status = :status)
ORDER BY id DESC
LIMIT :amount;

-- name: load_releasing(amount)
SELECT id
FROM workers
WHERE release_pending
ORDER BY id
LIMIT :amount;

-- name: lock_workers(id)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
FROM workers
WHERE id = :id;

-- name: read_workers(id)
SELECT
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms, ended_at_ms,
    release_pending, version
FROM workers
WHERE id = :id;

-- name: share_workers(id)
-- The one writer is the lock, and the injected clock the time.
SELECT
    w.id, w.namespace, w.queue, w.types, w.instance_key, w.registered_at_ms, w.status, w.mode,
    w.slots, w.name, w.hostname, w.pid, w.software_version, w.labels, w.session_no,
    w.end_reason, w.drain_at_ms, w.ended_at_ms, w.release_pending, w.version, q.is_paused,
    q.concurrency_max, l.beat_at_ms, l.lease_ms, NULL
FROM workers AS w
LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
LEFT JOIN leases AS l ON l.worker_id = w.id
WHERE w.id = :id;

-- name: update_workers(id, version, status, session_no, end_reason, drain_at_ms, ended_at_ms, release_pending)
UPDATE workers
SET status = :status,
    session_no = :session_no,
    end_reason = :end_reason,
    drain_at_ms = :drain_at_ms,
    ended_at_ms = :ended_at_ms,
    release_pending = :release_pending,
    version = :version + 1
WHERE id = :id AND version = :version;
