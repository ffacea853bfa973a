-- name: delete_audit(before_ms, amount)
DELETE FROM audit
WHERE id IN (SELECT id FROM audit WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :amount)
RETURNING id;

-- name: insert_audit(id, at_ms, actor, action, namespaces, target, detail)
INSERT INTO audit (id, at_ms, actor, action, namespaces, target, detail)
VALUES (:id, :at_ms, :actor, :action, :namespaces, :target, :detail);

-- name: list_audit(scope, namespace, action, actor, before_id, amount)
-- A record is in a scope if none of its namespaces is outside, and it does not concern all of them.
SELECT a.id, a.at_ms, a.actor, a.action, a.namespaces, a.target, a.detail
FROM audit AS a
WHERE a.id < :before_id
  AND (:action = '' OR a.action = :action)
  AND (:actor = '' OR a.actor = :actor)
  AND (
    :namespace = ''
    OR EXISTS (SELECT 1 FROM json_each(a.namespaces) AS n WHERE n.value = :namespace)
  )
  AND (
    :scope = '[]'
    OR (
        a.namespaces <> '[]'
        AND NOT EXISTS (
            SELECT 1 FROM json_each(a.namespaces) AS n
            WHERE n.value NOT IN (SELECT s.value FROM json_each(:scope) AS s)
        )
    )
  )
ORDER BY a.id DESC
LIMIT :amount;
