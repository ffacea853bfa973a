-- name: delete_group_entries(before_id, before_ms, amount)
-- Results of the groups that delete_groups removes once they have none.
DELETE FROM journal
WHERE (journal_id, pos) IN (
    SELECT j.journal_id, j.pos
    FROM groups AS g
    CROSS JOIN journal AS j
    WHERE g.group_id < :before_id
      AND j.journal_id = g.group_id
      AND NOT EXISTS (
          SELECT 1 FROM tasks AS t
          WHERE t.namespace = g.namespace AND t.id = g.run_id AND t.journal_id = g.journal_id
      )
      AND NOT EXISTS (
          SELECT 1 FROM history AS h
          WHERE h.namespace = g.namespace
            AND h.id = g.run_id
            AND h.journal_id = g.journal_id
            AND h.finished_at_ms >= :before_ms
      )
    LIMIT :amount
)
RETURNING pos;

-- name: delete_groups(before_id, before_ms, amount)
-- Of calls in journals that nobody has any more. Ids begin with the instant.
DELETE FROM groups
WHERE group_id IN (
    SELECT g.group_id
    FROM groups AS g
    WHERE g.group_id < :before_id
      AND NOT EXISTS (
          SELECT 1 FROM tasks AS t
          WHERE t.namespace = g.namespace AND t.id = g.run_id AND t.journal_id = g.journal_id
      )
      AND NOT EXISTS (
          SELECT 1 FROM history AS h
          WHERE h.namespace = g.namespace
            AND h.id = g.run_id
            AND h.journal_id = g.journal_id
            AND h.finished_at_ms >= :before_ms
      )
      AND NOT EXISTS (SELECT 1 FROM journal AS j WHERE j.journal_id = g.group_id)
    ORDER BY g.group_id
    LIMIT :amount
)
RETURNING group_id;

-- name: find_groups(journal_id, key)
SELECT
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
FROM groups
WHERE journal_id = :journal_id AND key = :key;

-- name: insert_groups(group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended, is_closed, spawned, open_count, failed_count, cancelled_count, version)
INSERT INTO groups (
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
)
VALUES (
    :group_id, :namespace, :run_id, :journal_id, :key, :call_index, :type, :fails_fast, :total,
    :has_ended, :is_closed, :spawned, :open_count, :failed_count, :cancelled_count, :version
);

-- name: load_groups(group_id)
SELECT
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
FROM groups
WHERE group_id = :group_id;

-- name: read_groups(namespace, run_id, amount)
SELECT
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
FROM groups
WHERE namespace = :namespace AND run_id = :run_id
ORDER BY group_id DESC
LIMIT :amount;

-- name: read_open_groups(journal_id)
SELECT
    group_id, namespace, run_id, journal_id, key, call_index, type, fails_fast, total, has_ended,
    is_closed, spawned, open_count, failed_count, cancelled_count, version
FROM groups
WHERE journal_id = :journal_id AND NOT has_ended;

-- name: read_results(group_id, day, after_pos, amount, bytes_max)
-- The ends of items: positions have gaps, and each entry has its own size. The first one comes
-- however large it is.
SELECT s.journal_id, s.pos, s.at_ms, s.total_bytes, s.attempt, s.no, s.kind, s.key, s.body
FROM (
    SELECT
        c.*,
        sum(c.total_bytes) OVER (ORDER BY c.pos) AS reached,
        row_number() OVER (ORDER BY c.pos) AS place
    FROM (
        SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
        FROM journal
        WHERE journal_id = :group_id AND :day IS NOT NULL AND pos > :after_pos
        ORDER BY pos
        LIMIT :amount
    ) AS c
) AS s
WHERE s.place = 1 OR s.reached <= :bytes_max
ORDER BY s.pos;

-- name: update_groups(group_id, version, has_ended, is_closed, spawned, open_count, failed_count, cancelled_count)
UPDATE groups
SET has_ended = :has_ended,
    is_closed = :is_closed,
    spawned = :spawned,
    open_count = :open_count,
    failed_count = :failed_count,
    cancelled_count = :cancelled_count,
    version = :version + 1
WHERE group_id = :group_id AND version = :version;
