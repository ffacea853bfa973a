-- name: delete_history(before_ms, amount)
-- Retention drops whole days; this only empties the default partitions.
WITH gone AS (
    DELETE FROM attempts_default
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM attempts_default
        WHERE ended_at_ms < :before_ms
        LIMIT CAST(:amount AS integer)
    ))
)
DELETE FROM history_default
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM history_default
    WHERE finished_at_ms < :before_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING CAST(id AS text);

-- name: drop_days(before_day)
-- The function names tables without a schema: the path is set first, and ends with the transaction.
SELECT
    drop_day_partitions(CAST(:before_day AS bigint)),
    drop_journal_partitions(CAST(:before_day AS bigint))
FROM set_config(
    'search_path', concat_ws(', ', '{schema}', nullif(current_setting('search_path'), '')), true
);

-- name: ensure_days(day)
-- As drop_days.
SELECT ensure_day_partitions(CAST(:day AS bigint))
FROM set_config(
    'search_path', concat_ws(', ', '{schema}', nullif(current_setting('search_path'), '')), true
);

-- name: find_attempts(namespace, task_id, number, amount)
-- Ended attempts of a task behind one of them.
SELECT
    e.namespace, CAST(e.task_id AS text), e.number, e.outcome, CAST(e.worker_id AS text),
    e.handed_at_ms, e.ended_at_ms, e.state_after, e.error, e.error_checksum, e.callback,
    e.callback_checksum
FROM attempts AS e
WHERE e.namespace = :namespace
  AND e.task_id = CAST(:task_id AS uuid)
  AND e.number > CAST(:number AS integer)
ORDER BY e.number
LIMIT CAST(:amount AS integer);

-- name: insert_attempts(namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after, error, error_checksum, callback, callback_checksum)
INSERT INTO attempts (
    namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms, state_after,
    error, error_checksum, callback, callback_checksum
)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:task_id AS uuid[]), CAST(:number AS integer[]),
    CAST(:outcome AS text[]), CAST(:worker_id AS uuid[]), CAST(:handed_at_ms AS bigint[]),
    CAST(:ended_at_ms AS bigint[]), CAST(:state_after AS text[]), CAST(:error AS bytea[]),
    CAST(:error_checksum AS bigint[]), CAST(:callback AS bytea[]),
    CAST(:callback_checksum AS bigint[])
);

-- name: insert_history(id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output, finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id, external_id, origin)
INSERT INTO history (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output,
    finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id,
    external_id, origin
)
SELECT
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, CAST(labels AS jsonb), spec, progress,
    input, output, finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id,
    journal_id, external_id, origin
FROM unnest(
    CAST(:id AS uuid[]), CAST(:namespace AS text[]), CAST(:queue AS text[]),
    CAST(:type AS text[]), CAST(:state AS text[]), CAST(:priority AS smallint[]),
    CAST(:created_at_ms AS bigint[]), CAST(:run_at_ms AS bigint[]), CAST(:attempt AS integer[]),
    CAST(:version AS integer[]), CAST(:worker_id AS uuid[]), CAST(:handed_at_ms AS bigint[]),
    CAST(:session_no AS integer[]), CAST(:last_outcome AS text[]), CAST(:labels AS text[]),
    CAST(:spec AS bytea[]), CAST(:progress AS bytea[]), CAST(:input AS bytea[]),
    CAST(:output AS bytea[]), CAST(:finished_at_ms AS bigint[]),
    CAST(:input_checksum AS bigint[]), CAST(:progress_checksum AS bigint[]),
    CAST(:output_checksum AS bigint[]), CAST(:parent_id AS uuid[]), CAST(:journal_id AS uuid[]),
    CAST(:external_id AS text[]), CAST(:origin AS bytea[])
) AS g (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output,
    finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id,
    external_id, origin
);

-- name: load_attempts(namespace, task_id)
SELECT
    d.namespace, CAST(d.task_id AS text), a.number, a.outcome, CAST(a.worker_id AS text),
    a.handed_at_ms, a.ended_at_ms, a.state_after, a.error, a.error_checksum, a.callback,
    a.callback_checksum
FROM unnest(CAST(:namespace AS text[]), CAST(:task_id AS uuid[])) AS d (namespace, task_id)
CROSS JOIN LATERAL (
    SELECT * FROM attempts AS e
    WHERE e.namespace = d.namespace AND e.task_id = d.task_id
    OFFSET 0
) AS a
ORDER BY a.number;

-- name: load_ended(namespace, task_id, number)
SELECT
    d.namespace, CAST(d.task_id AS text), a.number, a.outcome, CAST(a.worker_id AS text),
    a.handed_at_ms, a.ended_at_ms, a.state_after, a.error, a.error_checksum, a.callback,
    a.callback_checksum
FROM unnest(
    CAST(:namespace AS text[]), CAST(:task_id AS uuid[]), CAST(:number AS integer[])
) AS d (namespace, task_id, number)
CROSS JOIN LATERAL (
    SELECT * FROM attempts AS e
    WHERE e.namespace = d.namespace AND e.task_id = d.task_id AND e.number = d.number
    OFFSET 0
) AS a;

-- name: load_history(namespace, id)
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, 0, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, NULL, false,
    CAST(t.labels AS text), t.spec, t.progress, t.input, t.input_checksum,
    t.progress_checksum, t.output, t.output_checksum, t.finished_at_ms,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM history AS h WHERE h.namespace = d.namespace AND h.id = d.id OFFSET 0
) AS t;
