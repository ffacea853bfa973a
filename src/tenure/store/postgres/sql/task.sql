-- name: claim_tasks(namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount, takes_runs)
-- One probe per (queue, type, line, priority): a million waiting tasks of a type that no worker
-- here can run cost nothing. The row comparison starts at the low-water mark, after the dead
-- entries that a long-open snapshot keeps in the index. A large input stays where it is (limits:
-- CLAIM_INPUT_BYTES_MAX), only its size is returned, without reading it.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress,
    CASE WHEN octet_length(t.input) <= 16384 THEN t.input END,
    CASE WHEN octet_length(t.input) > 16384 THEN NULL ELSE t.input_checksum END,
    t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin,
    CASE WHEN octet_length(t.input) > 16384 THEN octet_length(t.input) ELSE 0 END
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:type AS text[]),
    CAST(:line AS smallint[]), CAST(:priority_min AS smallint[]),
    CAST(:priority_max AS smallint[]), CAST(:mark_run_at_ms AS bigint[]),
    CAST(:mark_id AS uuid[]), CAST(:amount AS integer[]), CAST(:takes_runs AS boolean[])
) AS d (
    namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount,
    takes_runs
)
CROSS JOIN LATERAL (
    SELECT *
    FROM tasks AS c
    WHERE c.line > 0
      AND c.namespace = d.namespace
      AND c.queue = d.queue
      AND c.type = d.type
      AND c.line = d.line
      AND (c.priority, c.run_at_ms, c.id) >= (d.priority_min, d.mark_run_at_ms, d.mark_id)
      AND c.priority <= d.priority_max
      AND (d.takes_runs OR c.journal_id IS NULL)
    ORDER BY c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
    LIMIT d.amount
    FOR UPDATE SKIP LOCKED
) AS t;

-- name: count_held(namespace, queue)
SELECT d.namespace, d.queue, t.held
FROM unnest(CAST(:namespace AS text[]), CAST(:queue AS text[])) AS d (namespace, queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS held
    FROM tasks AS c
    WHERE c.worker_id IS NOT NULL AND c.namespace = d.namespace AND c.queue = d.queue
) AS t;

-- name: count_worker_held(namespace, queue, worker_id)
SELECT CAST(d.worker_id AS text), t.held, t.handed_at_ms
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:worker_id AS uuid[])
) AS d (namespace, queue, worker_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS held, coalesce(max(c.handed_at_ms), 0) AS handed_at_ms
    FROM tasks AS c
    WHERE c.worker_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.queue = d.queue
      AND c.worker_id = d.worker_id
) AS t;

-- name: find_tasks(namespace, id)
-- Which tasks are live, without their payloads.
SELECT d.namespace, CAST(d.id AS text)
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT 1 FROM tasks AS c WHERE c.namespace = d.namespace AND c.id = d.id OFFSET 0
) AS t;

