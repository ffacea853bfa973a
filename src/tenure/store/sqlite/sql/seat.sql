-- name: close_seats(worker_id)
UPDATE seats SET is_open = 0, server_id = NULL WHERE worker_id = :worker_id RETURNING worker_id;

-- name: delete_seats(worker_id)
DELETE FROM seats WHERE worker_id = :worker_id RETURNING worker_id;

-- name: find_free_seats(mode, stale_before_ms, now_ms, amount)
-- Those that nobody has, and those of servers that do not drive any more.
SELECT s.worker_id, s.namespace, s.mode, s.address, s.caller, s.is_open, s.server_id, s.session_no,
    s.taken_at_ms, d.driver_at_ms
FROM seats AS s INDEXED BY seats_open
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.is_open = 1
  AND s.mode = :mode
  AND coalesce(d.driver_at_ms NOT BETWEEN :stale_before_ms AND :now_ms, 1)
LIMIT :amount;

-- name: give_seats(worker_id, server_id)
UPDATE seats SET server_id = NULL
WHERE worker_id = :worker_id AND server_id = :server_id
RETURNING worker_id;

-- name: insert_seats(worker_id, namespace, mode, address, caller)
INSERT INTO seats (
    worker_id, namespace, mode, address, caller, is_open, server_id, session_no, taken_at_ms,
    call_at_ms, call_ms, call_error, unconfirmed_count, kill_count
)
VALUES (:worker_id, :namespace, :mode, :address, :caller, 1, NULL, 0, 0, 0, 0, '', 0, 0);

-- name: leave_seats(server_id)
UPDATE servers SET driver_at_ms = NULL WHERE id = :server_id RETURNING id;

-- name: list_own_seats(server_id)
SELECT worker_id, session_no FROM seats INDEXED BY seats_open
WHERE is_open = 1 AND server_id = :server_id;

-- name: list_seat_troubles(scope, stale_before_ms, now_ms, amount)
-- Seats that no server drives although their workers registered some time ago, and those whose
-- last calls failed.
SELECT s.worker_id, s.namespace, w.name, s.address, coalesce(l.failures, 0), s.call_error,
    coalesce(d.driver_at_ms BETWEEN :stale_before_ms AND :now_ms, 0)
FROM seats AS s INDEXED BY seats_open
JOIN workers AS w ON w.id = s.worker_id
LEFT JOIN leases AS l ON l.worker_id = s.worker_id
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.is_open = 1
  AND (json_array_length(:scope) = 0 OR s.namespace IN (SELECT value FROM json_each(:scope)))
  AND (
    l.failures > 0
    OR (
        w.registered_at_ms < :stale_before_ms
        AND coalesce(d.driver_at_ms NOT BETWEEN :stale_before_ms AND :now_ms, 1)
    )
  )
LIMIT :amount;

-- name: note_seats(worker_id, server_id, call_at_ms, call_ms, call_error, unconfirmed_count, kill_count)
UPDATE seats
SET call_at_ms = :call_at_ms,
    call_ms = :call_ms,
    call_error = :call_error,
    unconfirmed_count = :unconfirmed_count,
    kill_count = :kill_count
WHERE worker_id = :worker_id AND server_id = :server_id
RETURNING worker_id;

-- name: read_seats(worker_id)
SELECT s.worker_id, s.namespace, s.mode, s.address, s.caller, s.is_open, s.server_id, s.session_no,
    s.taken_at_ms, d.driver_at_ms, s.call_at_ms, s.call_ms, s.call_error, s.unconfirmed_count,
    s.kill_count
FROM seats AS s
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.worker_id = :worker_id;

-- name: survey_seats(mode, server_id, stale_before_ms, now_ms)
SELECT
    (SELECT count(*) FROM seats WHERE is_open = 1 AND mode = :mode),
    (
        SELECT count(*) FROM seats
        WHERE is_open = 1 AND mode = :mode AND server_id = :server_id
    ),
    (SELECT count(*) FROM servers WHERE driver_at_ms BETWEEN :stale_before_ms AND :now_ms);

-- name: take_seats(worker_id, server_id, session_no, taken_at_ms)
UPDATE seats
SET server_id = :server_id, session_no = :session_no, taken_at_ms = :taken_at_ms
WHERE worker_id = :worker_id AND is_open = 1
RETURNING worker_id;

-- name: touch_driver(server_id, now_ms)
UPDATE servers SET driver_at_ms = :now_ms WHERE id = :server_id RETURNING id;
