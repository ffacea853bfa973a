-- name: count_schedule_states(now_ms, amount)
-- Due ones and broken ones, each counted up to an amount.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM schedules
            WHERE due_at_ms IS NOT NULL AND due_at_ms <= CAST(:now_ms AS bigint)
            LIMIT CAST(:amount AS integer)
        ) AS d
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM schedules
            WHERE state = 'broken'
            LIMIT CAST(:amount AS integer)
        ) AS b
    );

-- name: count_schedules(namespace, type, paused, seen_max)
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (CAST(:type AS text) = '' OR type = :type)
        AND (
            CAST(:paused AS text) = ''
            OR (state = 'paused') = (CAST(:paused AS text) = 'yes')
        ) AS is_listed
    FROM schedules
    WHERE namespace = :namespace
    LIMIT CAST(:seen_max AS integer)
) AS s;

-- name: delete_schedules(namespace, id, version)
DELETE FROM schedules AS t
USING unnest(
    CAST(:namespace AS text[]), CAST(:id AS text[]), CAST(:version AS integer[])
) AS g (namespace, id, version)
WHERE t.namespace = g.namespace AND t.id = g.id AND t.version = g.version
RETURNING t.id;

-- name: find_schedules(namespace, type, paused, after_id, seen_max, amount)
-- By id. An empty text means no filter. The number of rows that are read is limited; the last of
-- them is always in the result, so that the next page begins after it.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (CAST(:type AS text) = '' OR type = :type)
        AND (
            CAST(:paused AS text) = ''
            OR (state = 'paused') = (CAST(:paused AS text) = 'yes')
        ) AS is_listed,
        row_number() OVER (ORDER BY namespace, id) AS place
    FROM schedules
    WHERE namespace = :namespace AND id > CAST(:after_id AS text)
    ORDER BY namespace, id
    LIMIT CAST(:seen_max AS integer)
) AS s
WHERE s.is_listed OR s.place = CAST(:seen_max AS integer)
LIMIT CAST(:amount AS integer);

-- name: insert_schedules(namespace, id, type, state, due_at_ms, failure_count, created_at_ms, changed_at_ms, version, spec, progress)
INSERT INTO schedules (
    namespace, id, type, state, due_at_ms, failure_count, created_at_ms, changed_at_ms, version,
    spec, progress
)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:id AS text[]), CAST(:type AS text[]),
    CAST(:state AS text[]), CAST(:due_at_ms AS bigint[]), CAST(:failure_count AS integer[]),
    CAST(:created_at_ms AS bigint[]), CAST(:changed_at_ms AS bigint[]),
    CAST(:version AS integer[]), CAST(:spec AS bytea[]), CAST(:progress AS bytea[])
);

-- name: list_broken_schedules(scope, amount)
SELECT namespace, id
FROM schedules
WHERE state = 'broken'
  AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
ORDER BY namespace, id
LIMIT CAST(:amount AS integer);

-- name: list_failing_schedules(scope, amount)
SELECT namespace, id, failure_count
FROM schedules
WHERE failure_count >= 3
  AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
ORDER BY failure_count DESC, namespace, id
LIMIT CAST(:amount AS integer);

