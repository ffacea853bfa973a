-- name: insert_linked_tasks(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum, parent_id, journal_id, external_id, origin)
-- Tasks that belong to runs, apart from plain ones, which pay nothing for these columns.
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels,
    spec, progress, input, input_checksum, progress_checksum, parent_id, journal_id, external_id,
    origin
)
VALUES (
    :id, :namespace, :queue, :type, :state, :line, :priority, :created_at_ms, :run_at_ms,
    :attempt, :version, :worker_id, :handed_at_ms, :session_no, :last_outcome, :due_at_ms,
    :is_guarded, :labels, :spec, :progress, :input, :input_checksum, :progress_checksum,
    :parent_id, :journal_id, :external_id, :origin
);
