-- kind: expand
-- breaking: yes

-- Suspects of the crash guard wait in a line of their own, which older servers cannot read. SQLite
-- cannot alter a constraint, so the table is made anew.
CREATE TABLE tasks_with_suspects (
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL,
    line INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    run_at_ms INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    version INTEGER NOT NULL,
    worker_id TEXT,
    handed_at_ms INTEGER NOT NULL,
    session_no INTEGER NOT NULL,
    last_outcome TEXT,
    due_at_ms INTEGER,
    is_guarded INTEGER NOT NULL,
    labels TEXT,
    spec BLOB NOT NULL,
    progress BLOB,
    input BLOB,
    PRIMARY KEY (namespace, id),
    -- OR chains: for IN with a list SQLite builds a table at each write, which doubles its time.
    CONSTRAINT known_state CHECK (
        state = 'pending' OR state = 'dispatched' OR state = 'running' OR state = 'cancelling'
        OR state = 'waiting' OR state = 'paused'
    ),
    CONSTRAINT known_line CHECK (line >= 0 AND line <= 3),
    CONSTRAINT known_priority CHECK (priority >= 0 AND priority <= 9),
    CONSTRAINT line_only_while_pending CHECK (line = 0 OR state = 'pending'),
    CONSTRAINT held_by_somebody CHECK (
        worker_id IS NOT NULL OR (state <> 'dispatched' AND state <> 'running')
    ),
    CONSTRAINT held_by_nobody CHECK (
        worker_id IS NULL OR state = 'dispatched' OR state = 'running' OR state = 'cancelling'
    )
) STRICT, WITHOUT ROWID;

INSERT INTO tasks_with_suspects SELECT * FROM tasks;
DROP TABLE tasks;
ALTER TABLE tasks_with_suspects RENAME TO tasks;

CREATE INDEX tasks_claim ON tasks (namespace, queue, type, line, priority, run_at_ms, id)
    WHERE line > 0;
CREATE INDEX tasks_due ON tasks (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX tasks_held ON tasks (namespace, queue, worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_cancelling ON tasks (worker_id) WHERE state = 'cancelling';

-- Whether a suspect explains why the worker died: its end is no sign that workers die by chance.
ALTER TABLE workers ADD COLUMN is_end_explained INTEGER NOT NULL DEFAULT 0;
