-- name: count_parked_runs(namespace, seen_max)
-- Live runs by type: how many are parked among those that were seen, and how many these are.
SELECT :namespace, s.type, coalesce(sum(s.is_parked), 0), count(*)
FROM (
    SELECT type, state = 'waiting' AND last_outcome = 'parked' AS is_parked
    FROM tasks INDEXED BY tasks_runs
    WHERE journal_id IS NOT NULL AND namespace = :namespace
    ORDER BY id
    LIMIT :seen_max
) AS s
GROUP BY s.type;

-- name: list_late_closings(scope, before_ms, amount)
-- Ended owners whose children are not closed, up to an amount; as list_overdue.
SELECT o.namespace, count(*), min(o.ended_at_ms)
FROM (
    SELECT namespace, ended_at_ms
    FROM closings
    WHERE ended_at_ms < :before_ms
      AND (:scope = '[]' OR namespace IN (SELECT s.value FROM json_each(:scope) AS s))
    ORDER BY ended_at_ms, owner_id
    LIMIT :amount
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: list_oldest_runs(namespace, amount)
-- Live runs with their journals, the oldest first: theirs are the longest.
SELECT namespace, id, type, journal_id
FROM tasks INDEXED BY tasks_runs
WHERE journal_id IS NOT NULL AND namespace = :namespace
ORDER BY id
LIMIT :amount;
