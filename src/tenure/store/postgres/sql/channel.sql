-- name: lock_migrations()
-- Replicas that start together wait for each other; the lock ends with the transaction, so it
-- also works behind a pooler in transaction mode.
SELECT pg_advisory_xact_lock(724913864);

-- name: send_notification(payload)
SELECT pg_notify('tenure', CAST(:payload AS text));
