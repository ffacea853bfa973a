-- name: delete_group_entries(before_id, before_ms, amount)
-- Retention drops whole days, and delete_journals empties the default partition.
SELECT 1
WHERE CAST(:before_id AS uuid) IS NULL
  AND CAST(:before_ms AS bigint) IS NULL
  AND CAST(:amount AS integer) IS NULL;

-- name: delete_groups(before_id, before_ms, amount)
-- Of calls in journals that nobody has any more. Ids begin with the instant.
DELETE FROM groups
WHERE group_id = ANY (ARRAY(
    SELECT g.group_id
    FROM groups AS g
    WHERE g.group_id < CAST(:before_id AS uuid)
      AND NOT EXISTS (
          SELECT 1 FROM tasks AS t
          WHERE t.namespace = g.namespace AND t.id = g.run_id AND t.journal_id = g.journal_id
      )
      AND NOT EXISTS (
          SELECT 1 FROM history AS h
          WHERE h.namespace = g.namespace
            AND h.id = g.run_id
            AND h.journal_id = g.journal_id
            AND h.finished_at_ms >= CAST(:before_ms AS bigint)
      )
    ORDER BY g.group_id
    LIMIT CAST(:amount AS integer)
))
RETURNING CAST(group_id AS text);

-- name: find_groups(journal_id, key)
SELECT
    CAST(c.group_id AS text), c.namespace, CAST(c.run_id AS text), CAST(c.journal_id AS text),
    c.key, c.call_index, c.type, c.fails_fast, c.total, c.has_ended, c.is_closed, c.spawned,
    c.open_count, c.failed_count, c.cancelled_count, c.version
FROM unnest(CAST(:journal_id AS uuid[]), CAST(:key AS text[])) AS d (journal_id, key)
CROSS JOIN LATERAL (
    SELECT * FROM groups AS g WHERE g.journal_id = d.journal_id AND g.key = d.key OFFSET 0
) AS c;

-- name: insert_groups(group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended, is_closed, spawned, open_count, failed_count, cancelled_count, version)
INSERT INTO groups (
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
)
SELECT *
FROM unnest(
    CAST(:group_id AS uuid[]), CAST(:namespace AS text[]), CAST(:run_id AS uuid[]),
    CAST(:journal_id AS uuid[]), CAST(:key AS text[]), CAST(:call_index AS integer[]),
    CAST(:type AS text[]), CAST(:fails_fast AS boolean[]), CAST(:total AS integer[]),
    CAST(:has_ended AS boolean[]), CAST(:is_closed AS boolean[]), CAST(:spawned AS integer[]),
    CAST(:open_count AS integer[]), CAST(:failed_count AS integer[]),
    CAST(:cancelled_count AS integer[]), CAST(:version AS integer[])
);

-- name: load_groups(group_id)
SELECT
    CAST(c.group_id AS text), c.namespace, CAST(c.run_id AS text), CAST(c.journal_id AS text),
    c.key, c.call_index, c.type, c.fails_fast, c.total, c.has_ended, c.is_closed, c.spawned,
    c.open_count, c.failed_count, c.cancelled_count, c.version
FROM unnest(CAST(:group_id AS uuid[])) AS d (group_id)
CROSS JOIN LATERAL (
    SELECT * FROM groups AS g WHERE g.group_id = d.group_id FOR UPDATE
) AS c;

-- name: read_groups(namespace, run_id, amount)
SELECT
    CAST(g.group_id AS text), g.namespace, CAST(g.run_id AS text), CAST(g.journal_id AS text),
    g.key, g.call_index, g.type, g.fails_fast, g.total, g.has_ended, g.is_closed, g.spawned,
    g.open_count, g.failed_count, g.cancelled_count, g.version
FROM groups AS g
WHERE g.namespace = :namespace AND g.run_id = CAST(:run_id AS uuid)
ORDER BY g.group_id DESC
LIMIT CAST(:amount AS integer);

-- name: read_open_groups(journal_id)
SELECT
    CAST(c.group_id AS text), c.namespace, CAST(c.run_id AS text), CAST(c.journal_id AS text),
    c.key, c.call_index, c.type, c.fails_fast, c.total, c.has_ended, c.is_closed, c.spawned,
    c.open_count, c.failed_count, c.cancelled_count, c.version
FROM unnest(CAST(:journal_id AS uuid[])) AS d (journal_id)
CROSS JOIN LATERAL (
    SELECT * FROM groups AS g WHERE g.journal_id = d.journal_id AND NOT g.has_ended OFFSET 0
) AS c;

-- name: read_results(group_id, day, after_pos, amount, bytes_max)
-- The ends of items: positions have gaps, and each entry has its own size. The first one comes
-- however large it is.
SELECT
    CAST(s.journal_id AS text), s.pos, s.at_ms, s.total_bytes, s.attempt, s.no, s.kind, s.key,
    s.body
FROM (
    SELECT
        c.*,
        sum(c.total_bytes) OVER (ORDER BY c.pos) AS reached,
        row_number() OVER (ORDER BY c.pos) AS place
    FROM (
        SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
        FROM journal
        WHERE journal_id = CAST(:group_id AS uuid)
          AND day = CAST(:day AS integer)
          AND pos > CAST(:after_pos AS integer)
        ORDER BY pos
        LIMIT CAST(:amount AS integer)
    ) AS c
) AS s
WHERE s.place = 1 OR s.reached <= CAST(:bytes_max AS bigint)
ORDER BY s.pos;

-- name: update_groups(group_id, version, has_ended, is_closed, spawned, open_count, failed_count, cancelled_count)
UPDATE groups AS t
SET has_ended = g.has_ended,
    is_closed = g.is_closed,
    spawned = g.spawned,
    open_count = g.open_count,
    failed_count = g.failed_count,
    cancelled_count = g.cancelled_count,
    version = g.version + 1
FROM unnest(
    CAST(:group_id AS uuid[]), CAST(:version AS integer[]), CAST(:has_ended AS boolean[]),
    CAST(:is_closed AS boolean[]), CAST(:spawned AS integer[]), CAST(:open_count AS integer[]),
    CAST(:failed_count AS integer[]), CAST(:cancelled_count AS integer[])
) AS g (
    group_id, version, has_ended, is_closed, spawned, open_count, failed_count, cancelled_count
)
WHERE t.group_id = g.group_id AND t.version = g.version
RETURNING CAST(t.group_id AS text);
