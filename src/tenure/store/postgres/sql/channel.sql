-- name: lock_migrations()
-- Replicas that start together wait for each other; the lock ends with the transaction, so it
-- also works behind a pooler in transaction mode.
SELECT pg_advisory_xact_lock(724913864);

-- name: send_notification(payload)
SELECT pg_notify('tenure', p.payload)
FROM unnest(CAST(:payload AS text[])) AS p (payload);
