-- name: claim_tasks(namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount, takes_runs)
-- A large input stays where it is (limits: CLAIM_INPUT_BYTES_MAX), only its size is returned,
-- without reading it.
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress,
    CASE WHEN length(input) <= 16384 THEN input END,
    CASE WHEN length(input) > 16384 THEN NULL ELSE input_checksum END,
    progress_checksum,
    journal_id, parent_id, external_id, origin,
    CASE WHEN length(input) > 16384 THEN length(input) ELSE 0 END
FROM tasks
WHERE line > 0
  AND namespace = :namespace
  AND queue = :queue
  AND type = :type
  AND line = :line
  AND (priority, run_at_ms, id) >= (:priority_min, :mark_run_at_ms, :mark_id)
  AND priority <= :priority_max
  AND (:takes_runs OR journal_id IS NULL)
ORDER BY namespace, queue, type, line, priority, run_at_ms, id
LIMIT :amount;

-- name: count_held(namespace, queue)
SELECT :namespace, :queue, count(*)
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL AND namespace = :namespace AND queue = :queue;

-- name: count_worker_held(namespace, queue, worker_id)
SELECT :worker_id, count(*), coalesce(max(handed_at_ms), 0)
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = :worker_id;

-- name: find_tasks(namespace, id)
-- Which tasks are live, without their payloads.
SELECT namespace, id
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: finish_tasks(namespace, id, version, state, attempt, worker_id, last_outcome, finished_at_ms, progress, output, progress_checksum, output_checksum)
-- A list of many rows: one statement per task costs nearly twice as much.
WITH ends (
    namespace, id, version, state, attempt, worker_id, last_outcome, finished_at_ms, progress,
    output, progress_checksum, output_checksum
) AS (
    VALUES (
        :namespace, :id, :version, :state, :attempt, :worker_id, :last_outcome,
        :finished_at_ms, :progress, :output, :progress_checksum, :output_checksum
    )
)
INSERT INTO history (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, labels, spec, progress, input, output,
    finished_at_ms, input_checksum, progress_checksum, output_checksum, parent_id, journal_id,
    external_id, origin
)
SELECT
    t.id, t.namespace, t.queue, t.type, e.state, t.priority, t.created_at_ms, t.run_at_ms,
    e.attempt, t.version + 1, e.worker_id, t.handed_at_ms, t.session_no, e.last_outcome, t.labels,
    t.spec, e.progress, t.input, e.output, e.finished_at_ms, t.input_checksum,
    e.progress_checksum, e.output_checksum, t.parent_id, t.journal_id, t.external_id, t.origin
FROM ends AS e
CROSS JOIN tasks AS t
WHERE t.namespace = e.namespace AND t.id = e.id AND t.version = e.version
-- A client that used the id of a finished task again must not stop its batches; the first accepted
-- row stays, and counts as written: the count shows whether a row has changed.
ON CONFLICT (namespace, id) DO UPDATE SET version = history.version;
-- A list too: for a subquery SQLite first collects the rows to delete.
DELETE FROM tasks
WHERE namespace = :namespace AND id IN (:id);

-- name: insert_alone(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum, worker_version, lease_ms, late_since_ms, slots, from_ms, until_ms)
-- An enqueue that is a transaction by itself, within a span of the store's time. If the task is
-- handed out with it, its worker must be as it is remembered, not late, and its queue not braked.
-- If slots are given, it must hold less.
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, input, input_checksum, progress_checksum
)
SELECT
    :id, :namespace, :queue, :type, :state, :line, :priority, :created_at_ms, :run_at_ms,
    :attempt, :version, :worker_id, :handed_at_ms, :session_no, :last_outcome, :due_at_ms,
    :is_guarded, :labels, :spec, :progress, :input, :input_checksum, :progress_checksum
WHERE now_ms() BETWEEN :from_ms AND :until_ms
  AND (
      :worker_id IS NULL
      OR EXISTS (
          SELECT 1
          FROM workers AS w
          JOIN leases AS l ON l.worker_id = w.id
          LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
          WHERE w.id = :worker_id
            AND w.version = :worker_version
            AND l.lease_ms = :lease_ms
            AND l.beat_at_ms > :late_since_ms
            AND COALESCE(NOT q.is_paused AND q.concurrency_max = 0, true)
            AND (
                :slots = 0
                OR :slots > (
                    SELECT count(*)
                    FROM tasks AS h INDEXED BY tasks_held
                    WHERE h.worker_id IS NOT NULL
                      AND h.namespace = w.namespace
                      AND h.queue = w.queue
                      AND h.worker_id = w.id
                )
            )
      )
  );

