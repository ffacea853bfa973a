-- name: delete_history(before_ms, amount)
DELETE FROM attempts
WHERE (namespace, task_id, number) IN (
    SELECT namespace, task_id, number FROM attempts
    WHERE ended_at_ms < :before_ms
    ORDER BY ended_at_ms
    LIMIT :amount
);
DELETE FROM history
WHERE (namespace, id) IN (
    SELECT h.namespace, h.id FROM history AS h
    WHERE h.finished_at_ms < :before_ms
      AND (
          h.journal_id IS NULL
          OR NOT EXISTS (SELECT 1 FROM journal AS j WHERE j.journal_id = h.journal_id)
      )
    ORDER BY h.finished_at_ms
    LIMIT :amount
)
RETURNING id;

-- name: drop_days(before_day)
-- No partitions here: delete_history does the work.
SELECT :before_day * 0;

-- name: ensure_days(day)
SELECT :day WHERE 0;

-- name: find_attempts(namespace, task_id, number, amount)
-- Ended attempts of a task behind one of them.
SELECT
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
FROM attempts
WHERE namespace = :namespace AND task_id = :task_id AND number > :number
ORDER BY number
LIMIT :amount;

-- name: insert_attempts(namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after, error, error_checksum, callback, callback_checksum)
INSERT INTO attempts (
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
)
VALUES (
    :namespace, :task_id, :number, :outcome, :worker_id, :handed_at_ms, :ended_at_ms,
    :state_after, :error, :error_checksum, :callback, :callback_checksum
);

-- name: insert_history(id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output, finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id, external_id, origin)
INSERT INTO history (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output,
    finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id,
    external_id, origin
)
VALUES (
    :id, :namespace, :queue, :type, :state, :priority, :created_at_ms, :run_at_ms, :attempt,
    :version, :worker_id, :handed_at_ms, :session_no, :last_outcome, :labels, :spec, :progress,
    :input, :output, :finished_at_ms, :input_checksum, :progress_checksum, :output_checksum,
    :parent_id, :journal_id, :external_id, :origin
);

-- name: load_attempts(namespace, task_id)
SELECT
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
FROM attempts
WHERE namespace = :namespace AND task_id = :task_id
ORDER BY number;

-- name: load_ended(namespace, task_id, number)
SELECT
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
FROM attempts
WHERE namespace = :namespace AND task_id = :task_id AND number = :number;

-- name: load_history(namespace, id)
SELECT
    id, namespace, queue, type, state, 0, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, NULL, 0, labels, spec, progress, input,
    input_checksum, progress_checksum, output, output_checksum, finished_at_ms,
    journal_id, parent_id, external_id, origin
FROM history
WHERE namespace = :namespace AND id = :id;
