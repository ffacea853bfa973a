-- name: end_backend(pid, silent_ms)
-- Not a new backend with the same number: it would have changed its state meanwhile.
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE pid = :pid
    AND datname = current_database()
    AND usename = current_user
    AND state_change < pg_catalog.clock_timestamp() - make_interval(secs => :silent_ms / 1000.0);

-- name: limit_lock_wait(wait_ms)
-- For this transaction; 0 means no limit.
SELECT set_config('lock_timeout', CAST(CAST(:wait_ms AS bigint) AS text), true);

-- name: lock_migrations()
-- Replicas that start together wait for each other; the lock ends with the transaction, so it
-- also works behind a pooler in transaction mode.
SELECT pg_advisory_xact_lock(724913864);

-- name: send_notification(payload, channel)
SELECT pg_notify(CAST(:channel AS text), p.payload)
FROM unnest(CAST(:payload AS text[])) AS p (payload);
