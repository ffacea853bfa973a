-- name: count_children(namespace, parent_id, amount)
-- Live children of runs: as many as matter.
SELECT d.namespace, CAST(d.parent_id AS text), s.found
FROM unnest(CAST(:namespace AS text[]), CAST(:parent_id AS uuid[])) AS d (namespace, parent_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS found
    FROM (
        SELECT 1
        FROM tasks AS c
        WHERE c.parent_id IS NOT NULL
          AND c.namespace = d.namespace
          AND c.parent_id = d.parent_id
        LIMIT CAST(:amount AS integer)
    ) AS c
) AS s;

-- name: find_children(namespace, parent_id, after_id, amount)
-- Ids alone: they are locked with all other tasks of a batch, in one order.
SELECT d.namespace, CAST(d.parent_id AS text), CAST(t.id AS text)
FROM unnest(
    CAST(:namespace AS text[]), CAST(:parent_id AS uuid[]), CAST(:after_id AS uuid[])
) AS d (namespace, parent_id, after_id)
CROSS JOIN LATERAL (
    SELECT c.id
    FROM tasks AS c
    WHERE c.parent_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.parent_id = d.parent_id
      AND c.id > d.after_id
    ORDER BY c.namespace, c.parent_id, c.id
    LIMIT CAST(:amount AS integer)
) AS t;

-- name: find_live_external(namespace, external_id)
-- The live runs that have external ids.
SELECT d.namespace, d.external_id, CAST(t.id AS text)
FROM unnest(CAST(:namespace AS text[]), CAST(:external_id AS text[])) AS d (namespace, external_id)
CROSS JOIN LATERAL (
    SELECT c.id
    FROM tasks AS c
    WHERE c.external_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.external_id = d.external_id
    OFFSET 0
) AS t;

-- name: lock_free_tasks(namespace, id)
-- As load_tasks, without those that somebody else has locked: who holds locks already waits for
-- none that come before them in the order.
SELECT
    CAST(t.id AS text), t.namespace, t.queue, t.type, t.state, t.line, t.priority,
    t.created_at_ms, t.run_at_ms, t.attempt, t.version, CAST(t.worker_id AS text),
    t.handed_at_ms, t.session_no, t.last_outcome, t.due_at_ms, t.is_guarded,
    CAST(t.labels AS text), t.spec, t.progress, CAST(NULL AS bytea), CAST(NULL AS bigint),
    t.progress_checksum,
    CAST(t.journal_id AS text), CAST(t.parent_id AS text),
    t.external_id, t.origin
FROM unnest(CAST(:namespace AS text[]), CAST(:id AS uuid[])) AS d (namespace, id)
CROSS JOIN LATERAL (
    SELECT *
    FROM tasks AS c
    WHERE c.namespace = d.namespace AND c.id = d.id
    FOR UPDATE SKIP LOCKED
) AS t;

-- name: read_children(namespace, parent_id, after_id, amount)
-- What whoever holds a run has to know of its live children.
SELECT
    d.namespace, CAST(d.parent_id AS text), CAST(t.id AS text), t.type, CAST(t.journal_id AS text),
    t.origin
FROM unnest(
    CAST(:namespace AS text[]), CAST(:parent_id AS uuid[]), CAST(:after_id AS uuid[])
) AS d (namespace, parent_id, after_id)
CROSS JOIN LATERAL (
    SELECT c.id, c.type, c.journal_id, c.origin
    FROM tasks AS c
    WHERE c.parent_id IS NOT NULL
      AND c.namespace = d.namespace
      AND c.parent_id = d.parent_id
      AND c.id > d.after_id
    ORDER BY c.namespace, c.parent_id, c.id
    LIMIT CAST(:amount AS integer)
) AS t;
