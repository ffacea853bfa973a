-- name: delete_worker_changes(before_ms, amount)
DELETE FROM worker_changes
WHERE ctid = ANY (ARRAY(
    SELECT w.ctid
    FROM worker_changes AS w
    WHERE w.at_ms < :before_ms
    ORDER BY w.at_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING CAST(id AS text);

-- name: insert_worker_changes(namespace, worker_id, id, at_ms, change, cause, audit_id)
INSERT INTO worker_changes (namespace, worker_id, id, at_ms, change, cause, audit_id)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:worker_id AS uuid[]), CAST(:id AS uuid[]),
    CAST(:at_ms AS bigint[]), CAST(:change AS text[]), CAST(:cause AS text[]),
    CAST(:audit_id AS text[])
);

-- name: list_worker_changes(namespace, worker_id, before_id, amount)
SELECT CAST(id AS text), namespace, CAST(worker_id AS text), at_ms, change, cause, audit_id
FROM worker_changes
WHERE namespace = :namespace
  AND worker_id = CAST(:worker_id AS uuid)
  AND id < CAST(:before_id AS uuid)
ORDER BY namespace DESC, worker_id DESC, id DESC
LIMIT CAST(:amount AS integer);

-- name: read_drains(namespace, worker_id)
-- When each of some workers began to drain; one that never did is missing.
SELECT CAST(d.worker_id AS text), c.at_ms, c.audit_id
FROM unnest(CAST(:namespace AS text[]), CAST(:worker_id AS uuid[])) AS d (namespace, worker_id)
CROSS JOIN LATERAL (
    SELECT w.at_ms, w.audit_id
    FROM worker_changes AS w
    WHERE w.namespace = d.namespace AND w.worker_id = d.worker_id AND w.change = 'draining'
    ORDER BY w.namespace DESC, w.worker_id DESC, w.id DESC
    LIMIT 1
) AS c;
