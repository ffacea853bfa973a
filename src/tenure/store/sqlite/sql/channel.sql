-- name: end_backend(pid, silent_ms)
-- There is no other process.
SELECT :pid + :silent_ms WHERE 0;

-- name: limit_lock_wait(wait_ms)
-- There is one writer: no transaction waits for a row.
SELECT :wait_ms WHERE 0;

-- name: lock_migrations()
-- BEGIN IMMEDIATE is the lock.
SELECT 1 WHERE 0;

-- name: send_notification(payload, channel)
-- There is no other replica.
SELECT :payload || :channel WHERE 0;
