-- name: delete_fires(before_ms, amount)
-- Not those whose tasks go on, or whose ends are still to be noted.
DELETE FROM fires
WHERE rowid IN (
    SELECT rowid
    FROM fires
    WHERE recorded_at_ms < :before_ms AND (outcome IS NOT NULL OR task_id IS NULL)
    ORDER BY recorded_at_ms
    LIMIT :amount
)
RETURNING id;

-- name: find_fires(namespace, key)
SELECT
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
FROM fires
WHERE namespace = :namespace AND key = :key;

-- name: find_open_fires(namespace, task_id)
SELECT
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
FROM fires INDEXED BY fires_open
WHERE outcome IS NULL AND task_id IS NOT NULL AND namespace = :namespace AND task_id = :task_id;

-- name: find_ticks(namespace, schedule_id, after_key, until_key, amount)
-- The newest that have fired, by their keys, which sort by time.
SELECT namespace, schedule_id, fire_at_ms
FROM fires
WHERE namespace = :namespace
  AND :schedule_id IS NOT NULL
  AND key > :after_key
  AND key <= :until_key
ORDER BY key DESC
LIMIT :amount;

-- name: insert_fires(namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome, settled_at_ms, reason, count, is_count_exact)
INSERT INTO fires (
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
)
VALUES (
    :namespace, :schedule_id, :id, :key, :kind, :fire_at_ms, :until_ms, :recorded_at_ms, :task_id,
    :outcome, :settled_at_ms, :reason, :count, :is_count_exact
);

-- name: list_fires(namespace, schedule_id, before_id, amount)
SELECT
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
FROM fires
WHERE namespace = :namespace AND schedule_id = :schedule_id AND id < :before_id
ORDER BY id DESC
LIMIT :amount;

-- name: settle_fires(namespace, schedule_id, id, outcome, settled_at_ms)
-- Filled in once, whoever sees the end first.
UPDATE fires
SET outcome = :outcome, settled_at_ms = :settled_at_ms
WHERE namespace = :namespace AND schedule_id = :schedule_id AND id = :id AND outcome IS NULL;

-- name: sweep_fires(after_namespace, after_task_id, amount)
-- Those whose ends were not noted, and whether the task is live. A window of the index, so that
-- many live tasks do not hide an end for ever.
SELECT
    f.namespace, f.schedule_id, f.task_id,
    EXISTS (SELECT 1 FROM tasks AS t WHERE t.namespace = f.namespace AND t.id = f.task_id)
FROM (
    SELECT namespace, schedule_id, task_id
    FROM fires INDEXED BY fires_open
    WHERE outcome IS NULL
      AND task_id IS NOT NULL
      AND (namespace, task_id) > (:after_namespace, :after_task_id)
    ORDER BY namespace, task_id
    LIMIT :amount
) AS f
ORDER BY f.namespace, f.task_id;
