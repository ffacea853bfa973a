-- name: lock_migrations()
-- BEGIN IMMEDIATE is the lock.
SELECT 1 WHERE 0;

-- name: send_notification(payload)
-- There is no other replica.
SELECT :payload WHERE 0;
