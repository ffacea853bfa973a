-- name: beat_leases(worker_id, namespace, token, server_id, lease_ms, completed, failed, active_count, loop_lag_ms, stuck_count, now_ms)
-- One row per heartbeat, however many tasks the worker holds. Set-based for speed; a test compares
-- it with core.worker.lease.decide on generated rows.
UPDATE leases
SET token = token + 1,
    lease_ms = CASE WHEN :lease_ms > 0 THEN :lease_ms ELSE lease_ms END,
    lease_until_ms = :now_ms + CASE WHEN :lease_ms > 0 THEN :lease_ms ELSE lease_ms END,
    server_id = :server_id,
    -- After the clock was set back no instant shows what came before that heartbeat.
    previous_beat_at_ms = CASE WHEN beat_at_ms > :now_ms THEN 0 ELSE beat_at_ms END,
    beat_at_ms = :now_ms,
    total_completed = CASE
        WHEN :completed >= 0 THEN max(total_completed, :completed)
        ELSE total_completed - 1 - :completed END,
    total_failed = CASE
        WHEN :failed >= 0 THEN max(total_failed, :failed)
        ELSE total_failed - 1 - :failed END,
    active_count = :active_count,
    loop_lag_ms = :loop_lag_ms,
    stuck_count = :stuck_count,
    suspect_until_ms = NULL,
    failures = 0
WHERE worker_id = :worker_id AND namespace = :namespace AND token = :token
RETURNING worker_id, lease_ms, previous_beat_at_ms, total_completed, total_failed;

-- name: clamp_leases(now_ms)
-- After the clock was set back a lease would last longer than granted.
UPDATE leases SET lease_until_ms = :now_ms + lease_ms
WHERE lease_until_ms > :now_ms + lease_ms
RETURNING worker_id;

-- name: count_leases(server_id)
SELECT :server_id, count(*) FROM leases WHERE server_id = :server_id;

-- name: drop_ended_leases(worker_id)
DELETE FROM ended_leases WHERE worker_id = :worker_id RETURNING worker_id;

-- name: drop_leases(worker_id)
DELETE FROM leases
WHERE worker_id = :worker_id
RETURNING worker_id, total_completed, total_failed;

-- name: fail_leases(worker_id)
UPDATE leases SET failures = failures + 1 WHERE worker_id = :worker_id RETURNING worker_id;

-- name: insert_leases(worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms, previous_beat_at_ms)
INSERT INTO leases (
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,
    failures
)
VALUES (
    :worker_id, :namespace, :server_id, :lease_until_ms, :lease_ms, :token, :beat_at_ms,
    :previous_beat_at_ms, 0, 0, 0, 0, 0, 0
);

-- name: keep_leases(worker_id)
-- Before they are deleted; otherwise a heartbeat in between would win.
INSERT INTO ended_leases (worker_id, lease_until_ms, lease_ms)
SELECT worker_id, lease_until_ms, lease_ms
FROM leases
WHERE worker_id = :worker_id
ON CONFLICT (worker_id) DO UPDATE
SET lease_until_ms = excluded.lease_until_ms, lease_ms = excluded.lease_ms
RETURNING worker_id;

-- name: load_lapsed(now_ms, amount)
-- A bounded scan without an index, by design: see the table.
SELECT
    l.worker_id, l.namespace, l.server_id, l.lease_until_ms, l.lease_ms, l.token, l.beat_at_ms,
    l.previous_beat_at_ms, l.total_completed, l.total_failed, l.active_count, l.loop_lag_ms,
    l.stuck_count, l.suspect_until_ms, l.failures, s.touched_at_ms, s.lease_count
FROM leases AS l
LEFT JOIN servers AS s ON s.id = l.server_id
WHERE l.lease_until_ms <= :now_ms OR l.suspect_until_ms <= :now_ms
LIMIT :amount;

-- name: lock_leases(worker_id)
-- To judge them, after their workers; there is one writer, so nothing has to be locked.
SELECT
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,
    suspect_until_ms, failures
FROM leases
WHERE worker_id = :worker_id;

-- name: read_ended_leases(worker_id)
SELECT worker_id, lease_until_ms, lease_ms FROM ended_leases WHERE worker_id = :worker_id;

-- name: read_leases(worker_id)
SELECT
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,
    suspect_until_ms, failures
FROM leases
WHERE worker_id = :worker_id;

-- name: resume_leases(worker_id, server_id)
UPDATE leases
SET suspect_until_ms = NULL, server_id = :server_id
WHERE worker_id = :worker_id
RETURNING worker_id;

-- name: suspect_leases(worker_id, token, suspect_until_ms)
UPDATE leases
SET suspect_until_ms = :suspect_until_ms
WHERE worker_id = :worker_id AND token = :token
RETURNING worker_id;
