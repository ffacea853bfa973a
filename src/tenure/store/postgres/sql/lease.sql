-- name: beat_leases(worker_id, namespace, token, server_id, lease_ms, completed, failed, active_count, loop_lag_ms, stuck_count, now_ms)
-- One row per heartbeat, however many tasks the worker holds. Set-based for speed; a test compares
-- it with core.worker.lease.decide on generated rows. One lookup per item, whatever the statistics
-- say: as a plain join, planned while no worker was registered, 500 heartbeats of 10,000 workers
-- took 2.7 s. "= ANY (ARRAY[x])" is "= x" for an index, but not for a hash or merge join.
-- Conditions without an index use IS TRUE, which no join uses either and costs less. The comparison
-- with abs(), which is always true, makes the planner expect few items. Not by place, as for tasks:
-- a session that is resumed meanwhile moves the row, and the heartbeat must still find it. A
-- counter below zero is a delta d as -1 - d: each column costs the sender time per heartbeat.
UPDATE leases AS l
SET token = l.token + 1,
    lease_ms = CASE WHEN g.lease_ms > 0 THEN g.lease_ms ELSE l.lease_ms END,
    lease_until_ms =
        CAST(:now_ms AS bigint) + CASE WHEN g.lease_ms > 0 THEN g.lease_ms ELSE l.lease_ms END,
    server_id = g.server_id,
    -- After the clock was set back no instant shows what came before that heartbeat.
    previous_beat_at_ms = CASE WHEN l.beat_at_ms > CAST(:now_ms AS bigint) THEN 0 ELSE l.beat_at_ms END,
    beat_at_ms = CAST(:now_ms AS bigint),
    total_completed = CASE
        WHEN g.completed >= 0 THEN greatest(l.total_completed, g.completed)
        ELSE l.total_completed - 1 - g.completed END,
    total_failed = CASE
        WHEN g.failed >= 0 THEN greatest(l.total_failed, g.failed)
        ELSE l.total_failed - 1 - g.failed END,
    active_count = g.active_count,
    loop_lag_ms = g.loop_lag_ms,
    stuck_count = g.stuck_count,
    suspect_until_ms = NULL,
    failures = 0
FROM unnest(CAST(:rows AS beat_leases_row[])) AS g
WHERE l.worker_id = ANY (ARRAY[g.worker_id])
  AND (l.namespace = g.namespace) IS TRUE
  AND (l.token = g.token) IS TRUE
  AND g.token = abs(g.token)
  AND g.active_count = abs(g.active_count)
RETURNING
    CAST(l.worker_id AS text), l.lease_ms, l.previous_beat_at_ms, l.total_completed,
    l.total_failed;

-- name: clamp_leases(now_ms)
-- After the clock was set back a lease would last longer than granted.
UPDATE leases SET lease_until_ms = :now_ms + lease_ms
WHERE lease_until_ms > CAST(:now_ms AS bigint) + lease_ms
RETURNING CAST(worker_id AS text);

-- name: count_leases(server_id)
SELECT CAST(server_id AS text), count(*)
FROM leases
WHERE server_id = ANY (CAST(:server_id AS uuid[]))
GROUP BY server_id;

-- name: drop_ended_leases(worker_id)
DELETE FROM ended_leases
WHERE worker_id = ANY (CAST(:worker_id AS uuid[]))
RETURNING CAST(worker_id AS text);

-- name: drop_leases(worker_id)
DELETE FROM leases AS l
WHERE l.worker_id = ANY (CAST(:worker_id AS uuid[]))
RETURNING CAST(l.worker_id AS text), l.total_completed, l.total_failed;

-- name: fail_leases(worker_id)
UPDATE leases AS l
SET failures = l.failures + 1
WHERE l.worker_id = ANY (CAST(:worker_id AS uuid[]))
RETURNING CAST(l.worker_id AS text);

