-- name: free_space()
DELETE FROM space_probe;

-- name: reserve_space(body)
INSERT INTO space_probe (body) VALUES (:body);
