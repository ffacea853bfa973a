-- name: free_space()
-- What follows needs new space: rows that are only deleted would leave theirs to it.
TRUNCATE space_probe;

-- name: reserve_space(body)
INSERT INTO space_probe (body) VALUES (:body);
