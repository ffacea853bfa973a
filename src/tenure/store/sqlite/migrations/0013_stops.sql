-- kind: expand
-- breaking: no

-- Attempts that ended otherwise than by their worker, which may still run them, until the worker
-- was told. The task itself has left the live table, or is on its way to another worker.
CREATE TABLE stops (
    worker_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    cause TEXT NOT NULL,
    PRIMARY KEY (worker_id, task_id, attempt)
) STRICT, WITHOUT ROWID;

-- What a worker had done when it went offline and its lease was deleted.
ALTER TABLE workers ADD COLUMN total_completed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN total_failed INTEGER NOT NULL DEFAULT 0;