-- name: insert_tasks(id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec, progress, input, input_checksum, progress_checksum)
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, input, input_checksum, progress_checksum
)
VALUES (
    :id, :namespace, :queue, :type, :state, :line, :priority, :created_at_ms, :run_at_ms,
    :attempt, :version, :worker_id, :handed_at_ms, :session_no, :last_outcome, :due_at_ms,
    :is_guarded, :labels, :spec, :progress, :input, :input_checksum, :progress_checksum
);

-- name: list_waiting(amount)
-- The head of every line that has a claimable task, one index probe each: how long the first one
-- has waited costs the same with ten waiting tasks and with ten million. For that the probe needs a
-- form that SQLite can use: with plain columns of another row it uses only the namespace, and
-- without the last possible instant it reads each task of the line it comes from (ten lines of
-- 100,000 tasks: 2 s instead of 1 ms).
WITH RECURSIVE heads (namespace, queue, type, line, priority, run_at_ms) AS (
    SELECT * FROM (
        SELECT namespace, queue, type, line, priority, run_at_ms
        FROM tasks INDEXED BY tasks_claim
        WHERE line > 0
        ORDER BY namespace, queue, type, line, priority, run_at_ms, id
        LIMIT 1
    )
    UNION ALL
    SELECT t.namespace, t.queue, t.type, t.line, t.priority, t.run_at_ms
    FROM heads AS h
    CROSS JOIN tasks AS t ON (t.namespace, t.id) = (
        SELECT c.namespace, c.id
        FROM tasks AS c INDEXED BY tasks_claim
        WHERE c.line > 0
          AND (c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms)
            > (+h.namespace, +h.queue, +h.type, +h.line, +h.priority, 9223372036854775807)
        ORDER BY c.namespace, c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
        LIMIT 1
    )
    LIMIT :amount
)
SELECT
    h.namespace, h.queue, h.type, h.run_at_ms, coalesce(q.is_paused, 0),
    coalesce(q.concurrency_max, 0)
FROM heads AS h
LEFT JOIN queues AS q ON q.namespace = h.namespace AND q.name = h.queue;

-- name: list_waiting_in(scope, amount)
-- The same for some namespaces, one after the other.
WITH RECURSIVE heads (namespace, queue, type, line, priority, run_at_ms) AS (
    SELECT t.namespace, t.queue, t.type, t.line, t.priority, t.run_at_ms
    FROM json_each(:scope) AS s
    CROSS JOIN tasks AS t ON (t.namespace, t.id) = (
        SELECT c.namespace, c.id
        FROM tasks AS c INDEXED BY tasks_claim
        WHERE c.line > 0 AND c.namespace = s.value
        ORDER BY c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
        LIMIT 1
    )
    UNION ALL
    SELECT t.namespace, t.queue, t.type, t.line, t.priority, t.run_at_ms
    FROM heads AS h
    CROSS JOIN tasks AS t ON (t.namespace, t.id) = (
        SELECT c.namespace, c.id
        FROM tasks AS c INDEXED BY tasks_claim
        WHERE c.line > 0
          AND c.namespace = h.namespace
          AND (c.queue, c.type, c.line, c.priority, c.run_at_ms)
            > (+h.queue, +h.type, +h.line, +h.priority, 9223372036854775807)
        ORDER BY c.queue, c.type, c.line, c.priority, c.run_at_ms, c.id
        LIMIT 1
    )
    LIMIT :amount
)
SELECT
    h.namespace, h.queue, h.type, h.run_at_ms, coalesce(q.is_paused, 0),
    coalesce(q.concurrency_max, 0)
FROM heads AS h
LEFT JOIN queues AS q ON q.namespace = h.namespace AND q.name = h.queue;

-- name: load_cancelling(worker_id)
SELECT worker_id, id, attempt
FROM tasks
WHERE state = 'cancelling' AND worker_id = :worker_id;

-- name: load_due(now_ms, amount)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, NULL, NULL, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms
ORDER BY due_at_ms
LIMIT :amount;

-- name: load_held(namespace, queue, worker_id, amount)
-- Without statistics SQLite would read the whole namespace.
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, NULL, NULL, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = :worker_id
LIMIT :amount;

