-- name: close_seats(worker_id)
UPDATE seats SET is_open = false, server_id = NULL
WHERE worker_id = ANY (CAST(:worker_id AS uuid[]))
RETURNING CAST(worker_id AS text);

-- name: delete_seats(worker_id)
DELETE FROM seats
WHERE worker_id = ANY (CAST(:worker_id AS uuid[]))
RETURNING CAST(worker_id AS text);

-- name: find_free_seats(mode, stale_before_ms, now_ms, amount)
-- Those that nobody has, and those of servers that do not drive any more.
SELECT
    CAST(s.worker_id AS text), s.namespace, s.mode, s.address, s.caller, s.is_open,
    CAST(s.server_id AS text), s.session_no, s.taken_at_ms, d.driver_at_ms
FROM seats AS s
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.is_open
  AND s.mode = :mode
  AND coalesce(
    d.driver_at_ms NOT BETWEEN CAST(:stale_before_ms AS bigint) AND CAST(:now_ms AS bigint), true
  )
LIMIT CAST(:amount AS integer);

-- name: give_seats(worker_id, server_id)
UPDATE seats AS s
SET server_id = NULL
FROM unnest(CAST(:worker_id AS uuid[]), CAST(:server_id AS uuid[])) AS g (worker_id, server_id)
WHERE s.worker_id = g.worker_id AND s.server_id = g.server_id
RETURNING CAST(s.worker_id AS text);

-- name: insert_seats(worker_id, namespace, mode, address, caller)
INSERT INTO seats (
    worker_id, namespace, mode, address, caller, is_open, server_id, session_no, taken_at_ms,
    call_at_ms, call_ms, call_error, unconfirmed_count, kill_count
)
SELECT worker_id, namespace, mode, address, caller, true, NULL, 0, 0, 0, 0, '', 0, 0
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:namespace AS text[]), CAST(:mode AS text[]),
    CAST(:address AS text[]), CAST(:caller AS text[])
) AS g (worker_id, namespace, mode, address, caller);

-- name: leave_seats(server_id)
UPDATE servers SET driver_at_ms = NULL
WHERE id = CAST(:server_id AS uuid)
RETURNING CAST(id AS text);

-- name: list_own_seats(server_id)
SELECT CAST(worker_id AS text), session_no
FROM seats
WHERE is_open AND server_id = CAST(:server_id AS uuid);

-- name: list_seat_troubles(scope, stale_before_ms, now_ms, amount)
-- Seats that no server drives although their workers registered some time ago, and those whose
-- last calls failed.
SELECT CAST(s.worker_id AS text), s.namespace, w.name, s.address, coalesce(l.failures, 0),
    s.call_error,
    coalesce(
        d.driver_at_ms BETWEEN CAST(:stale_before_ms AS bigint) AND CAST(:now_ms AS bigint), false
    )
FROM seats AS s
JOIN workers AS w ON w.id = s.worker_id
LEFT JOIN leases AS l ON l.worker_id = s.worker_id
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.is_open
  AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(s.namespace))
  AND (
    l.failures > 0
    OR (
        w.registered_at_ms < CAST(:stale_before_ms AS bigint)
        AND coalesce(
            d.driver_at_ms NOT BETWEEN CAST(:stale_before_ms AS bigint) AND CAST(:now_ms AS bigint),
            true
        )
    )
  )
LIMIT CAST(:amount AS integer);

-- name: note_seats(worker_id, server_id, call_at_ms, call_ms, call_error, unconfirmed_count, kill_count)
UPDATE seats AS s
SET call_at_ms = g.call_at_ms,
    call_ms = g.call_ms,
    call_error = g.call_error,
    unconfirmed_count = g.unconfirmed_count,
    kill_count = g.kill_count
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:server_id AS uuid[]), CAST(:call_at_ms AS bigint[]),
    CAST(:call_ms AS bigint[]), CAST(:call_error AS text[]),
    CAST(:unconfirmed_count AS integer[]), CAST(:kill_count AS integer[])
) AS g (
    worker_id, server_id, call_at_ms, call_ms, call_error, unconfirmed_count, kill_count
)
WHERE s.worker_id = g.worker_id AND s.server_id = g.server_id
RETURNING CAST(s.worker_id AS text);

-- name: read_seats(worker_id)
SELECT
    CAST(s.worker_id AS text), s.namespace, s.mode, s.address, s.caller, s.is_open,
    CAST(s.server_id AS text), s.session_no, s.taken_at_ms, d.driver_at_ms, s.call_at_ms,
    s.call_ms, s.call_error, s.unconfirmed_count, s.kill_count
FROM seats AS s
LEFT JOIN servers AS d ON d.id = s.server_id
WHERE s.worker_id = ANY (CAST(:worker_id AS uuid[]));

-- name: survey_seats(mode, server_id, stale_before_ms, now_ms)
SELECT
    (SELECT count(*) FROM seats WHERE is_open AND mode = :mode),
    (
        SELECT count(*) FROM seats
        WHERE is_open AND mode = :mode AND server_id = CAST(:server_id AS uuid)
    ),
    (
        SELECT count(*) FROM servers
        WHERE driver_at_ms BETWEEN CAST(:stale_before_ms AS bigint) AND CAST(:now_ms AS bigint)
    );

-- name: take_seats(worker_id, server_id, session_no, taken_at_ms)
UPDATE seats AS s
SET server_id = g.server_id, session_no = g.session_no, taken_at_ms = g.taken_at_ms
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:server_id AS uuid[]), CAST(:session_no AS integer[]),
    CAST(:taken_at_ms AS bigint[])
) AS g (worker_id, server_id, session_no, taken_at_ms)
WHERE s.worker_id = g.worker_id AND s.is_open
RETURNING CAST(s.worker_id AS text);

-- name: touch_driver(server_id, now_ms)
UPDATE servers SET driver_at_ms = :now_ms
WHERE id = CAST(:server_id AS uuid)
RETURNING CAST(id AS text);
