-- The same as fixture_reads_postgres.sql.

-- name: insert_pending
WITH RECURSIVE made (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM made WHERE n < ?1)
INSERT INTO tasks (created_at_ms, run_at_ms, handed_at_ms, attempt, version, session_no, line,
    priority, is_guarded, id, state, namespace, queue, type, spec, input)
SELECT ?3, ?3, 0, 0, 1, 0, 1, 5, 0,
    printf('01900000-0000-7000-8000-%012x', n), 'pending', ?4,
    CASE WHEN n <= 20 THEN 'rare' ELSE printf('queue-%06d', n % ?2) END,
    'type-' || (n / ?2 % 3), ?5, ?6
FROM made

-- name: insert_finished
WITH RECURSIVE made (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM made WHERE n < ?1)
INSERT INTO history (created_at_ms, run_at_ms, handed_at_ms, finished_at_ms, attempt, version,
    session_no, priority, id, worker_id, state, namespace, queue, type, last_outcome, spec, input,
    output)
SELECT ?3, ?3, ?3, ?3, 1, 2, 1, 5,
    printf('01800000-0000-7000-8000-%012x', n), NULL,
    CASE WHEN n % 10000 = 0 THEN 'failed' ELSE 'succeeded' END, ?4,
    printf('queue-%06d', n % ?2), 'type-0', 'succeeded', ?5, ?6, ?6
FROM made
