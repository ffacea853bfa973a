-- name: delete_statistics(before_ms, amount)
DELETE FROM statistics
WHERE (namespace, queue, at_ms, server_id) IN (
    SELECT namespace, queue, at_ms, server_id
    FROM statistics
    WHERE at_ms < :before_ms
    ORDER BY at_ms
    LIMIT :amount
)
RETURNING at_ms;

-- name: list_statistics(namespace, queue, from_ms, to_ms, amount)
SELECT at_ms, body
FROM statistics
WHERE namespace = :namespace AND queue = :queue AND at_ms >= :from_ms AND at_ms < :to_ms
ORDER BY at_ms
LIMIT :amount;

-- name: save_statistics(namespace, queue, at_ms, server_id, body)
-- A minute may be written again, when it is not known whether it was.
INSERT INTO statistics (namespace, queue, at_ms, server_id, body)
VALUES (:namespace, :queue, :at_ms, :server_id, :body)
ON CONFLICT (namespace, queue, at_ms, server_id) DO UPDATE SET body = excluded.body;
