-- Rows that a benchmark needs in bulk, made by one set-based statement each, and what it looks at.
-- Parameters are asyncpg's own ($1, …).

-- name: count_wal_images
SELECT CAST(wal_fpi AS int) FROM pg_stat_wal

-- name: count_written_rows
-- In all tables of the schema: whatever a command writes.
SELECT CAST(coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) AS bigint)
FROM pg_stat_user_tables

-- name: create_bystander
CREATE TABLE bystander (id int PRIMARY KEY, number int NOT NULL);
INSERT INTO bystander SELECT id, 0 FROM generate_series(0, 63) AS made (id)

-- name: flush_statistics
-- A session counts for itself and hands its counts over once a second, unless told to.
SELECT pg_stat_force_next_flush()

-- name: insert_held
-- $3 running tasks for each worker of $1, all of them confirmed and due in an hour.
INSERT INTO tasks (created_at_ms, run_at_ms, handed_at_ms, due_at_ms, attempt, version, session_no,
    line, priority, is_guarded, id, worker_id, state, namespace, queue, type, spec, input)
SELECT $2, $2, $2, CAST($2 AS bigint) + 3600000, 1, 1, 0, 0, 5, false,
    CAST('01900000-0000-7' || lpad(to_hex(w.number), 3, '0') || '-8000-'
        || lpad(to_hex(n), 12, '0') AS uuid),
    w.id, 'running', $4, $5, $6, $7, $8
FROM unnest(CAST($1 AS uuid[])) WITH ORDINALITY AS w (id, number)
CROSS JOIN generate_series(1, CAST($3 AS int)) AS made (n)

-- name: insert_history
INSERT INTO history (created_at_ms, run_at_ms, handed_at_ms, finished_at_ms, attempt, version,
    session_no, priority, id, worker_id, state, namespace, queue, type, last_outcome, spec, input,
    output)
SELECT $2, $2, $2, $2, 1, 2, 1, 5,
    CAST('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid),
    '01900000-0000-7000-8000-000000000000', 'succeeded', $3, $4, $5, 'succeeded', $6, $7, $8
FROM generate_series(1, CAST($1 AS int)) AS made (n)

-- name: insert_waiting
-- $1 fresh tasks of one type and priority, in the order of their ids.
INSERT INTO tasks (created_at_ms, run_at_ms, handed_at_ms, attempt, version, session_no, line,
    priority, is_guarded, id, state, namespace, queue, type, spec, input)
SELECT $2, $2, 0, 0, 1, 0, 1, CAST($3 AS smallint), false,
    CAST('01900000-0000-7' || lpad(to_hex(CAST(CAST($3 AS smallint) AS int)), 3, '0') || '-8000-'
        || lpad(to_hex(n), 12, '0') AS uuid),
    'pending', $4, $5, $6, $7, $8
FROM generate_series(1, CAST($1 AS int)) AS made (n)

-- name: now_ms
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)

-- name: sizes
-- The live table, and history with all its partitions; with toast, without and of indexes.
SELECT
    CAST(sum(pg_table_size(c.oid)) FILTER (WHERE c.relname = 'tasks') AS bigint),
    CAST(sum(pg_indexes_size(c.oid)) FILTER (WHERE c.relname = 'tasks') AS bigint),
    CAST(sum(pg_table_size(c.oid)) FILTER (WHERE c.relname LIKE 'history%') AS bigint),
    CAST(sum(pg_indexes_size(c.oid)) FILTER (WHERE c.relname LIKE 'history%') AS bigint)
FROM pg_class AS c
WHERE c.relkind = 'r' AND c.relnamespace = CAST('public' AS regnamespace)

-- name: wal_position
SELECT CAST(pg_current_wal_insert_lsn() - CAST('0/0' AS pg_lsn) AS bigint)
