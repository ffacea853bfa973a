-- name: delete_stops(worker_id, task_id, attempt)
-- A transaction that has locked one is about to delete it.
DELETE FROM stops AS s
USING (
    SELECT k.worker_id, k.task_id, k.attempt
    FROM stops AS k
    JOIN unnest(
        CAST(:worker_id AS uuid[]), CAST(:task_id AS uuid[]), CAST(:attempt AS integer[])
    ) AS g (worker_id, task_id, attempt) USING (worker_id, task_id, attempt)
    ORDER BY k.worker_id, k.task_id, k.attempt
    FOR UPDATE OF k SKIP LOCKED
) AS g
WHERE s.worker_id = g.worker_id AND s.task_id = g.task_id AND s.attempt = g.attempt
RETURNING CAST(s.worker_id AS text);

-- name: insert_stops(worker_id, task_id, attempt, cause)
INSERT INTO stops (worker_id, task_id, attempt, cause)
SELECT worker_id, task_id, attempt, cause
FROM unnest(
    CAST(:worker_id AS uuid[]), CAST(:task_id AS uuid[]), CAST(:attempt AS integer[]),
    CAST(:cause AS text[])
) AS g (worker_id, task_id, attempt, cause)
ON CONFLICT (worker_id, task_id, attempt) DO NOTHING
RETURNING CAST(worker_id AS text);

-- name: read_stops(worker_id)
SELECT CAST(worker_id AS text), CAST(task_id AS text), attempt, cause
FROM stops
WHERE worker_id = ANY (CAST(:worker_id AS uuid[]));

-- name: take_stops(worker_id)
-- With a heartbeat, whose answer carries them. If that is lost, the full held set of the next
-- heartbeat brings them again. A transaction that has locked one is about to send it.
DELETE FROM stops AS s
USING (
    SELECT worker_id, task_id, attempt
    FROM stops
    WHERE worker_id = ANY (CAST(:worker_id AS uuid[]))
    ORDER BY worker_id, task_id, attempt
    FOR UPDATE SKIP LOCKED
) AS g
WHERE s.worker_id = g.worker_id AND s.task_id = g.task_id AND s.attempt = g.attempt
RETURNING CAST(s.worker_id AS text), CAST(s.task_id AS text), s.attempt, s.cause;
