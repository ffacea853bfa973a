-- name: count_schedule_states(now_ms, amount)
-- Due ones and broken ones, each counted up to an amount.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM schedules INDEXED BY schedules_due
            WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms
            LIMIT :amount
        ) AS d
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM schedules INDEXED BY schedules_broken
            WHERE state = 'broken'
            LIMIT :amount
        ) AS b
    );

-- name: count_schedules(namespace, type, paused, seen_max)
SELECT count(*) FILTER (WHERE s.is_listed), count(*)
FROM (
    SELECT
        (:type = '' OR type = :type)
        AND (:paused = '' OR (state = 'paused') = (:paused = 'yes')) AS is_listed
    FROM schedules
    WHERE namespace = :namespace
    LIMIT :seen_max
) AS s;

-- name: delete_schedules(namespace, id, version)
DELETE FROM schedules
WHERE namespace = :namespace AND id = :id AND version = :version;

-- name: find_schedules(namespace, type, paused, after_id, seen_max, amount)
-- By id. An empty text means no filter. The number of rows that are read is limited; the last of
-- them is always in the result, so that the next page begins after it.
SELECT s.id, s.is_listed, s.place
FROM (
    SELECT
        id,
        (:type = '' OR type = :type)
        AND (:paused = '' OR (state = 'paused') = (:paused = 'yes')) AS is_listed,
        row_number() OVER (ORDER BY id) AS place
    FROM schedules
    WHERE namespace = :namespace AND id > :after_id
    ORDER BY id
    LIMIT :seen_max
) AS s
WHERE s.is_listed OR s.place = :seen_max
LIMIT :amount;

-- name: insert_schedules(namespace, id, type, state, due_at_ms, failure_count, created_at_ms, changed_at_ms, version, spec, progress)
INSERT INTO schedules (
    namespace, id, type, state, due_at_ms, failure_count, created_at_ms, changed_at_ms, version,
    spec, progress
)
VALUES (
    :namespace, :id, :type, :state, :due_at_ms, :failure_count, :created_at_ms, :changed_at_ms,
    :version, :spec, :progress
);

-- name: list_broken_schedules(scope, amount)
SELECT namespace, id
FROM schedules INDEXED BY schedules_broken
WHERE state = 'broken'
  AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
ORDER BY namespace, id
LIMIT :amount;

-- name: list_failing_schedules(scope, amount)
SELECT namespace, id, failure_count
FROM schedules INDEXED BY schedules_failing
WHERE failure_count >= 3
  AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
ORDER BY failure_count DESC, namespace, id
LIMIT :amount;

-- name: list_late_schedules(scope, before_ms, amount)
-- By namespace, with the one that has waited for the longest.
SELECT o.namespace, count(*), min(o.due_at_ms), min(o.id)
FROM (
    SELECT namespace, id, due_at_ms
    FROM schedules INDEXED BY schedules_due
    WHERE due_at_ms IS NOT NULL
      AND due_at_ms < :before_ms
      AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
    ORDER BY due_at_ms
    LIMIT :amount
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: load_active_schedules(namespace, after_id, amount)
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE namespace = :namespace AND id > :after_id AND due_at_ms IS NOT NULL
ORDER BY id
LIMIT :amount;

-- name: load_due_schedules(now_ms, amount)
-- One after the other in the order of the index: among many that are due at once none is preferred.
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules INDEXED BY schedules_due
WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms
ORDER BY due_at_ms
LIMIT :amount;

-- name: load_named_schedules(namespace, id, now_ms)
-- Of these the ones that are due.
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE namespace = :namespace AND id = :id AND due_at_ms IS NOT NULL AND due_at_ms <= :now_ms;

-- name: lock_schedule_counts(namespace)
SELECT namespace, count FROM schedule_counts WHERE namespace = :namespace;

-- name: lock_schedules(namespace, id)
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE namespace = :namespace AND id = :id;

-- name: next_due_schedule()
SELECT min(due_at_ms) FROM schedules INDEXED BY schedules_due WHERE due_at_ms IS NOT NULL;

-- name: raise_schedule_counts(namespace, more)
INSERT INTO schedule_counts (namespace, count)
VALUES (:namespace, :more)
ON CONFLICT (namespace) DO UPDATE SET count = count + :more;

-- name: read_due_schedules(now_ms, amount)
SELECT namespace, id
FROM schedules INDEXED BY schedules_due
WHERE due_at_ms IS NOT NULL AND due_at_ms <= :now_ms
ORDER BY due_at_ms
LIMIT :amount;

-- name: read_schedules(namespace, id)
SELECT
    namespace, id, type, state, due_at_ms, created_at_ms, changed_at_ms, version, spec, progress
FROM schedules
WHERE namespace = :namespace AND id = :id;

-- name: replace_schedules(namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress, type, spec)
UPDATE schedules
SET state = :state,
    due_at_ms = :due_at_ms,
    failure_count = :failure_count,
    changed_at_ms = :changed_at_ms,
    progress = :progress,
    type = :type,
    spec = :spec,
    version = :version + 1
WHERE namespace = :namespace AND id = :id AND version = :version;

-- name: update_schedules(namespace, id, version, state, due_at_ms, failure_count, changed_at_ms, progress)
-- Not the content, which may be large and rarely changes.
UPDATE schedules
SET state = :state,
    due_at_ms = :due_at_ms,
    failure_count = :failure_count,
    changed_at_ms = :changed_at_ms,
    progress = :progress,
    version = :version + 1
WHERE namespace = :namespace AND id = :id AND version = :version;