-- name: finish_tasks(namespace, id, version, state, attempt, worker_id, last_outcome, finished_at_ms, progress, output, progress_checksum, output_checksum)
-- Each live row is looked up by its primary key, then deleted by its place, whatever the
-- statistics say. As a plain join this compared every row with every item after a VACUUM of the
-- empty table (50 million pairs for 500 items and 100,000 rows), and hashed the whole table at
-- 500 items even with good statistics. OFFSET 0 keeps the lookup a lookup; comparing id and
-- version once more outside makes the planner expect few rows, so that it reads them by place.
-- The version is compared a third time where the row is written, in case it changed meanwhile:
-- every write of a task increases it.
WITH found AS MATERIALIZED (
    SELECT c.place, g.*
    FROM unnest(CAST(:rows AS finish_tasks_checked_row[])) AS g
    CROSS JOIN LATERAL (
        SELECT l.ctid AS place, l.id, l.version
        FROM tasks AS l
        WHERE l.namespace = g.namespace AND l.id = g.id
        OFFSET 0
    ) AS c
    WHERE c.id = g.id AND c.version = g.version
), gone AS (
    DELETE FROM tasks AS t
    USING found AS g
    WHERE t.ctid = g.place AND t.version = g.version
    RETURNING
        t.created_at_ms, t.run_at_ms, t.handed_at_ms, g.finished_at_ms, g.attempt,
        t.version + 1 AS version, t.session_no, t.priority, t.id, g.worker_id, g.state,
        t.namespace, t.queue, t.type, g.last_outcome, t.labels, t.spec, g.progress, t.input,
        g.output, t.input_checksum, g.progress_checksum, g.output_checksum, t.parent_id,
        t.journal_id, t.external_id, t.origin
)
INSERT INTO history (
    created_at_ms, run_at_ms, handed_at_ms, finished_at_ms, attempt, version, session_no,
    priority, id, worker_id, state, namespace, queue, type, last_outcome, labels, spec, progress,
    input, output, input_checksum, progress_checksum, output_checksum, parent_id, journal_id,
    external_id, origin
)
SELECT * FROM gone
RETURNING CAST(id AS text);

-- name: insert_alone(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum, worker_version, lease_ms, late_since_ms, slots, from_ms, until_ms)
-- An enqueue that is a transaction by itself, within a span of the store's time. If the task is
-- handed out with it, its worker must be as it is remembered (held by the lock that lock_receivers
-- takes, and not waited for, so that the time stays true), not late, its queue not braked. If slots
-- are given, what it holds is counted after the lock. Without slots the lock of share_workers would
-- do; a second way to the worker costs 8 µs in every write that does not go it.
WITH receiver AS MATERIALIZED (
    SELECT w.namespace, w.queue, w.id
    FROM workers AS w
    JOIN leases AS l ON l.worker_id = w.id
    LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
    WHERE w.id = CAST(:worker_id AS uuid)
      AND w.version = CAST(:worker_version AS integer)
      AND l.lease_ms = CAST(:lease_ms AS bigint)
      AND l.beat_at_ms > CAST(:late_since_ms AS bigint)
      AND COALESCE(NOT q.is_paused AND q.concurrency_max = 0, true)
    FOR UPDATE OF w SKIP LOCKED
)
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels,
    spec, progress, input, input_checksum, progress_checksum
)
SELECT
    CAST(:id AS uuid), CAST(:namespace AS text), CAST(:queue AS text), CAST(:type AS text),
    CAST(:state AS text), CAST(:line AS smallint), CAST(:priority AS smallint),
    CAST(:created_at_ms AS bigint), CAST(:run_at_ms AS bigint), CAST(:attempt AS integer),
    CAST(:version AS integer), CAST(:worker_id AS uuid), CAST(:handed_at_ms AS bigint),
    CAST(:session_no AS integer), CAST(:last_outcome AS text), CAST(:due_at_ms AS bigint),
    CAST(:is_guarded AS boolean), CAST(:labels AS jsonb), CAST(:spec AS bytea),
    CAST(:progress AS bytea), CAST(:input AS bytea), CAST(:input_checksum AS bigint),
    CAST(:progress_checksum AS bigint)
WHERE floor(extract(epoch FROM clock_timestamp()) * 1000)
      BETWEEN CAST(:from_ms AS bigint) AND CAST(:until_ms AS bigint)
  AND (
      CAST(:worker_id AS uuid) IS NULL
      OR EXISTS (
          SELECT 1
          FROM receiver AS w
          WHERE CAST(:slots AS integer) = 0
             OR held_now(w.namespace, w.queue, w.id, CAST(:slots AS integer))
                < CAST(:slots AS integer)
      )
  )
RETURNING CAST(id AS text);

-- name: insert_tasks(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum)
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels,
    spec, progress, input, input_checksum, progress_checksum
)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,
    version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded,
    CAST(labels AS jsonb), spec, progress, input, input_checksum, progress_checksum
