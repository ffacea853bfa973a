-- name: free_space()
-- The next statement must need new space: rows that are only deleted would leave it theirs.
TRUNCATE space_probe;

-- name: reserve_space(body)
INSERT INTO space_probe (body) VALUES (:body);
