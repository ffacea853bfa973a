-- name: count_parked_runs(namespace, seen_max)
-- Live runs by type: how many are parked among those that were seen, and how many these are.
SELECT d.namespace, s.type, count(*) FILTER (WHERE s.is_parked), count(*)
FROM unnest(CAST(:namespace AS text[])) AS d (namespace)
CROSS JOIN LATERAL (
    SELECT t.type, t.state = 'waiting' AND t.last_outcome = 'parked' AS is_parked
    FROM tasks AS t
    WHERE t.journal_id IS NOT NULL AND t.namespace = d.namespace
    ORDER BY t.namespace, t.id
    LIMIT CAST(:seen_max AS integer)
) AS s
GROUP BY d.namespace, s.type;

-- name: list_late_closings(scope, before_ms, amount)
-- Ended owners whose children are not closed, up to an amount; as list_overdue.
SELECT o.namespace, count(*), min(o.ended_at_ms)
FROM (
    SELECT namespace, ended_at_ms
    FROM closings
    WHERE ended_at_ms < :before_ms
      AND (CAST(:scope AS jsonb) = '[]' OR CAST(:scope AS jsonb) @> to_jsonb(namespace))
    ORDER BY ended_at_ms, owner_id
    LIMIT CAST(:amount AS integer)
) AS o
GROUP BY o.namespace
ORDER BY o.namespace;

-- name: list_oldest_runs(namespace, amount)
-- Live runs with their journals, the oldest first: theirs are the longest.
SELECT d.namespace, CAST(s.id AS text), s.type, CAST(s.journal_id AS text)
FROM unnest(CAST(:namespace AS text[])) AS d (namespace)
CROSS JOIN LATERAL (
    SELECT t.id, t.type, t.journal_id
    FROM tasks AS t
    WHERE t.journal_id IS NOT NULL AND t.namespace = d.namespace
    ORDER BY t.namespace, t.id
    LIMIT CAST(:amount AS integer)
) AS s;
