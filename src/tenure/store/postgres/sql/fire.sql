-- name: delete_fires(before_ms, amount)
-- Not those whose tasks go on, or whose ends are still to be noted.
DELETE FROM fires
WHERE (namespace, schedule_id, id) IN (
    SELECT f.namespace, f.schedule_id, f.id
    FROM fires AS f
    WHERE f.recorded_at_ms < CAST(:before_ms AS bigint)
      AND (f.outcome IS NOT NULL OR f.task_id IS NULL)
    ORDER BY f.recorded_at_ms
    LIMIT CAST(:amount AS integer)
)
RETURNING CAST(id AS text);

-- name: find_fires(namespace, key)
SELECT
    c.namespace, c.schedule_id, CAST(c.id AS text), c.key, c.kind, c.fire_at_ms, c.until_ms,
    c.recorded_at_ms, CAST(c.task_id AS text), c.outcome, c.settled_at_ms, c.reason, c.count,
    c.is_count_exact
FROM unnest(CAST(:namespace AS text[]), CAST(:key AS text[])) AS d (namespace, key)
CROSS JOIN LATERAL (
    SELECT * FROM fires AS f WHERE f.namespace = d.namespace AND f.key = d.key OFFSET 0
) AS c;

-- name: find_open_fires(namespace, task_id)
SELECT
    c.namespace, c.schedule_id, CAST(c.id AS text), c.key, c.kind, c.fire_at_ms, c.until_ms,
    c.recorded_at_ms, CAST(c.task_id AS text), c.outcome, c.settled_at_ms, c.reason, c.count,
    c.is_count_exact
FROM unnest(CAST(:namespace AS text[]), CAST(:task_id AS uuid[])) AS d (namespace, task_id)
CROSS JOIN LATERAL (
    SELECT *
    FROM fires AS f
    WHERE f.outcome IS NULL
      AND f.task_id IS NOT NULL
      AND f.namespace = d.namespace
      AND f.task_id = d.task_id
    OFFSET 0
) AS c;

-- name: find_ticks(namespace, schedule_id, after_key, until_key, amount)
-- The newest that have fired, by their keys, which sort by time.
SELECT d.namespace, d.schedule_id, c.fire_at_ms
FROM unnest(
    CAST(:namespace AS text[]), CAST(:schedule_id AS text[]), CAST(:after_key AS text[]),
    CAST(:until_key AS text[])
) AS d (namespace, schedule_id, after_key, until_key)
CROSS JOIN LATERAL (
    SELECT f.fire_at_ms
    FROM fires AS f
    WHERE f.namespace = d.namespace AND f.key > d.after_key AND f.key <= d.until_key
    ORDER BY f.key DESC
    LIMIT CAST(:amount AS integer)
) AS c;

-- name: insert_fires(namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome, settled_at_ms, reason, count, is_count_exact)
INSERT INTO fires (
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:schedule_id AS text[]), CAST(:id AS uuid[]), CAST(:key AS
    text[]), CAST(:kind AS text[]), CAST(:fire_at_ms AS bigint[]), CAST(:until_ms AS bigint[]),
    CAST(:recorded_at_ms AS bigint[]), CAST(:task_id AS uuid[]), CAST(:outcome AS text[]),
    CAST(:settled_at_ms AS bigint[]), CAST(:reason AS text[]), CAST(:count AS integer[]),
    CAST(:is_count_exact AS boolean[])
);

-- name: list_fires(namespace, schedule_id, before_id, amount)
SELECT
    namespace, schedule_id, CAST(id AS text), key, kind, fire_at_ms, until_ms, recorded_at_ms,
    CAST(task_id AS text), outcome, settled_at_ms, reason, count, is_count_exact
FROM fires
WHERE namespace = :namespace AND schedule_id = :schedule_id AND id < CAST(:before_id AS uuid)
ORDER BY namespace DESC, schedule_id DESC, id DESC
LIMIT CAST(:amount AS integer);

-- name: settle_fires(namespace, schedule_id, id, outcome, settled_at_ms)
-- Filled in once, whoever sees the end first.
UPDATE fires AS f
SET outcome = g.outcome, settled_at_ms = g.settled_at_ms
FROM unnest(
    CAST(:namespace AS text[]), CAST(:schedule_id AS text[]), CAST(:id AS uuid[]),
    CAST(:outcome AS text[]), CAST(:settled_at_ms AS bigint[])
) AS g (namespace, schedule_id, id, outcome, settled_at_ms)
WHERE f.namespace = g.namespace
  AND f.schedule_id = g.schedule_id
  AND f.id = g.id
  AND f.outcome IS NULL;

-- name: sweep_fires(after_namespace, after_task_id, amount)
-- Those whose ends were not noted, and whether the task is live. A window of the index, so that
-- many live tasks do not hide an end for ever.
SELECT
    f.namespace, f.schedule_id, CAST(f.task_id AS text),
    EXISTS (SELECT FROM tasks AS t WHERE t.namespace = f.namespace AND t.id = f.task_id)
FROM (
    SELECT namespace, schedule_id, task_id
    FROM fires
    WHERE outcome IS NULL
      AND task_id IS NOT NULL
      AND (namespace, task_id) > (CAST(:after_namespace AS text), CAST(:after_task_id AS uuid))
    ORDER BY namespace, task_id
    LIMIT CAST(:amount AS integer)
) AS f
ORDER BY f.namespace, f.task_id;
