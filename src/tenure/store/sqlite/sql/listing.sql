-- name: count_finished_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed
    FROM history
    WHERE namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_live_tasks(namespace, queue, type, state, seen_max)
-- What find_live_tasks would find among the newest rows, and how many rows were read.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed
    FROM tasks
    WHERE namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_state_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks, over the index of one state; see find_state_tasks.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type) AS is_listed
    FROM tasks INDEXED BY tasks_states
    WHERE state <> 'pending'
      AND state <> 'dispatched'
      AND namespace = :namespace
      AND state = :state
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_unsuccessful_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks, over the index of failed and cancelled tasks.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed
    FROM history INDEXED BY history_unsuccessful
    WHERE state <> 'succeeded' AND namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: find_finished_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM history
    WHERE namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: find_held_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Of the tasks that workers hold, if these are few: the first row says how many were read.
WITH seen AS MATERIALIZED (
    SELECT id, queue, type, state
    FROM tasks INDEXED BY tasks_held
    WHERE worker_id IS NOT NULL AND namespace = :namespace
    LIMIT :seen_max
)
SELECT '', count(*) FROM seen
UNION ALL
SELECT id, 0
FROM (
    SELECT id
    FROM seen
    WHERE id < :before_id
      AND (:queue = '' OR queue = :queue)
      AND (:type = '' OR type = :type)
      AND (:state = '' OR state = :state)
    ORDER BY id DESC
    LIMIT :amount
);

-- name: find_live_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Newest first by id. An empty text means no filter. The number of rows that are read is limited;
-- the last of them is always in the result, so that the next page begins after it.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM tasks
    WHERE namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: find_queue_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Of the live tasks of a queue, if these are few: the first row says how many were read.
WITH seen AS MATERIALIZED (
    SELECT id, type, state
    FROM (
        SELECT id, type, state
        FROM tasks INDEXED BY tasks_held
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    SELECT id, type, state
    FROM (
        SELECT id, type, state
        FROM tasks INDEXED BY tasks_resting
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    SELECT id, type, state
    FROM (
        SELECT id, type, 'pending' AS state
        FROM tasks INDEXED BY tasks_claim
        WHERE line > 0 AND namespace = :namespace AND queue = :queue
    )
    LIMIT :seen_max
)
SELECT '', count(*) FROM seen
UNION ALL
SELECT id, 0
FROM (
    SELECT id
    FROM seen
    WHERE id < :before_id
      AND (:type = '' OR type = :type)
      AND (:state = '' OR state = :state)
    ORDER BY id DESC
    LIMIT :amount
);

-- name: find_state_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks, over the index of the states in which few tasks are: however many wait, they
-- are not read.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM tasks INDEXED BY tasks_states
    WHERE state <> 'pending'
      AND state <> 'dispatched'
      AND namespace = :namespace
      AND state = :state
      AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: find_unsuccessful_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks, over the index of failed and cancelled tasks.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM history INDEXED BY history_unsuccessful
    WHERE state <> 'succeeded' AND namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: list_finished_tasks(namespace, id)
-- Without payloads: a page may have many tasks, and no list shows payloads.
SELECT
    id, namespace, queue, type, state, 0, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, NULL, 0, labels, spec, progress, NULL,
    NULL, progress_checksum, NULL, NULL, finished_at_ms,
    journal_id, parent_id, external_id, origin
FROM history
WHERE namespace = :namespace AND id = :id;

-- name: list_live_tasks(namespace, id)
-- Without payloads, as list_finished_tasks.
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, NULL, NULL, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: list_worker_held(namespace, queue, worker_id, amount)
-- A worker holds no more than its slots, so that all of them can be sorted.
SELECT id, type, state, attempt, handed_at_ms
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = :worker_id
ORDER BY handed_at_ms, id
LIMIT :amount;

-- name: set_plans()
-- Nothing to do here: the statements name their indexes.
SELECT 1 WHERE 0;

-- name: sum_worker_held(namespace, queue, worker_id, amount)
-- Of each worker: how many live attempts name it, how many of them are not confirmed, and since when
-- the oldest is held.
SELECT :worker_id, count(*), coalesce(sum(h.state = 'dispatched'), 0), min(h.handed_at_ms)
FROM (
    SELECT state, handed_at_ms
    FROM tasks INDEXED BY tasks_held
    WHERE worker_id IS NOT NULL
      AND namespace = :namespace
      AND queue = :queue
      AND worker_id = :worker_id
    LIMIT :amount
) AS h;
