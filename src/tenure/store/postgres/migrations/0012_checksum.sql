-- kind: expand
-- breaking: no

-- What was stored is compared with its checksum whenever it is read (core/checksum.py). Rows of
-- earlier versions have none. Servers of the version before go on beside this one: they write
-- none, and leave that of the progress behind, so it says for which version of the row it is.
ALTER TABLE tasks ADD COLUMN input_checksum bigint, ADD COLUMN progress_checksum bigint;
ALTER TABLE history
    ADD COLUMN input_checksum bigint,
    ADD COLUMN progress_checksum bigint,
    ADD COLUMN output_checksum bigint;
ALTER TABLE attempts ADD COLUMN error_checksum bigint;

-- New types, because servers of two versions run side by side: see 0003.
CREATE TYPE finish_tasks_checked_row AS (
    namespace text,
    id uuid,
    version integer,
    state text,
    attempt integer,
    worker_id uuid,
    last_outcome text,
    finished_at_ms bigint,
    progress bytea,
    output bytea,
    progress_checksum bigint,
    output_checksum bigint
);

CREATE TYPE insert_tasks_checked_row AS (
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
    progress_checksum bigint
);

CREATE TYPE update_tasks_checked_row AS (
    namespace text,
    id uuid,
    version integer,
    state text,
    line smallint,
    run_at_ms bigint,
    attempt integer,
    worker_id uuid,
    handed_at_ms bigint,
    session_no integer,
    last_outcome text,
    due_at_ms bigint,
    is_guarded boolean,
    progress bytea,
    progress_checksum bigint
);
