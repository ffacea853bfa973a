-- name: count_finished_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed
    FROM history
    WHERE namespace = :namespace
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: count_live_tasks(namespace, queue, type, state, seen_max)
-- What find_live_tasks would find among the newest rows, and how many rows were read.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed
    FROM tasks
    WHERE namespace = :namespace
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: count_state_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks, over the index of one state; see find_state_tasks.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type) AS is_listed
    FROM tasks
    WHERE state <> 'pending'
      AND state <> 'dispatched'
      AND namespace = :namespace
      AND state = :state
    ORDER BY namespace DESC, state DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: count_unsuccessful_tasks(namespace, queue, type, state, seen_max)
-- As count_live_tasks, over the index of failed and cancelled tasks.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed
    FROM history
    WHERE state <> 'succeeded' AND namespace = :namespace
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: find_finished_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM history
    WHERE namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: find_held_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Of the tasks that workers hold, if these are few: the first row says how many were read.
WITH seen AS MATERIALIZED (
    SELECT id, queue, type, state
    FROM tasks
    WHERE worker_id IS NOT NULL AND namespace = :namespace
    LIMIT CAST(:seen_max AS integer)
)
SELECT '', count(*) FROM seen
UNION ALL
(
    SELECT CAST(id AS text), 0
    FROM seen
    WHERE id < CAST(:before_id AS uuid)
      AND (CAST(:queue AS text) = '' OR queue = :queue)
      AND (CAST(:type AS text) = '' OR type = :type)
      AND (CAST(:state AS text) = '' OR state = :state)
    ORDER BY seen.id DESC
    LIMIT CAST(:amount AS integer)
);

-- name: find_live_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Newest first by id. An empty text means no filter. The number of rows that are read is limited;
-- the last of them is always in the result, so that the next page begins after it.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM tasks
    WHERE namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: find_queue_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- Of the live tasks of a queue, if these are few: the first row says how many were read.
WITH seen AS MATERIALIZED (
    (
        SELECT id, type, state
        FROM tasks
        WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    (
        SELECT id, type, state
        FROM tasks
        WHERE line = 0 AND worker_id IS NULL AND namespace = :namespace AND queue = :queue
    )
    UNION ALL
    (
        SELECT id, type, 'pending'
        FROM tasks
        WHERE line > 0 AND namespace = :namespace AND queue = :queue
    )
    LIMIT CAST(:seen_max AS integer)
)
SELECT '', count(*) FROM seen
UNION ALL
(
    SELECT CAST(id AS text), 0
    FROM seen
    WHERE id < CAST(:before_id AS uuid)
      AND (CAST(:type AS text) = '' OR type = :type)
      AND (CAST(:state AS text) = '' OR state = :state)
    ORDER BY seen.id DESC
    LIMIT CAST(:amount AS integer)
);

-- name: find_state_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks, over the index of the states in which few tasks are: however many wait, they
-- are not read.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type) AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, state DESC, id DESC) AS place
    FROM tasks
    WHERE state <> 'pending'
      AND state <> 'dispatched'
      AND namespace = :namespace
      AND state = :state
      AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, state DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: find_unsuccessful_tasks(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks, over the index of failed and cancelled tasks.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM history
    WHERE state <> 'succeeded' AND namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: list_finished_tasks(namespace, id)
-- Without payloads: a page may have many tasks, and no list shows payloads.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, 0, t.priority, t.created_at_ms,
    t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text), t.handed_at_ms, t.session_no,
    t.last_outcome, NULL, false, CAST(t.labels AS text), t.spec, t.progress, NULL, NULL,
    t.progress_checksum, NULL, NULL, t.finished_at_ms,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM history AS c WHERE c.namespace = d.namespace AND c.id = d.id OFFSET 0
) AS t;

-- name: list_live_tasks(namespace, id)
-- Without payloads, as list_finished_tasks.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress, NULL, NULL,
    t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM tasks AS c WHERE c.namespace = d.namespace AND c.id = d.id OFFSET 0
) AS t;

-- name: list_worker_held(namespace, queue, worker_id, amount)
-- A worker holds no more than its slots, so that all of them can be sorted.
SELECT CAST(id AS text), type, state, attempt, handed_at_ms
FROM tasks AS t
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = CAST(:worker_id AS uuid)
ORDER BY handed_at_ms, t.id
LIMIT CAST(:amount AS integer);

-- name: set_plans()
-- The same settings for one transaction as READ_SETTINGS for a session.
SELECT
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true);

-- name: sum_worker_held(namespace, queue, worker_id, amount)
-- Of each worker: how many live attempts name it, how many of them are not confirmed, and since when
-- the oldest is held.
SELECT CAST(d.worker_id AS text), c.held, c.unconfirmed, c.oldest
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:worker_id AS uuid[])
) AS d (namespace, queue, worker_id)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS held,
        count(*) FILTER (WHERE h.state = 'dispatched') AS unconfirmed,
        min(h.handed_at_ms) AS oldest
    FROM (
        SELECT t.state, t.handed_at_ms
        FROM tasks AS t
        WHERE t.worker_id IS NOT NULL
          AND t.namespace = d.namespace
          AND t.queue = d.queue
          AND t.worker_id = d.worker_id
        LIMIT CAST(:amount AS integer)
    ) AS h
) AS c;
