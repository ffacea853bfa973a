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
