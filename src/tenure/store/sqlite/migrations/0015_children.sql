-- kind: expand
-- breaking: no

-- One call of a run that makes many tasks. Items 0 to spawned - 1 are stored as tasks whose
-- parent_id is the group; their ends stand in `journal` under the id of the group, at position
-- item + 1. The run hears of all of them by one entry. A closed group takes no more items.
CREATE TABLE groups (
    group_id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    run_id TEXT NOT NULL,
    journal_id TEXT NOT NULL,
    key TEXT NOT NULL,
    call_index INTEGER NOT NULL,
    type TEXT NOT NULL,
    fails_fast INTEGER NOT NULL CHECK (fails_fast IN (0, 1)),
    has_ended INTEGER NOT NULL CHECK (has_ended IN (0, 1)),
    is_closed INTEGER NOT NULL CHECK (is_closed IN (0, 1)),
    total INTEGER NOT NULL CHECK (total >= 0),
    spawned INTEGER NOT NULL CHECK (spawned BETWEEN 0 AND total),
    open_count INTEGER NOT NULL CHECK (open_count BETWEEN 0 AND spawned),
    failed_count INTEGER NOT NULL,
    cancelled_count INTEGER NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (journal_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX groups_run ON groups (namespace, run_id);

-- Runs and groups that have ended while children of theirs were live: those are closed by their
-- policies, some at a time. A run that begins anew has ended with its old journal. Children up to
-- `after_id` are done.
CREATE TABLE closings (
    namespace TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    journal_id TEXT NOT NULL,
    is_group INTEGER NOT NULL CHECK (is_group IN (0, 1)),
    ended_at_ms INTEGER NOT NULL,
    after_id TEXT NOT NULL,
    PRIMARY KEY (namespace, owner_id, journal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX closings_ended ON closings (ended_at_ms, owner_id);

-- An external id may be given to one run after the other: the last of them is found at once.
DROP INDEX history_external;
CREATE INDEX history_external ON history (namespace, external_id, finished_at_ms, id)
WHERE external_id IS NOT NULL;
