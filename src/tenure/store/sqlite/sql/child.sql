-- name: count_children(namespace, parent_id, amount)
-- Live children of runs: as many as matter.
SELECT :namespace, :parent_id, count(*)
FROM (
    SELECT 1
    FROM tasks INDEXED BY tasks_parent
    WHERE parent_id IS NOT NULL AND namespace = :namespace AND parent_id = :parent_id
    LIMIT :amount
);

-- name: find_children(namespace, parent_id, after_id, amount)
-- Ids alone: they are locked with all other tasks of a batch, in one order.
SELECT namespace, parent_id, id
FROM tasks INDEXED BY tasks_parent
WHERE parent_id IS NOT NULL
  AND namespace = :namespace
  AND parent_id = :parent_id
  AND id > :after_id
ORDER BY id
LIMIT :amount;

-- name: find_live_external(namespace, external_id)
-- The live runs that have external ids.
SELECT namespace, external_id, id
FROM tasks INDEXED BY tasks_external
WHERE external_id IS NOT NULL AND namespace = :namespace AND external_id = :external_id;

-- name: lock_free_tasks(namespace, id)
-- As load_tasks: the single writer is the lock.
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, NULL, NULL, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: read_children(namespace, parent_id, after_id, amount)
-- What whoever holds a run has to know of its live children.
SELECT namespace, parent_id, id, type, journal_id, origin
FROM tasks INDEXED BY tasks_parent
WHERE parent_id IS NOT NULL
  AND namespace = :namespace
  AND parent_id = :parent_id
  AND id > :after_id
ORDER BY id
LIMIT :amount;
