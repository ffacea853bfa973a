-- name: count_finished_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, seen_max)
-- As count_finished_tasks, over the index of runs.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state IN (:state, :other_state))
        AND (:outcome = '' OR last_outcome = :outcome)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(r.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :external_id_prefix = ''
            OR coalesce(instr(external_id, :external_id_prefix) = 1, false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed
    FROM history AS r INDEXED BY history_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY id DESC
    LIMIT :seen_max
) AS s;

-- name: count_live_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, seen_max)
-- As count_live_tasks, over the index of runs.
SELECT coalesce(sum(s.is_listed), 0), count(*)
FROM (
    SELECT
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state IN (:state, :other_state))
        AND (:outcome = '' OR last_outcome = :outcome)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(r.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :external_id_prefix = ''
            OR coalesce(instr(external_id, :external_id_prefix) = 1, false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed
    FROM tasks AS r INDEXED BY tasks_runs
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

-- name: find_external(namespace, external_id)
-- Of a live run; if there is none, of the one that ended last.
SELECT * FROM (
    SELECT namespace, external_id, id, input, 0 AS place
    FROM tasks
    WHERE namespace = :namespace AND external_id = :external_id
    UNION ALL
    SELECT * FROM (
        SELECT namespace, external_id, id, input, 1
        FROM history
        WHERE namespace = :namespace AND external_id = :external_id
        ORDER BY finished_at_ms DESC, id DESC
        LIMIT 1
    )
)
ORDER BY place
LIMIT 1;

-- name: find_finished_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, before_id, seen_max, amount)
-- As find_finished_tasks, over the index of runs.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state IN (:state, :other_state))
        AND (:outcome = '' OR last_outcome = :outcome)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(r.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :external_id_prefix = ''
            OR coalesce(instr(external_id, :external_id_prefix) = 1, false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM history AS r INDEXED BY history_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace AND id < :before_id
    ORDER BY id DESC
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: find_live_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, before_id, seen_max, amount)
-- As find_live_tasks, over the index of runs.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:queue = '' OR queue = :queue)
        AND (:type = '' OR type = :type)
        AND (:state = '' OR state IN (:state, :other_state))
        AND (:outcome = '' OR last_outcome = :outcome)
        AND NOT EXISTS (
            SELECT 1
            FROM json_each(:labels) AS wanted
            WHERE NOT EXISTS (
                SELECT 1
                FROM json_each(r.labels) AS own
                WHERE own.key = wanted.key AND own.value = wanted.value
            )
        )
        AND (
            :external_id_prefix = ''
            OR coalesce(instr(external_id, :external_id_prefix) = 1, false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed,
        row_number() OVER (ORDER BY id DESC) AS place
    FROM tasks AS r INDEXED BY tasks_runs
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
