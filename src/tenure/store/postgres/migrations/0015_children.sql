-- kind: expand
-- breaking: no

-- One call of a run that makes many tasks. Items 0 to spawned - 1 are stored as tasks whose
-- parent_id is the group; their ends stand in `journal` under the id of the group, at position
-- item + 1. The run hears of all of them by one entry. A closed group takes no more items.
CREATE TABLE groups (
    group_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    run_id uuid NOT NULL,
    journal_id uuid NOT NULL,
    key text NOT NULL,
    call_index integer NOT NULL,
    type text NOT NULL,
    fails_fast boolean NOT NULL,
    has_ended boolean NOT NULL,
    is_closed boolean NOT NULL,
    total integer NOT NULL CHECK (total >= 0),
    spawned integer NOT NULL CHECK (spawned BETWEEN 0 AND total),
    open_count integer NOT NULL CHECK (open_count BETWEEN 0 AND spawned),
    failed_count integer NOT NULL,
    cancelled_count integer NOT NULL,
    version integer NOT NULL,
    UNIQUE (journal_id, key)
);
CREATE INDEX groups_run ON groups (namespace, run_id);

-- Runs and groups that have ended while children of theirs were live: those are closed by their
-- policies, some at a time. A run that begins anew has ended with its old journal. Children up to
-- `after_id` are done.
CREATE TABLE closings (
    namespace text NOT NULL,
    owner_id uuid NOT NULL,
    journal_id uuid NOT NULL,
    is_group boolean NOT NULL,
    ended_at_ms bigint NOT NULL,
    after_id uuid NOT NULL,
    PRIMARY KEY (namespace, owner_id, journal_id)
);
CREATE INDEX closings_ended ON closings (ended_at_ms, owner_id);

-- An external id may be given to one run after the other: the last of them is found at once.
DROP INDEX history_external;
CREATE INDEX history_external ON history (namespace, external_id, finished_at_ms, id)
WHERE external_id IS NOT NULL;

-- As before; results of groups are needed as long as their group.
CREATE OR REPLACE FUNCTION drop_journal_partitions(before_day bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    dropped integer := 0;
    begun bigint;
    is_needed boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(724913865);
    PERFORM set_config('lock_timeout', '1s', true);
    FOR begun IN
        SELECT CAST(substring(c.relname FROM '[0-9]+$') AS bigint) AS begun_day
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'journal'::regclass AND c.relname ~ '^journal_[0-9]+$'
        ORDER BY begun_day
    LOOP
        CONTINUE WHEN begun >= before_day;
        SELECT EXISTS (
            SELECT FROM tasks
            WHERE journal_id >= first_id_of_day(begun) AND journal_id < first_id_of_day(begun + 1)
        ) OR EXISTS (
            SELECT FROM history
            WHERE journal_id >= first_id_of_day(begun) AND journal_id < first_id_of_day(begun + 1)
        ) OR EXISTS (
            SELECT FROM groups
            WHERE group_id >= first_id_of_day(begun) AND group_id < first_id_of_day(begun + 1)
        ) INTO is_needed;
        CONTINUE WHEN is_needed;
        EXECUTE format('DROP TABLE %I', 'journal_' || begun);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