FROM unnest(CAST(:rows AS insert_tasks_checked_row[])) AS g;

-- name: list_waiting(amount)
-- The head of every line that has a claimable task, one index probe each: how long the first one
-- has waited costs the same with ten waiting tasks and with ten million.
WITH RECURSIVE heads AS (
    (
        SELECT namespace, queue, type, line, priority, run_at_ms
        FROM tasks
        WHERE line > 0
        ORDER BY namespace, queue, type, line, priority, run_at_ms, id
        LIMIT 1
    )
    UNION ALL
    SELECT t.*
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms
        FROM tasks AS c
        WHERE c.line > 0
          AND (c.namespace, c.queue, c.type, c.line, c.priority)
            > (h.namespace, h.queue, h.type, h.line, h.priority)
        ORDER BY c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
        LIMIT 1
    ) AS t
)
SELECT
    h.namespace, h.queue, h.type, h.run_at_ms, coalesce(q.is_paused, false),
    coalesce(q.concurrency_max, 0)
FROM (SELECT * FROM heads LIMIT CAST(:amount AS integer)) AS h
LEFT JOIN queues AS q ON q.namespace = h.namespace AND q.name = h.queue;

-- name: list_waiting_in(scope, amount)
-- The same for some namespaces, one after the other.
WITH RECURSIVE heads AS (
    (
        SELECT f.*
        FROM jsonb_array_elements_text(CAST(:scope AS jsonb)) AS s (name)
        CROSS JOIN LATERAL (
            SELECT c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms
            FROM tasks AS c
            WHERE c.line > 0 AND c.namespace = s.name
            ORDER BY c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
            LIMIT 1
        ) AS f
    )
    UNION ALL
    SELECT t.*
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms
        FROM tasks AS c
        WHERE c.line > 0
          AND c.namespace = h.namespace
          AND (c.queue, c.type, c.line, c.priority) > (h.queue, h.type, h.line, h.priority)
        ORDER BY c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
        LIMIT 1
    ) AS t
)
SELECT
    h.namespace, h.queue, h.type, h.run_at_ms, coalesce(q.is_paused, false),
    coalesce(q.concurrency_max, 0)
FROM (SELECT * FROM heads LIMIT CAST(:amount AS integer)) AS h
LEFT JOIN queues AS q ON q.namespace = h.namespace AND q.name = h.queue;

-- name: load_cancelling(worker_id)
SELECT CAST(worker_id AS text), CAST(id AS text), attempt
FROM tasks
WHERE state = 'cancelling' AND worker_id = ANY(CAST(:worker_id AS uuid[]));

-- name: load_due(now_ms, amount)
SELECT
    CAST(id AS text), namespace, queue, type, state, line, priority, created_at_ms, run_at_ms,
    attempt, version, CAST(worker_id AS text), handed_at_ms, session_no, last_outcome,
    due_at_ms, is_guarded, CAST(labels AS text), spec, progress, CAST(NULL AS bytea),
    CAST(NULL AS bigint), progress_checksum,
    CAST(journal_id AS text), CAST(parent_id AS text),
    external_id, origin
FROM tasks
WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms
ORDER BY due_at_ms
LIMIT CAST(:amount AS integer)
FOR UPDATE SKIP LOCKED;

-- name: load_held(namespace, queue, worker_id, amount)
-- Ordered outside: to save a sort the planner would read the namespace by its primary key.
SELECT
    CAST(id AS text), namespace, queue, type, state, line, priority, created_at_ms, run_at_ms,
    attempt, version, CAST(worker_id AS text), handed_at_ms, session_no, last_outcome,
    due_at_ms, is_guarded, CAST(labels AS text), spec, progress, CAST(NULL AS bytea),
    CAST(NULL AS bigint), progress_checksum,
    CAST(journal_id AS text), CAST(parent_id AS text),
    external_id, origin
