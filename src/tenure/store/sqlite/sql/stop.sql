-- name: delete_stops(worker_id, task_id, attempt)
DELETE FROM stops
WHERE worker_id = :worker_id AND task_id = :task_id AND attempt = :attempt
RETURNING worker_id;

-- name: insert_stops(worker_id, task_id, attempt, cause)
INSERT INTO stops (worker_id, task_id, attempt, cause)
VALUES (:worker_id, :task_id, :attempt, :cause)
ON CONFLICT (worker_id, task_id, attempt) DO NOTHING
RETURNING worker_id;

-- name: read_stops(worker_id)
SELECT worker_id, task_id, attempt, cause FROM stops WHERE worker_id = :worker_id;

-- name: take_stops(worker_id)
-- With a heartbeat, whose answer carries them. If that is lost, the full held set of the next
-- heartbeat brings them again.
DELETE FROM stops WHERE worker_id = :worker_id RETURNING worker_id, task_id, attempt, cause;
