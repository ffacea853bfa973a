-- name: check_integrity()
SELECT integrity_check AS result FROM pragma_integrity_check;

-- name: read_size()
SELECT page_count * page_size AS size FROM pragma_page_count, pragma_page_size;

-- name: scan_attempts(namespace, task_id, number, amount)
SELECT
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
FROM attempts
WHERE (namespace, task_id, number) > (:namespace, :task_id, :number)
ORDER BY namespace, task_id, number
LIMIT :amount;

-- name: scan_history(namespace, id, amount)
SELECT
    id, namespace, queue, type, state, 0, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, NULL, 0, labels, spec, progress, input,
    input_checksum, progress_checksum, output, output_checksum, finished_at_ms,
    journal_id, parent_id, external_id, origin
FROM history
WHERE (namespace, id) > (:namespace, :id)
ORDER BY namespace, id
LIMIT :amount;

-- name: scan_tasks(namespace, id, amount)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, input, input_checksum, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE (namespace, id) > (:namespace, :id)
ORDER BY namespace, id
LIMIT :amount;