-- name: insert_leases(worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms, previous_beat_at_ms)
INSERT INTO leases (
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,
    failures
)
SELECT
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, 0, 0, 0, 0, 0, 0
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:namespace AS text[]), CAST(:server_id AS uuid[]),
    CAST(:lease_until_ms AS bigint[]), CAST(:lease_ms AS integer[]), CAST(:token AS bigint[]),
    CAST(:beat_at_ms AS bigint[]), CAST(:previous_beat_at_ms AS bigint[])
) AS g (
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms
);

-- name: keep_leases(worker_id)
-- Before they are deleted. Locked, because otherwise a heartbeat in between would win.
INSERT INTO ended_leases AS e (worker_id, lease_until_ms, lease_ms)
SELECT l.worker_id, l.lease_until_ms, l.lease_ms
FROM leases AS l
WHERE l.worker_id = ANY (CAST(:worker_id AS uuid[]))
ORDER BY l.worker_id
FOR UPDATE
ON CONFLICT (worker_id) DO UPDATE
SET lease_until_ms = excluded.lease_until_ms, lease_ms = excluded.lease_ms
RETURNING CAST(e.worker_id AS text);

-- name: load_lapsed(now_ms, amount)
-- A bounded scan without an index, by design: see the table.
SELECT
    CAST(l.worker_id AS text), l.namespace, CAST(l.server_id AS text), l.lease_until_ms,
    l.lease_ms, l.token, l.beat_at_ms, l.previous_beat_at_ms, l.total_completed,
    l.total_failed, l.active_count, l.loop_lag_ms, l.stuck_count, l.suspect_until_ms,
    l.failures, s.touched_at_ms, s.lease_count
FROM leases AS l
LEFT JOIN servers AS s ON s.id = l.server_id
WHERE l.lease_until_ms <= :now_ms OR l.suspect_until_ms <= :now_ms
LIMIT CAST(:amount AS integer);

-- name: lock_leases(worker_id)
-- To judge them, after their workers are locked. A heartbeat that is being written keeps its worker
-- alive.
SELECT
    CAST(worker_id AS text), namespace, CAST(server_id AS text), lease_until_ms, lease_ms,
    token, beat_at_ms, previous_beat_at_ms, total_completed, total_failed, active_count,
    loop_lag_ms, stuck_count, suspect_until_ms, failures
FROM leases
WHERE worker_id = ANY(CAST(:worker_id AS uuid[]))
ORDER BY worker_id
FOR UPDATE SKIP LOCKED;

-- name: read_ended_leases(worker_id)
SELECT CAST(worker_id AS text), lease_until_ms, lease_ms
FROM ended_leases
WHERE worker_id = ANY (CAST(:worker_id AS uuid[]));

-- name: read_leases(worker_id)
SELECT
    CAST(worker_id AS text), namespace, CAST(server_id AS text), lease_until_ms, lease_ms,
    token, beat_at_ms, previous_beat_at_ms, total_completed, total_failed, active_count,
    loop_lag_ms, stuck_count, suspect_until_ms, failures
FROM leases
WHERE worker_id = ANY(CAST(:worker_id AS uuid[]));

-- name: resume_leases(worker_id, server_id)
UPDATE leases AS l
SET suspect_until_ms = NULL, server_id = g.server_id
FROM unnest(CAST(:worker_id AS uuid[]), CAST(:server_id AS uuid[])) AS g (worker_id, server_id)
WHERE l.worker_id = ANY (ARRAY[g.worker_id])
  AND g.worker_id = ANY (ARRAY[g.worker_id])
  AND g.server_id = ANY (ARRAY[g.server_id])
RETURNING CAST(l.worker_id AS text);

-- name: suspect_leases(worker_id, token, suspect_until_ms)
UPDATE leases AS l
SET suspect_until_ms = g.suspect_until_ms
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:token AS bigint[]), CAST(:suspect_until_ms AS bigint[])
) AS g (worker_id, token, suspect_until_ms)
WHERE l.worker_id = ANY (ARRAY[g.worker_id])
  AND l.token = ANY (ARRAY[g.token])
  AND g.token = abs(g.token)
  AND g.worker_id = ANY (ARRAY[g.worker_id])
RETURNING CAST(l.worker_id AS text);
