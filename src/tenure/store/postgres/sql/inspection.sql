-- name: check_integrity()
-- PostgreSQL checks its own pages; here only the right to write is checked.
SELECT CASE WHEN pg_is_in_recovery() THEN 'the server is a read-only replica' ELSE 'ok' END
    AS result;

-- name: read_size()
SELECT pg_database_size(current_database()) AS size;

-- name: scan_attempts(namespace, task_id, number, amount)
SELECT
    namespace, CAST(task_id AS text), number, outcome, CAST(worker_id AS text), handed_at_ms,
    ended_at_ms, state_after, error, error_checksum, callback,
    callback_checksum
FROM attempts
WHERE (namespace, task_id, number)
    > (CAST(:namespace AS text), CAST(:task_id AS uuid), CAST(:number AS integer))
ORDER BY namespace, attempts.task_id, number
LIMIT CAST(:amount AS integer);

-- name: scan_history(namespace, id, amount)
SELECT
    CAST(id AS text), namespace, queue, type, state, 0, priority, created_at_ms, run_at_ms, attempt,
    version, CAST(worker_id AS text), handed_at_ms, session_no, last_outcome, NULL, false,
    CAST(labels AS text), spec, progress, input, input_checksum, progress_checksum, output,
    output_checksum, finished_at_ms,
    CAST(journal_id AS text), CAST(parent_id AS text),
    external_id, origin
FROM history
WHERE (namespace, id) > (CAST(:namespace AS text), CAST(:id AS uuid))
ORDER BY namespace, history.id
LIMIT CAST(:amount AS integer);

-- name: scan_tasks(namespace, id, amount)
SELECT
    CAST(id AS text), namespace, queue, type, state, line, priority, created_at_ms, run_at_ms,
    attempt, version, CAST(worker_id AS text), handed_at_ms, session_no, last_outcome, due_at_ms,
    is_guarded, CAST(labels AS text), spec, progress, input, input_checksum, progress_checksum,
    CAST(journal_id AS text), CAST(parent_id AS text),
    external_id, origin
FROM tasks
WHERE (namespace, id) > (CAST(:namespace AS text), CAST(:id AS uuid))
ORDER BY namespace, tasks.id
LIMIT CAST(:amount AS integer);
