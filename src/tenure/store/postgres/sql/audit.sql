-- name: delete_audit(before_ms, amount)
DELETE FROM audit
WHERE id = ANY (ARRAY(
    SELECT a.id
    FROM audit AS a
    WHERE a.at_ms < :before_ms
    ORDER BY a.at_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING CAST(id AS text);

-- name: insert_audit(id, at_ms, actor, action, namespaces, target, detail)
INSERT INTO audit (id, at_ms, actor, action, namespaces, target, detail)
SELECT *
FROM unnest(
    CAST(:id AS uuid[]), CAST(:at_ms AS bigint[]), CAST(:actor AS text[]),
    CAST(:action AS text[]), CAST(:namespaces AS text[]), CAST(:target AS text[]),
    CAST(:detail AS text[])
);

-- name: list_audit(scope, namespace, action, actor, before_id, amount)
-- A record is in a scope if none of its namespaces is outside, and it does not concern all of them.
SELECT CAST(a.id AS text), a.at_ms, a.actor, a.action, a.namespaces, a.target, a.detail
FROM audit AS a
WHERE a.id < CAST(:before_id AS uuid)
  AND (CAST(:action AS text) = '' OR a.action = :action)
  AND (CAST(:actor AS text) = '' OR a.actor = :actor)
  AND (
    CAST(:namespace AS text) = ''
    OR EXISTS (
        SELECT FROM json_array_elements_text(CAST(a.namespaces AS json)) AS n (name)
        WHERE n.name = :namespace
    )
  )
  AND (
    CAST(:scope AS text) = '[]'
    OR (
        a.namespaces <> '[]'
        AND NOT EXISTS (
            SELECT FROM json_array_elements_text(CAST(a.namespaces AS json)) AS n (name)
            WHERE n.name NOT IN (
                SELECT s.name
                FROM json_array_elements_text(CAST(CAST(:scope AS text) AS json)) AS s (name)
            )
        )
    )
  )
ORDER BY a.id DESC
LIMIT CAST(:amount AS integer);