-- name: load_inputs(namespace, id)
-- With their checksums.
SELECT namespace, id, input, input_checksum, spec
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: load_suspects(namespace, queue, worker_id)
SELECT worker_id, progress, version, progress_checksum
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = :worker_id
  AND is_guarded;

-- name: load_tasks(namespace, id)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, NULL, NULL, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: look_inputs(namespace, id)
-- With their checksums. A large input stays where it is, as in the claim; only its size is returned.
SELECT
    namespace, id,
    CASE WHEN length(input) <= 16384 THEN input END,
    CASE WHEN length(input) > 16384 THEN NULL ELSE input_checksum END,
    spec,
    CASE WHEN length(input) > 16384 THEN length(input) ELSE 0 END
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: next_due()
SELECT min(due_at_ms) FROM tasks WHERE due_at_ms IS NOT NULL;

-- name: peek_tasks(namespace, queue, type, line, priority_min, priority_max, mark_run_at_ms, mark_id, amount, takes_runs)
-- As claim_tasks: the single writer is the lock.
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress,
    CASE WHEN length(input) <= 16384 THEN input END,
    CASE WHEN length(input) > 16384 THEN NULL ELSE input_checksum END,
    progress_checksum,
    journal_id, parent_id, external_id, origin,
    CASE WHEN length(input) > 16384 THEN length(input) ELSE 0 END
FROM tasks
WHERE line > 0
  AND namespace = :namespace
  AND queue = :queue
  AND type = :type
  AND line = :line
  AND (priority, run_at_ms, id) >= (:priority_min, :mark_run_at_ms, :mark_id)
  AND priority <= :priority_max
  AND (:takes_runs OR journal_id IS NULL)
ORDER BY namespace, queue, type, line, priority, run_at_ms, id
LIMIT :amount;

-- name: read_held(namespace, queue, worker_id)
SELECT worker_id, id, attempt
FROM tasks INDEXED BY tasks_held
WHERE worker_id IS NOT NULL
  AND namespace = :namespace
  AND queue = :queue
  AND worker_id = :worker_id;

-- name: read_tasks(namespace, id)
SELECT
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels, spec,
    progress, input, input_checksum, progress_checksum,
    journal_id, parent_id, external_id, origin
FROM tasks
WHERE namespace = :namespace AND id = :id;

-- name: update_alone(namespace, id, version, state, line, run_at_ms, attempt, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, progress, progress_checksum, worker_version, lease_ms, late_since_ms, slots, from_ms, until_ms)
-- A hand-out that is a transaction by itself: see insert_alone.
UPDATE tasks
SET state = :state,
    line = :line,
    run_at_ms = :run_at_ms,
    attempt = :attempt,
    version = :version + 1,
    worker_id = :worker_id,
    handed_at_ms = :handed_at_ms,
    session_no = :session_no,
    last_outcome = :last_outcome,
    due_at_ms = :due_at_ms,
    is_guarded = :is_guarded,
    progress = :progress,
    progress_checksum = :progress_checksum
WHERE namespace = :namespace
  AND id = :id
  AND version = :version
  AND now_ms() BETWEEN :from_ms AND :until_ms
  AND EXISTS (
      SELECT 1
      FROM workers AS w
      JOIN leases AS l ON l.worker_id = w.id
      LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
      WHERE w.id = :worker_id
        AND w.version = :worker_version
        AND l.lease_ms = :lease_ms
        AND l.beat_at_ms > :late_since_ms
        AND COALESCE(NOT q.is_paused AND q.concurrency_max = 0, true)
        AND (
            :slots = 0
            OR :slots > (
                SELECT count(*)
                FROM tasks AS h INDEXED BY tasks_held
                WHERE h.worker_id IS NOT NULL
                  AND h.namespace = w.namespace
                  AND h.queue = w.queue
                  AND h.worker_id = w.id
            )
        )
  );

-- name: update_tasks(namespace, id, version, state, line, run_at_ms, attempt, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, progress, progress_checksum)
UPDATE tasks
SET state = :state,
    line = :line,
    run_at_ms = :run_at_ms,
    attempt = :attempt,
    version = :version + 1,
    worker_id = :worker_id,
    handed_at_ms = :handed_at_ms,
    session_no = :session_no,
    last_outcome = :last_outcome,
    due_at_ms = :due_at_ms,
    is_guarded = :is_guarded,
    progress = :progress,
    progress_checksum = :progress_checksum
WHERE namespace = :namespace AND id = :id AND version = :version;

-- name: vacuum_tasks()
-- Nothing to do here: free pages are used again.
SELECT 1 WHERE 0;