FROM (
    SELECT *
    FROM tasks AS c
    WHERE c.worker_id IS NOT NULL
      AND c.namespace = :namespace
      AND c.queue = :queue
      AND c.worker_id = CAST(:worker_id AS uuid)
    LIMIT CAST(:amount AS integer)
    FOR UPDATE
) AS held
ORDER BY held.id;

-- name: load_inputs(namespace, id)
-- Of rows that this transaction has locked, with their checksums.
SELECT t.namespace, CAST(t.id AS text), t.input, t.input_checksum, t.spec
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT c.namespace, c.id, c.input, c.input_checksum, c.spec
    FROM tasks AS c
    WHERE c.namespace = d.namespace AND c.id = d.id
    OFFSET 0
) AS t;

-- name: load_suspects(namespace, queue, worker_id)
SELECT CAST(t.worker_id AS text), t.progress, t.version, t.progress_checksum
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:worker_id AS uuid[])
) AS d (namespace, queue, worker_id)
JOIN tasks AS t
  ON t.worker_id IS NOT NULL
 AND t.namespace = d.namespace
 AND t.queue = d.queue
 AND t.worker_id = d.worker_id
WHERE t.is_guarded;

-- name: load_tasks(namespace, id)
-- One lookup per item, whatever the statistics say (see finish_tasks), which locks in the order of
-- the items.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress, CAST(NULL AS bytea), CAST(NULL AS bigint),
    t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT *
    FROM tasks AS c
    WHERE c.namespace = d.namespace AND c.id = d.id
    FOR UPDATE
) AS t;

-- name: look_inputs(namespace, id)
-- With their checksums. A large input stays where it is, as in the claim; only its size is returned.
SELECT
    t.namespace, CAST(t.id AS text),
    CASE WHEN octet_length(t.input) <= 16384 THEN t.input END,
    CASE WHEN octet_length(t.input) > 16384 THEN NULL ELSE t.input_checksum END,
    t.spec,
    CASE WHEN octet_length(t.input) > 16384 THEN octet_length(t.input) ELSE 0 END
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT c.namespace, c.id, c.input, c.input_checksum, c.spec
    FROM tasks AS c
    WHERE c.namespace = d.namespace AND c.id = d.id
    OFFSET 0
) AS t;

-- name: next_due()
SELECT min(due_at_ms) FROM tasks WHERE due_at_ms IS NOT NULL;

-- name: peek_tasks(namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount, takes_runs)
-- As claim_tasks, but without its locks, which would be written to the log and waited for.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress,
    CASE WHEN octet_length(t.input) <= 16384 THEN t.input END,
    CASE WHEN octet_length(t.input) > 16384 THEN NULL ELSE t.input_checksum END,
    t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin,
    CASE WHEN octet_length(t.input) > 16384 THEN octet_length(t.input) ELSE 0 END
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:type AS text[]),
    CAST(:line AS smallint[]), CAST(:priority_min AS smallint[]),
    CAST(:priority_max AS smallint[]), CAST(:mark_run_at_ms AS bigint[]),
    CAST(:mark_id AS uuid[]), CAST(:amount AS integer[]), CAST(:takes_runs AS boolean[])
) AS d (
    namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount,
    takes_runs
)
CROSS JOIN LATERAL (
    SELECT *
    FROM tasks AS c
    WHERE c.line > 0
      AND c.namespace = d.namespace
      AND c.queue = d.queue
      AND c.type = d.type
      AND c.line = d.line
      AND (c.priority, c.run_at_ms, c.id) >= (d.priority_min, d.mark_run_at_ms, d.mark_id)
      AND c.priority <= d.priority_max
      AND (d.takes_runs OR c.journal_id IS NULL)
    ORDER BY c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
    LIMIT d.amount
) AS t;

