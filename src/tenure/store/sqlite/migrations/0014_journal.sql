-- kind: expand
-- breaking: no

-- How a task belongs to runs; nothing of it is stored for a plain one. `origin` is what a child
-- knows of its place in its parent, and no statement looks inside.
ALTER TABLE tasks ADD COLUMN parent_id TEXT;
ALTER TABLE tasks ADD COLUMN journal_id TEXT;
ALTER TABLE tasks ADD COLUMN external_id TEXT;
ALTER TABLE tasks ADD COLUMN origin BLOB;
ALTER TABLE history ADD COLUMN parent_id TEXT;
ALTER TABLE history ADD COLUMN journal_id TEXT;
ALTER TABLE history ADD COLUMN external_id TEXT;
ALTER TABLE history ADD COLUMN origin BLOB;

CREATE INDEX tasks_parent ON tasks (namespace, parent_id, id) WHERE parent_id IS NOT NULL;
-- Lists of runs must not walk over millions of activities, and their kind is no column.
CREATE INDEX tasks_runs ON tasks (namespace, id) WHERE journal_id IS NOT NULL;
CREATE INDEX history_runs ON history (namespace, id) WHERE journal_id IS NOT NULL;
CREATE UNIQUE INDEX tasks_external ON tasks (namespace, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX history_external ON history (namespace, external_id) WHERE external_id IS NOT NULL;

-- The entries of runs, in their order. `no` is the reporter's own number within its attempt, and
-- both are 0 of what the server wrote. `total_bytes` is how large the journal is up to here: so its
-- end tells its size, and a page can be cut by bytes.
CREATE TABLE journal (
    journal_id TEXT NOT NULL,
    pos INTEGER NOT NULL CHECK (pos >= 1),
    at_ms INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    no INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    body BLOB,
    PRIMARY KEY (journal_id, pos)
) STRICT, WITHOUT ROWID;
