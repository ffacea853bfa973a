-- kind: expand
-- breaking: no

-- How a task belongs to runs; nothing of it is stored for a plain one. `origin` is what a child
-- knows of its place in its parent, and no statement looks inside.
ALTER TABLE tasks
    ADD COLUMN parent_id uuid,
    ADD COLUMN journal_id uuid,
    ADD COLUMN external_id text,
    ADD COLUMN origin bytea;
ALTER TABLE history
    ADD COLUMN parent_id uuid,
    ADD COLUMN journal_id uuid,
    ADD COLUMN external_id text,
    ADD COLUMN origin bytea;

CREATE INDEX tasks_parent ON tasks (namespace, parent_id, id) WHERE parent_id IS NOT NULL;
-- Lists of runs must not walk over millions of activities, and their kind is no column.
CREATE INDEX tasks_runs ON tasks (namespace, id) WHERE journal_id IS NOT NULL;
CREATE INDEX history_runs ON history (namespace, id) WHERE journal_id IS NOT NULL;
CREATE UNIQUE INDEX tasks_external ON tasks (namespace, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX history_external ON history (namespace, external_id) WHERE external_id IS NOT NULL;
-- Whether a day of the journal is still needed: ids begin with the instant.
CREATE INDEX tasks_journal ON tasks (journal_id) WHERE journal_id IS NOT NULL;
CREATE INDEX history_journal ON history (journal_id) WHERE journal_id IS NOT NULL;

-- The entries of runs, in their order. `day` is that of the journal's id, `no` the reporter's own
-- number within its attempt, and both are 0 of what the server wrote. `total_bytes` is how large
-- the journal is up to here: so its end tells its size, and a page can be cut by bytes.
CREATE TABLE journal (
    day integer NOT NULL,
    pos integer NOT NULL CHECK (pos >= 1),
    at_ms bigint NOT NULL,
    total_bytes integer NOT NULL,
    attempt integer NOT NULL,
    no integer NOT NULL,
    journal_id uuid NOT NULL,
    kind smallint NOT NULL,
    key text NOT NULL,
    body bytea,
    PRIMARY KEY (journal_id, pos, day)
) PARTITION BY RANGE (day);
CREATE TABLE journal_default PARTITION OF journal DEFAULT;

-- What the statements take: see 0003.
CREATE TYPE insert_linked_tasks_row AS (
    id uuid,
    namespace text,
    queue text,
    type text,
    state text,
    line smallint,
    priority smallint,
    created_at_ms bigint,
    run_at_ms bigint,
    attempt integer,
    version integer,
    worker_id uuid,
    handed_at_ms bigint,
    session_no integer,
    last_outcome text,
    due_at_ms bigint,
    is_guarded boolean,
    labels text,
    spec bytea,
    progress bytea,
    input bytea,
    input_checksum bigint,
    progress_checksum bigint,
    parent_id uuid,
    journal_id uuid,
    external_id text,
    origin bytea
);

CREATE TYPE insert_entries_row AS (
    namespace text,
    task_id uuid,
    worker_id uuid,
    attempt integer,
    day integer,
    pos integer,
    at_ms bigint,
    total_bytes integer,
    no integer,
    journal_id uuid,
    kind smallint,
    key text,
    body bytea
);

-- As before, with a partition of the journal for each day.
CREATE OR REPLACE FUNCTION ensure_day_partitions(day bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parents CONSTANT text[] := ARRAY['history', 'attempts', 'journal'];
    columns CONSTANT text[] := ARRAY['finished_at_ms', 'ended_at_ms', 'day'];
    units CONSTANT bigint[] := ARRAY[86400000, 86400000, 1];
    has_rows boolean;
BEGIN
    -- Two servers may come at the same time; the lock ends with the transaction.
    PERFORM pg_advisory_xact_lock(724913865);
    -- Whoever waits for a table here makes every completion wait behind it: rather try again later.
    PERFORM set_config('lock_timeout', '1s', true);
    FOR n IN 1..3 LOOP
        CONTINUE WHEN to_regclass(format('%I', parents[n] || '_' || day)) IS NOT NULL;
        -- A day whose first rows came before it was made stays in the default partition:
        -- PostgreSQL refuses to make it, and the days to come must be made all the same.
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %I WHERE %I >= %L AND %I < %L)',
            parents[n] || '_default', columns[n], day * units[n], columns[n], (day + 1) * units[n]
        ) INTO has_rows;
        CONTINUE WHEN has_rows;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                parents[n] || '_' || day, parents[n], day * units[n], (day + 1) * units[n]
            );
        EXCEPTION WHEN check_violation THEN
            -- A row came between the look and the lock.
            NULL;
        END;
    END LOOP;
END $$;

-- As before, and the days of the journal that neither a live run nor one in history was begun on.
-- That is looked up after history was dropped; ids of a day lie between those of its two ends.
CREATE FUNCTION first_id_of_day(day bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT CAST(lpad(to_hex(day * 86400000), 12, '0') || repeat('0', 20) AS uuid)
$$;

CREATE FUNCTION drop_journal_partitions(before_day bigint) RETURNS integer LANGUAGE plpgsql AS $$
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
        ) INTO is_needed;
        CONTINUE WHEN is_needed;
        EXECUTE format('DROP TABLE %I', 'journal_' || begun);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
