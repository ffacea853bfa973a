-- name: advance_closings(namespace, owner_id, journal_id, after_id)
UPDATE closings AS c
SET after_id = g.after_id
FROM unnest(
    CAST(:namespace AS text[]), CAST(:owner_id AS uuid[]), CAST(:journal_id AS uuid[]),
    CAST(:after_id AS uuid[])
) AS g (namespace, owner_id, journal_id, after_id)
WHERE c.namespace = g.namespace AND c.owner_id = g.owner_id AND c.journal_id = g.journal_id;

-- name: delete_closings(namespace, owner_id, journal_id)
DELETE FROM closings AS c
USING unnest(
    CAST(:namespace AS text[]), CAST(:owner_id AS uuid[]), CAST(:journal_id AS uuid[])
) AS g (namespace, owner_id, journal_id)
WHERE c.namespace = g.namespace AND c.owner_id = g.owner_id AND c.journal_id = g.journal_id;

-- name: insert_closings(namespace, owner_id, journal_id, is_group, ended_at_ms, after_id)
-- Owners that have live children now, and groups of runs that have: everything else that the
-- transaction writes is written, and nobody can make more children.
INSERT INTO closings (namespace, owner_id, journal_id, is_group, ended_at_ms, after_id)
WITH ended AS (
    SELECT *
    FROM unnest(
        CAST(:namespace AS text[]), CAST(:owner_id AS uuid[]), CAST(:journal_id AS uuid[]),
        CAST(:is_group AS boolean[]), CAST(:ended_at_ms AS bigint[]), CAST(:after_id AS uuid[])
    ) AS g (namespace, owner_id, journal_id, is_group, ended_at_ms, after_id)
)
SELECT e.*
FROM ended AS e
CROSS JOIN LATERAL (
    SELECT 1
    FROM tasks AS t
    WHERE t.parent_id IS NOT NULL AND t.namespace = e.namespace AND t.parent_id = e.owner_id
    LIMIT 1
) AS live
UNION ALL
SELECT e.namespace, s.group_id, s.journal_id, true, e.ended_at_ms, e.after_id
FROM ended AS e
CROSS JOIN LATERAL (
    SELECT g.group_id, g.journal_id
    FROM groups AS g
    WHERE g.namespace = e.namespace
      AND g.run_id = e.owner_id
      AND g.journal_id = e.journal_id
      AND g.open_count > 0
    OFFSET 0
) AS s
ON CONFLICT DO NOTHING
RETURNING CAST(owner_id AS text);

-- name: oldest_closing()
SELECT min(ended_at_ms) FROM closings;

-- name: take_closing()
SELECT
    namespace, CAST(owner_id AS text), CAST(journal_id AS text), is_group, ended_at_ms,
    CAST(after_id AS text)
FROM closings
ORDER BY ended_at_ms, owner_id
LIMIT 1
FOR UPDATE SKIP LOCKED;
