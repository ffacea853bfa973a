-- name: count_finished_runs(namespace, queue, type, state, seen_max)
-- As count_finished_tasks, over the index of runs.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed
    FROM history INDEXED BY history_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_live_runs(namespace, queue, type, state, seen_max)
-- As count_live_tasks, over the index of runs.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed
    FROM tasks INDEXED BY tasks_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_run_states(amount)
-- Live runs by state, for the metrics. One that waits because its code did not fit is parked.
SELECT s.state, count(*)
FROM (
    SELECT
        CASE
            WHEN state = 'waiting' AND last_outcome = 'parked' THEN 'parked' ELSE state
        END AS state
    FROM tasks INDEXED BY tasks_runs
    WHERE journal_id IS NOT NULL
    LIMIT :amount
) AS s
GROUP BY s.state;

-- name: find_finished_runs(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_finished_tasks, over the index of runs.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM history INDEXED BY history_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: find_live_runs(namespace, queue, type, state, before_id, seen_max, amount)
-- As find_live_tasks, over the index of runs.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state = :state) AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM tasks INDEXED BY tasks_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

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