-- name: read_held(namespace, queue, worker_id)
SELECT CAST(d.worker_id AS text), CAST(t.id AS text), t.attempt
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:worker_id AS uuid[])
) AS d (namespace, queue, worker_id)
CROSS JOIN LATERAL (
    SELECT c.id, c.attempt
    FROM tasks AS c
    WHERE c.worker_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.queue = d.queue
      AND c.worker_id = d.worker_id
    OFFSET 0
) AS t;

-- name: read_tasks(namespace, id)
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress, t.input, t.input_checksum, t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM tasks AS c WHERE c.namespace = d.namespace AND c.id = d.id OFFSET 0
) AS t;

-- name: update_alone(namespace, id, version, state, line, run_at_ms, attempt, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, progress, progress_checksum, worker_version, lease_ms, late_since_ms, slots, from_ms, until_ms)
-- A hand-out that is a transaction by itself: see insert_alone.
WITH receiver AS MATERIALIZED (
    SELECT w.namespace, w.queue, w.id
    FROM workers AS w
    JOIN leases AS l ON l.worker_id = w.id
    LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
    WHERE w.id = CAST(:worker_id AS uuid)
      AND w.version = CAST(:worker_version AS integer)
      AND l.lease_ms = CAST(:lease_ms AS bigint)
      AND l.beat_at_ms > CAST(:late_since_ms AS bigint)
      AND COALESCE(NOT q.is_paused AND q.concurrency_max = 0, true)
    FOR UPDATE OF w SKIP LOCKED
)
UPDATE tasks AS t
SET state = :state,
    line = :line,
    run_at_ms = :run_at_ms,
    attempt = :attempt,
    version = CAST(:version AS integer) + 1,
    worker_id = CAST(:worker_id AS uuid),
    handed_at_ms = :handed_at_ms,
    session_no = :session_no,
    last_outcome = :last_outcome,
    due_at_ms = :due_at_ms,
    is_guarded = :is_guarded,
    progress = :progress,
    progress_checksum = :progress_checksum
WHERE t.namespace = :namespace
  AND t.id = CAST(:id AS uuid)
  AND t.version = CAST(:version AS integer)
  AND floor(extract(epoch FROM clock_timestamp()) * 1000)
      BETWEEN CAST(:from_ms AS bigint) AND CAST(:until_ms AS bigint)
  AND EXISTS (
      SELECT 1
      FROM receiver AS w
      WHERE CAST(:slots AS integer) = 0
         OR held_now(w.namespace, w.queue, w.id, CAST(:slots AS integer))
            < CAST(:slots AS integer)
  )
RETURNING CAST(t.id AS text);

-- name: update_tasks(namespace, id, version, state, line, run_at_ms, attempt, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, progress, progress_checksum)
-- By place, after a lookup by primary key: see finish_tasks.
WITH found AS MATERIALIZED (
    SELECT c.place, g.*
    FROM unnest(CAST(:rows AS update_tasks_checked_row[])) AS g
    CROSS JOIN LATERAL (
        SELECT l.ctid AS place, l.id, l.version
        FROM tasks AS l
        WHERE l.namespace = g.namespace AND l.id = g.id
        OFFSET 0
    ) AS c
    WHERE c.id = g.id AND c.version = g.version
)
UPDATE tasks AS t
SET state = g.state,
    line = g.line,
    run_at_ms = g.run_at_ms,
    attempt = g.attempt,
    version = g.version + 1,
    worker_id = g.worker_id,
    handed_at_ms = g.handed_at_ms,
    session_no = g.session_no,
    last_outcome = g.last_outcome,
    due_at_ms = g.due_at_ms,
    is_guarded = g.is_guarded,
    progress = g.progress,
    progress_checksum = g.progress_checksum
FROM found AS g
WHERE t.ctid = g.place AND t.version = g.version
RETURNING CAST(t.id AS text);

-- name: vacuum_tasks()
VACUUM (TRUNCATE off, SKIP_LOCKED on) tasks;
