-- name: delete_statistics(before_ms, amount)
DELETE FROM statistics
WHERE ctid = ANY (ARRAY(
    SELECT s.ctid
    FROM statistics AS s
    WHERE s.at_ms < :before_ms
    ORDER BY s.at_ms
    LIMIT CAST(:amount AS integer)
))
RETURNING at_ms;

-- name: list_statistics(namespace, queue, from_ms, to_ms, amount)
SELECT at_ms, body
FROM statistics
WHERE namespace = :namespace AND queue = :queue AND at_ms >= :from_ms AND at_ms < :to_ms
ORDER BY namespace, queue, at_ms
LIMIT CAST(:amount AS integer);

-- name: save_statistics(namespace, queue, at_ms, server_id, body)
-- A minute may be written again, when it is not known whether it was.
INSERT INTO statistics (namespace, queue, at_ms, server_id, body)
SELECT *
FROM unnest(
    CAST(:namespace AS text[]), CAST(:queue AS text[]), CAST(:at_ms AS bigint[]),
    CAST(:server_id AS uuid[]), CAST(:body AS bytea[])
)
ON CONFLICT (namespace, queue, at_ms, server_id) DO UPDATE SET body = excluded.body;
