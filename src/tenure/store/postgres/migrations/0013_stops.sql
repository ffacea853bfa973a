-- kind: expand
-- breaking: no

-- Attempts that ended otherwise than by their worker, which may still run them, until the worker
-- was told. The task itself has left the live table, or is on its way to another worker.
CREATE TABLE stops (
    worker_id uuid NOT NULL,
    task_id uuid NOT NULL,
    attempt integer NOT NULL CHECK (attempt > 0),
    cause text NOT NULL,
    PRIMARY KEY (worker_id, task_id, attempt)
);

-- What a worker had done when it went offline and its lease was deleted.
ALTER TABLE workers
    ADD COLUMN total_completed bigint NOT NULL DEFAULT 0,
    ADD COLUMN total_failed bigint NOT NULL DEFAULT 0;

-- How many attempts a worker holds, up to so many. A statement that has waited for the lock of a
-- worker sees the tasks as they were before it waited; a volatile function sees them as they are.
CREATE FUNCTION held_now(
    in_namespace text, in_queue text, in_worker_id uuid, held_max integer
) RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM tasks
            WHERE worker_id IS NOT NULL
              AND namespace = in_namespace
              AND queue = in_queue
              AND worker_id = in_worker_id
            LIMIT held_max
        ) AS held
    );
END
$$;
