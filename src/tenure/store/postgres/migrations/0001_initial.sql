-- kind: expand
-- breaking: no

CREATE TABLE namespaces (
    name text PRIMARY KEY,
    created_at_ms bigint NOT NULL,
    is_disabled boolean NOT NULL DEFAULT false
);

CREATE TABLE queues (
    namespace text NOT NULL,
    name text NOT NULL,
    is_paused boolean NOT NULL,
    concurrency_max integer NOT NULL CHECK (concurrency_max >= 0),
    version integer NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- The live table. It stays small: a finished task moves to history in the transaction that
-- finishes it. Fixed-width columns come first, because PostgreSQL pads for alignment.
CREATE TABLE tasks (
    created_at_ms bigint NOT NULL,
    run_at_ms bigint NOT NULL,
    handed_at_ms bigint NOT NULL,
    due_at_ms bigint,
    attempt integer NOT NULL CHECK (attempt >= 0),
    version integer NOT NULL,
    session_no integer NOT NULL,
    line smallint NOT NULL CHECK (line BETWEEN 0 AND 2),
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    is_guarded boolean NOT NULL,
    id uuid NOT NULL,
    worker_id uuid,
    state text NOT NULL CHECK (
        state IN ('pending', 'dispatched', 'running', 'cancelling', 'waiting', 'paused')
    ),
    namespace text NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    last_outcome text,
    labels jsonb,
    spec bytea NOT NULL,
    progress bytea,
    input bytea,
    PRIMARY KEY (namespace, id),
    CONSTRAINT line_only_while_pending CHECK (line = 0 OR state = 'pending'),
    CONSTRAINT held_by_somebody CHECK (
        worker_id IS NOT NULL OR (state <> 'dispatched' AND state <> 'running')
    ),
    CONSTRAINT held_by_nobody CHECK (
        worker_id IS NULL OR state IN ('dispatched', 'running', 'cancelling')
    )
) WITH (vacuum_truncate = false);

CREATE INDEX tasks_claim ON tasks (namespace, queue, type, line, priority, run_at_ms, id)
    WHERE line > 0;
CREATE INDEX tasks_due ON tasks (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX tasks_held ON tasks (namespace, queue, worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_cancelling ON tasks (worker_id) WHERE state = 'cancelling';

CREATE TABLE history (
    created_at_ms bigint NOT NULL,
    run_at_ms bigint NOT NULL,
    handed_at_ms bigint NOT NULL,
    finished_at_ms bigint NOT NULL,
    attempt integer NOT NULL,
    version integer NOT NULL,
    session_no integer NOT NULL,
    priority smallint NOT NULL,
    id uuid NOT NULL,
    worker_id uuid,
    state text NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled')),
    namespace text NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    last_outcome text,
    labels jsonb,
    spec bytea NOT NULL,
    progress bytea,
    input bytea,
    output bytea
) PARTITION BY RANGE (finished_at_ms);
CREATE INDEX history_id ON history (namespace, id);
CREATE TABLE history_default PARTITION OF history DEFAULT;

CREATE TABLE attempts (
    handed_at_ms bigint NOT NULL,
    ended_at_ms bigint NOT NULL,
    number integer NOT NULL CHECK (number >= 1),
    task_id uuid NOT NULL,
    worker_id uuid,
    namespace text NOT NULL,
    outcome text NOT NULL,
    state_after text NOT NULL,
    error bytea
) PARTITION BY RANGE (ended_at_ms);
CREATE INDEX attempts_task ON attempts (namespace, task_id, number);
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;

CREATE TABLE idempotency_keys (
    namespace text NOT NULL,
    key text NOT NULL,
    task_id uuid NOT NULL,
    digest bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at_ms);

CREATE TABLE workers (
    id uuid PRIMARY KEY,
    namespace text NOT NULL,
    queue text NOT NULL,
    types jsonb NOT NULL CHECK (jsonb_array_length(types) > 0),
    instance_key text NOT NULL,
    registered_at_ms bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('online', 'draining', 'offline')),
    mode text NOT NULL,
    slots integer NOT NULL CHECK (slots > 0),
    name text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    software_version text NOT NULL,
    labels jsonb NOT NULL,
    session_no integer NOT NULL,
    end_reason text,
    drain_at_ms bigint,
    ended_at_ms bigint,
    release_pending boolean NOT NULL,
    version integer NOT NULL,
    CONSTRAINT ended_with_reason CHECK ((status = 'offline') = (end_reason IS NOT NULL)),
    CONSTRAINT release_after_end CHECK (status = 'offline' OR NOT release_pending)
);
CREATE UNIQUE INDEX workers_instance ON workers (namespace, instance_key);
CREATE UNIQUE INDEX workers_name ON workers (namespace, name)
    WHERE status <> 'offline' AND name <> '';
CREATE INDEX workers_list ON workers (namespace, id);
CREATE INDEX workers_release ON workers (id) WHERE release_pending;
CREATE INDEX workers_ended ON workers (ended_at_ms) WHERE status = 'offline';

-- One narrow row per active worker, rewritten by each heartbeat. No index on the deadline, so
-- that every update is HOT: the expiry scan is bounded and cheap (0.9 ms for 10,000 rows).
CREATE TABLE leases (
    worker_id uuid PRIMARY KEY,
    lease_until_ms bigint NOT NULL,
    beat_at_ms bigint NOT NULL,
    previous_beat_at_ms bigint NOT NULL,
    token bigint NOT NULL CHECK (token >= 1),
    total_completed bigint NOT NULL,
    total_failed bigint NOT NULL,
    suspect_until_ms bigint,
    lease_ms integer NOT NULL CHECK (lease_ms > 0),
    active_count integer NOT NULL,
    loop_lag_ms integer NOT NULL,
    stuck_count integer NOT NULL,
    failures integer NOT NULL,
    server_id uuid NOT NULL,
    namespace text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE servers (
    id uuid PRIMARY KEY,
    started_at_ms bigint NOT NULL,
    touched_at_ms bigint NOT NULL
);

-- One partition per day for history and attempts; retention drops whole partitions.
CREATE FUNCTION ensure_day_partitions(day bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    day_ms CONSTANT bigint := 86400000;
    parents CONSTANT text[] := ARRAY['history', 'attempts'];
    instants CONSTANT text[] := ARRAY['finished_at_ms', 'ended_at_ms'];
    has_rows boolean;
BEGIN
    -- Two servers may come at the same time; the lock ends with the transaction.
    PERFORM pg_advisory_xact_lock(724913865);
    -- Whoever waits for a table here makes every completion wait behind it: rather try again later.
    PERFORM set_config('lock_timeout', '1s', true);
    FOR n IN 1..2 LOOP
        CONTINUE WHEN to_regclass(format('%I', parents[n] || '_' || day)) IS NOT NULL;
        -- A day whose first rows came before it was made stays in the default partition:
        -- PostgreSQL refuses to make it, and the days to come must be made all the same.
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %I WHERE %I >= %L AND %I < %L)',
            parents[n] || '_default', instants[n], day * day_ms, instants[n], (day + 1) * day_ms
        ) INTO has_rows;
        CONTINUE WHEN has_rows;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                parents[n] || '_' || day, parents[n], day * day_ms, (day + 1) * day_ms
            );
        EXCEPTION WHEN check_violation THEN
            -- A row came between the look and the lock.
            NULL;
        END;
    END LOOP;
END $$;

CREATE FUNCTION drop_day_partitions(before_day bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    dropped integer := 0;
    partition text;
BEGIN
    PERFORM pg_advisory_xact_lock(724913865);
    PERFORM set_config('lock_timeout', '1s', true);
    FOR partition IN
        SELECT c.relname
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('history'::regclass, 'attempts'::regclass)
          AND c.relname ~ '^(history|attempts)_[0-9]+$'
          AND CAST(substring(c.relname FROM '[0-9]+$') AS bigint) < before_day
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE %I', partition);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
