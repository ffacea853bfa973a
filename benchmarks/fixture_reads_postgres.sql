-- What is in a store whose reads are measured; parameters are asyncpg's own ($1, …).

-- name: insert_pending
-- $1 waiting tasks: two of three types in each of $2 queues; the twenty oldest are in a queue of
-- their own.
INSERT INTO tasks (created_at_ms, run_at_ms, handed_at_ms, attempt, version, session_no, line,
    priority, is_guarded, id, state, namespace, queue, type, spec, input)
SELECT $3, $3, 0, 0, 1, 0, 1, 5, false,
    CAST('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), 'pending', $4,
    CASE WHEN n <= 20 THEN 'rare' ELSE 'queue-' || lpad(CAST(n % $2 AS text), 6, '0') END,
    'type-' || CAST(n / CAST($2 AS bigint) % 3 AS text), $5, $6
FROM generate_series(1, CAST($1 AS bigint)) AS made (n)

-- name: insert_finished
-- $1 finished tasks, older than all that wait; one of 10,000 failed.
INSERT INTO history (created_at_ms, run_at_ms, handed_at_ms, finished_at_ms, attempt, version,
    session_no, priority, id, worker_id, state, namespace, queue, type, last_outcome, spec, input,
    output)
SELECT $3, $3, $3, $3, 1, 2, 1, 5,
    CAST('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), NULL,
    CASE WHEN n % 10000 = 0 THEN 'failed' ELSE 'succeeded' END, $4,
    'queue-' || lpad(CAST(n % $2 AS text), 6, '0'), 'type-0', 'succeeded', $5, $6, $6
FROM generate_series(1, CAST($1 AS bigint)) AS made (n)
