-- name: advance_closings(namespace, owner_id, journal_id, after_id)
UPDATE closings
SET after_id = :after_id
WHERE namespace = :namespace AND owner_id = :owner_id AND journal_id = :journal_id;

-- name: delete_closings(namespace, owner_id, journal_id)
DELETE FROM closings
WHERE namespace = :namespace AND owner_id = :owner_id AND journal_id = :journal_id;

-- name: insert_closings(namespace, owner_id, journal_id, is_group, ended_at_ms, after_id)
-- Owners that have live children now, and groups of runs that have: everything else that the
-- transaction writes is written, and nobody can make more children.
INSERT INTO closings (namespace, owner_id, journal_id, is_group, ended_at_ms, after_id)
SELECT :namespace, :owner_id, :journal_id, :is_group, :ended_at_ms, :after_id
WHERE EXISTS (
    SELECT 1
    FROM tasks INDEXED BY tasks_parent
    WHERE parent_id IS NOT NULL AND namespace = :namespace AND parent_id = :owner_id
)
UNION ALL
SELECT g.namespace, g.group_id, g.journal_id, 1, :ended_at_ms, :after_id
FROM groups AS g INDEXED BY groups_run
WHERE g.namespace = :namespace
  AND g.run_id = :owner_id
  AND g.journal_id = :journal_id
  AND g.open_count > 0
ON CONFLICT DO NOTHING;

-- name: oldest_closing()
SELECT min(ended_at_ms) FROM closings;

-- name: take_closing()
SELECT namespace, owner_id, journal_id, is_group, ended_at_ms, after_id
FROM closings
ORDER BY ended_at_ms, owner_id
LIMIT 1;