-- name: list_late_schedules(scope, before_ms, amount)
-- By namespace, with the one that has waited for the longest.
SELECT o.namespace, count(*), min(o.due_at_ms), min(o.id)
FROM (
    SELECT namespace, id, due_at_ms
    FROM schedules
    WHERE due_at_ms IS NOT NULL
      AND due_at_ms < CAST(:before_ms AS bigint)
      AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
    ORDER BY due_at_ms
    LIMIT CAST(:amount AS integer)
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: load_active_schedules(namespace, after_id, amount)
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE namespace = :namespace AND id > CAST(:after_id AS text) AND due_at_ms IS NOT NULL
ORDER BY id
LIMIT CAST(:amount AS integer)
FOR UPDATE SKIP LOCKED;

-- name: load_due_schedules(now_ms, amount)
-- One after the other in the order of the index: among many that are due at once none is preferred.
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE due_at_ms IS NOT NULL AND due_at_ms <= CAST(:now_ms AS bigint)
ORDER BY due_at_ms
LIMIT CAST(:amount AS integer)
FOR UPDATE SKIP LOCKED;

-- name: load_named_schedules(namespace, id, now_ms)
-- Of these the ones that are due.
SELECT
    c.namespace, c.id, c.type, c.state, c.due_at_ms, c.created_at_ms, c.changed_at_ms, c.version,
    c.spec, c.progress
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS text[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT *
    FROM schedules AS s
    WHERE s.namespace = d.namespace
      AND s.id = d.id
      AND s.due_at_ms IS NOT NULL
      AND s.due_at_ms <= CAST(:now_ms AS bigint)
    FOR UPDATE SKIP LOCKED
) AS c;

-- name: lock_schedule_counts(namespace)
SELECT c.namespace, c.count
FROM unnest(CAST(:namespace AS text[])) AS d (namespace)
CROSS JOIN LATERAL (
    SELECT * FROM schedule_counts AS s WHERE s.namespace = d.namespace FOR UPDATE
) AS c;

-- name: lock_schedules(namespace, id)
SELECT
    c.namespace, c.id, c.type, c.state, c.due_at_ms, c.created_at_ms, c.changed_at_ms, c.version,
    c.spec, c.progress
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS text[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM schedules AS s WHERE s.namespace = d.namespace AND s.id = d.id FOR UPDATE
) AS c;

-- name: next_due_schedule()
SELECT min(due_at_ms) FROM schedules WHERE due_at_ms IS NOT NULL;

-- name: raise_schedule_counts(namespace, more)
INSERT INTO schedule_counts AS t (namespace, count)
SELECT *
FROM unnest(CAST(:namespace AS text[]), CAST(:more AS integer[]))
ON CONFLICT (namespace) DO UPDATE SET count = t.count + excluded.count;

-- name: read_due_schedules(now_ms, amount)
SELECT namespace, id
FROM schedules
WHERE due_at_ms IS NOT NULL AND due_at_ms <= CAST(:now_ms AS bigint)
ORDER BY due_at_ms
LIMIT CAST(:amount AS integer);

-- name: read_schedules(namespace, id)
SELECT
    c.namespace, c.id, c.type, c.state, c.due_at_ms, c.created_at_ms, c.changed_at_ms, c.version,
    c.spec, c.progress
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS text[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT * FROM schedules AS s WHERE s.namespace = d.namespace AND s.id = d.id OFFSET 0
) AS c;

-- name: replace_schedules(namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress, type, spec)
UPDATE schedules AS t
SET state = g.state,
    due_at_ms = g.due_at_ms,
    failure_count = g.failure_count,
    changed_at_ms = g.changed_at_ms,
    progress = g.progress,
    type = g.type,
    spec = g.spec,
    version = g.version + 1
FROM unnest(
    CAST(:namespace AS text[]), CAST(:id AS text[]), CAST(:version AS integer[]),
    CAST(:state AS text[]), CAST(:due_at_ms AS bigint[]), CAST(:failure_count AS integer[]),
    CAST(:changed_at_ms AS bigint[]), CAST(:progress AS bytea[]), CAST(:type AS text[]),
    CAST(:spec AS bytea[])
) AS g (
    namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress, type, spec
)
WHERE t.namespace = g.namespace AND t.id = g.id AND t.version = g.version
RETURNING t.id;

-- name: update_schedules(namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress)
-- Not the content, which may be large and rarely changes.
UPDATE schedules AS t
SET state = g.state,
    due_at_ms = g.due_at_ms,
    failure_count = g.failure_count,
    changed_at_ms = g.changed_at_ms,
    progress = g.progress,
    version = g.version + 1
FROM unnest(
    CAST(:namespace AS text[]), CAST(:id AS text[]), CAST(:version AS integer[]),
    CAST(:state AS text[]), CAST(:due_at_ms AS bigint[]), CAST(:failure_count AS integer[]),
    CAST(:changed_at_ms AS bigint[]), CAST(:progress AS bytea[])
) AS g (namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress)
WHERE t.namespace = g.namespace AND t.id = g.id AND t.version = g.version
RETURNING t.id;
