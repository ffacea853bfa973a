-- name: count_finished_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, seen_max)
-- As count_finished_tasks, over the index of runs.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state IN (:state, :other_state))
        AND (CAST(:outcome AS text) = '' OR last_outcome = :outcome)
        AND (CAST(:labels AS text) = '{}' OR coalesce(labels @> CAST(:labels AS jsonb), false))
        AND (
            CAST(:external_id_prefix AS text) = ''
            OR coalesce(starts_with(external_id, :external_id_prefix), false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed
    FROM history
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: count_live_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, seen_max)
-- As count_live_tasks, over the index of runs.
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state IN (:state, :other_state))
        AND (CAST(:outcome AS text) = '' OR last_outcome = :outcome)
        AND (CAST(:labels AS text) = '{}' OR coalesce(labels @> CAST(:labels AS jsonb), false))
        AND (
            CAST(:external_id_prefix AS text) = ''
            OR coalesce(starts_with(external_id, :external_id_prefix), false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed
    FROM tasks
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: count_run_states(amount)
-- Live runs by state, for the metrics. One that waits because its code did not fit is parked.
SELECT s.state, count(*)
FROM (
    SELECT
        CASE
            WHEN state = 'waiting' AND last_outcome = 'parked' THEN 'parked' ELSE state
        END AS state
    FROM tasks
    WHERE journal_id IS NOT NULL
    LIMIT :amount
) AS s
GROUP BY s.state;

-- name: find_external(namespace, external_id)
-- Of a live run; if there is none, of the one that ended last.
SELECT e.namespace, e.external_id, CAST(e.id AS text), e.input, e.place
FROM unnest(CAST(:namespace AS text[]), CAST(:external_id AS text[])) AS d (namespace, external_id)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT t.namespace, t.external_id, t.id, t.input, 0 AS place
        FROM tasks AS t
        WHERE t.namespace = d.namespace AND t.external_id = d.external_id
        UNION ALL (
            SELECT h.namespace, h.external_id, h.id, h.input, 1
            FROM history AS h
            WHERE h.namespace = d.namespace AND h.external_id = d.external_id
            ORDER BY h.finished_at_ms DESC, h.id DESC
            LIMIT 1
        )
    ) AS f
    ORDER BY f.place
    LIMIT 1
) AS e;

-- name: find_finished_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, before_id, seen_max, amount)
-- As find_finished_tasks, over the index of runs.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state IN (:state, :other_state))
        AND (CAST(:outcome AS text) = '' OR last_outcome = :outcome)
        AND (CAST(:labels AS text) = '{}' OR coalesce(labels @> CAST(:labels AS jsonb), false))
        AND (
            CAST(:external_id_prefix AS text) = ''
            OR coalesce(starts_with(external_id, :external_id_prefix), false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM history
    WHERE journal_id IS NOT NULL AND namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: find_live_runs(namespace, queue, type, state, other_state, outcome, labels, created_from_ms, created_to_ms, external_id_prefix, before_id, seen_max, amount)
-- As find_live_tasks, over the index of runs.
SELECT CAST(s.id AS text), s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:queue AS text) = '' OR queue = :queue)
        AND (CAST(:type AS text) = '' OR type = :type)
        AND (CAST(:state AS text) = '' OR state IN (:state, :other_state))
        AND (CAST(:outcome AS text) = '' OR last_outcome = :outcome)
        AND (CAST(:labels AS text) = '{}' OR coalesce(labels @> CAST(:labels AS jsonb), false))
        AND (
            CAST(:external_id_prefix AS text) = ''
            OR coalesce(starts_with(external_id, :external_id_prefix), false)
        )
        AND created_at_ms >= :created_from_ms AND created_at_ms < :created_to_ms AS is_listed,
        row_number() OVER (ORDER BY namespace DESC, id DESC) AS place
    FROM tasks
    WHERE journal_id IS NOT NULL AND namespace = :namespace AND id < CAST(:before_id AS uuid)
    ORDER BY namespace DESC, id DESC
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: insert_linked_tasks(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum, parent_id, journal_id, external_id, origin)
-- Tasks that belong to runs, apart from plain ones, which pay nothing for these columns.
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels,
    spec, progress, input, input_checksum, progress_checksum, parent_id, journal_id, external_id,
    origin
)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded,
    CAST(labels AS jsonb), spec, progress, input, input_checksum, progress_checksum, parent_id,
    journal_id, external_id, origin
FROM unnest(CAST(:rows AS insert_linked_tasks_row[])) AS g;
