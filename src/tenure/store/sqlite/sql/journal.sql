-- name: append_entries(day, pos, at_ms, total_bytes, attempt, no, journal_id, kind, key, body)
INSERT INTO journal (journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body)
SELECT :journal_id, :pos, :at_ms, :total_bytes, :attempt, :no, :kind, :key, :body
WHERE :day IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: copy_entries(old_journal_id, old_day, journal_id, day, after_pos, upto_pos)
-- For a run that is made from a finished one. Who reported them is of no interest there.
INSERT INTO journal (journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body)
SELECT :journal_id, pos, at_ms, total_bytes, 0, 0, kind, key, body
FROM journal
WHERE journal_id = :old_journal_id
  AND :old_day IS NOT NULL
  AND :day IS NOT NULL
  AND pos > :after_pos
  AND pos <= :upto_pos
RETURNING pos;

-- name: delete_journals(before_ms, amount)
-- Of runs in history that are old; delete_history leaves a run there until it has no entries.
DELETE FROM journal
WHERE (journal_id, pos) IN (
    SELECT j.journal_id, j.pos
    FROM history AS h
    CROSS JOIN journal AS j
    WHERE h.finished_at_ms < :before_ms
      AND h.journal_id IS NOT NULL
      AND j.journal_id = h.journal_id
    LIMIT :amount
)
RETURNING pos;

-- name: find_following_entries(journal_id, day, key, attempt, after_pos)
-- The next entry of a local step by the same attempt of its run.
SELECT :after_pos, journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
FROM journal
WHERE journal_id = :journal_id
  AND :day IS NOT NULL
  AND pos > :after_pos
  AND kind IN (1, 8, 9)
  AND key = :key
  AND attempt = :attempt
ORDER BY pos
LIMIT 1;

-- name: find_steps(journal_id, day, after_pos, upto_pos, key, amount, bytes_max)
-- Entries of steps, or of one step. The first one comes however large it is.
SELECT
    s.journal_id, s.pos, s.at_ms, s.total_bytes, s.attempt, s.no, s.kind, s.key, s.body
FROM (
    SELECT
        c.*,
        sum(coalesce(length(c.body), 0)) OVER (ORDER BY c.pos) AS reached,
        row_number() OVER (ORDER BY c.pos) AS place
    FROM (
        SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
        FROM journal
        WHERE journal_id = :journal_id
          AND :day IS NOT NULL
          AND pos > :after_pos
          AND pos <= :upto_pos
          AND kind IN (1, 2, 6, 8, 9)
          AND (:key = '' OR key = :key)
        ORDER BY pos
        LIMIT :amount
    ) AS c
) AS s
WHERE s.place = 1 OR s.reached <= :bytes_max
ORDER BY s.pos;

-- name: insert_entries(namespace, task_id, worker_id, attempt, day, pos, at_ms, total_bytes, no, journal_id, kind, key, body)
-- The insert fences itself: the run is held by this worker in this attempt, or nothing is written,
-- and a position that is taken is not written either. A list of rows, which may be many.
WITH news (
    namespace, task_id, worker_id, attempt, day, pos, at_ms, total_bytes, no, journal_id, kind,
    key, body
) AS (
    VALUES (
        :namespace, :task_id, :worker_id, :attempt, :day, :pos, :at_ms, :total_bytes, :no,
        :journal_id, :kind, :key, :body
    )
)
INSERT INTO journal (journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body)
SELECT
    n.journal_id, n.pos, n.at_ms, n.total_bytes, n.attempt, n.no, n.kind, n.key, n.body
FROM news AS n
CROSS JOIN tasks AS t
WHERE t.namespace = n.namespace
  AND t.id = n.task_id
  AND t.attempt = n.attempt
  AND t.worker_id = n.worker_id
ON CONFLICT DO NOTHING;

-- name: read_carried(journal_id, day, seen, keep)
-- Signals and cancels that a run takes along: those that it names, and all behind a position.
SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
FROM journal
WHERE journal_id = :journal_id
  AND :day IS NOT NULL
  AND kind IN (4, 5)
  AND (pos > :seen OR pos IN (SELECT value FROM json_each(:keep)))
ORDER BY pos;

-- name: read_entries(journal_id, day, after_pos, amount, bytes_max)
-- Pages: so many entries behind a position, of which the first is there however large it is.
SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
FROM journal
WHERE journal_id = :journal_id
  AND :day IS NOT NULL
  AND pos > :after_pos
  AND pos <= :after_pos + :amount
  AND (
      pos = :after_pos + 1
      OR total_bytes <= :bytes_max + coalesce((
          SELECT b.total_bytes FROM journal AS b
          WHERE b.journal_id = :journal_id AND b.pos = :after_pos
      ), 0)
  )
ORDER BY pos;

-- name: read_foreign_entry(journal_id, day, after_pos, attempt)
-- The first entry behind a position that another one than this attempt has written.
SELECT min(pos)
FROM journal
WHERE journal_id = :journal_id AND :day IS NOT NULL AND pos > :after_pos AND attempt <> :attempt;

-- name: read_journal_ends(journal_id, day)
-- Where journals end, and who reported last: what the server wrote behind that is passed over.
SELECT
    e.journal_id, e.pos, e.total_bytes, coalesce(o.attempt, 0), coalesce(o.no, 0)
FROM (
    SELECT journal_id, pos, total_bytes
    FROM journal
    WHERE journal_id = :journal_id AND :day IS NOT NULL
    ORDER BY pos DESC
    LIMIT 1
) AS e
LEFT JOIN (
    SELECT attempt, no
    FROM journal
    WHERE journal_id = :journal_id AND attempt > 0
    ORDER BY pos DESC
    LIMIT 1
) AS o;

-- name: read_key_entries(journal_id, day, key)
-- The last entry of each kind that a call has left; signals, cancels and notes have names of others.
-- There is no index of keys: it would cost more per step than this costs those who ask.
SELECT journal_id, max(pos), at_ms, total_bytes, attempt, no, kind, key, body
FROM journal
WHERE journal_id = :journal_id
  AND :day IS NOT NULL
  AND key = :key
  AND kind IN (1, 2, 3, 6, 7, 8, 9)
GROUP BY kind;

-- name: read_own_entries(journal_id, day, attempt, first_no)
-- Where entries stand that an attempt reports again.
SELECT journal_id, attempt, no, pos, at_ms
FROM journal
WHERE journal_id = :journal_id AND :day IS NOT NULL AND attempt = :attempt AND no >= :first_no;

-- name: renew_journals(namespace, id, journal_id, old_journal_id)
-- Of runs that begin anew, whose rows this transaction has written. Nobody reads the old entries.
UPDATE tasks SET journal_id = :journal_id WHERE namespace = :namespace AND id = :id;
DELETE FROM journal WHERE journal_id = :old_journal_id;

-- name: replace_inputs(namespace, id, spec, input, input_checksum)
-- Of runs that begin anew, whose rows this transaction has locked.
UPDATE tasks SET spec = :spec, input = :input, input_checksum = :input_checksum
WHERE namespace = :namespace AND id = :id;
