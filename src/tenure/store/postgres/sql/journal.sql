-- name: append_entries(day, pos, at_ms, total_bytes, attempt, no, journal_id, kind, key, body)
-- What the server writes itself: the row of the run is locked by this transaction.
INSERT INTO journal (day, pos, at_ms, total_bytes, attempt, no, journal_id, kind, key, body)
SELECT *
FROM unnest(
    CAST(:day AS integer[]), CAST(:pos AS integer[]), CAST(:at_ms AS bigint[]),
    CAST(:total_bytes AS integer[]), CAST(:attempt AS integer[]), CAST(:no AS integer[]),
    CAST(:journal_id AS uuid[]), CAST(:kind AS smallint[]), CAST(:key AS text[]),
    CAST(:body AS bytea[])
)
ON CONFLICT DO NOTHING
RETURNING pos;

-- name: copy_entries(old_journal_id, old_day, journal_id, day, after_pos, upto_pos)
-- For a run that is made from a finished one. Who reported them is of no interest there.
INSERT INTO journal (day, pos, at_ms, total_bytes, attempt, no, journal_id, kind, key, body)
SELECT d.day, c.pos, c.at_ms, c.total_bytes, 0, 0, d.journal_id, c.kind, c.key, c.body
FROM unnest(
    CAST(:old_journal_id AS uuid[]), CAST(:old_day AS integer[]), CAST(:journal_id AS uuid[]),
    CAST(:day AS integer[]), CAST(:after_pos AS integer[]), CAST(:upto_pos AS integer[])
) AS d (old_journal_id, old_day, journal_id, day, after_pos, upto_pos)
JOIN journal AS c
    ON c.journal_id = d.old_journal_id AND c.day = d.old_day
    AND c.pos > d.after_pos AND c.pos <= d.upto_pos
RETURNING pos;

-- name: delete_journals(before_ms, amount)
-- Retention drops whole days; this only empties what fell into the default partition.
DELETE FROM journal_default
WHERE ctid = ANY (ARRAY(
    SELECT j.ctid
    FROM journal_default AS j
    WHERE j.day < CAST(:before_ms AS bigint) / 86400000
      AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.journal_id = j.journal_id)
      AND NOT EXISTS (SELECT 1 FROM history AS h WHERE h.journal_id = j.journal_id)
      AND NOT EXISTS (SELECT 1 FROM groups AS g WHERE g.group_id = j.journal_id)
    LIMIT CAST(:amount AS integer)
))
RETURNING pos;

-- name: find_following_entries(journal_id, day, key, attempt, after_pos)
-- The next entry of a local step by the same attempt of its run.
SELECT d.after_pos, CAST(d.journal_id AS text), e.*
FROM unnest(
    CAST(:journal_id AS uuid[]), CAST(:day AS integer[]), CAST(:key AS text[]),
    CAST(:attempt AS integer[]), CAST(:after_pos AS integer[])
) AS d (journal_id, day, key, attempt, after_pos)
CROSS JOIN LATERAL (
    SELECT c.pos, c.at_ms, c.total_bytes, c.attempt, c.no, c.kind, c.key, c.body
    FROM journal AS c
    WHERE c.journal_id = d.journal_id AND c.day = d.day
      AND c.pos > d.after_pos
      AND c.kind IN (1, 8, 9)
      AND c.key = d.key
      AND c.attempt = d.attempt
    ORDER BY c.pos
    LIMIT 1
) AS e;

-- name: find_steps(journal_id, day, after_pos, upto_pos, key, amount, bytes_max)
-- Entries of steps, or of one step. The first one comes however large it is.
SELECT
    CAST(s.journal_id AS text), s.pos, s.at_ms, s.total_bytes, s.attempt, s.no, s.kind, s.key,
    s.body
FROM (
    SELECT
        c.*,
        sum(coalesce(octet_length(c.body), 0)) OVER (ORDER BY c.pos) AS reached,
        row_number() OVER (ORDER BY c.pos) AS place
    FROM (
        SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body
        FROM journal
        WHERE journal_id = CAST(:journal_id AS uuid)
          AND day = CAST(:day AS integer)
          AND pos > CAST(:after_pos AS integer)
          AND pos <= CAST(:upto_pos AS integer)
          AND kind IN (1, 2, 6, 8, 9)
          AND (CAST(:key AS text) = '' OR key = CAST(:key AS text))
        ORDER BY pos
        LIMIT CAST(:amount AS integer)
    ) AS c
) AS s
WHERE s.place = 1 OR s.reached <= CAST(:bytes_max AS bigint)
ORDER BY s.pos;

-- name: insert_entries(namespace, task_id, worker_id, attempt, day, pos, at_ms, total_bytes, no, journal_id, kind, key, body)
-- The insert fences itself: the run is held by this worker in this attempt, or nothing is written,
-- and a position that is taken is not written either. The run is looked up by its primary key and
-- compared outside: with attempt and worker inside, the planner takes the index of who holds what
-- (129 to 198 µs per entry instead of 23 to 28). Its row is locked, so that a take-over comes
-- before or after, and is not written.
INSERT INTO journal (day, pos, at_ms, total_bytes, attempt, no, journal_id, kind, key, body)
SELECT g.day, g.pos, g.at_ms, g.total_bytes, g.attempt, g.no, g.journal_id, g.kind, g.key, g.body
FROM unnest(CAST(:rows AS insert_entries_row[])) AS g
CROSS JOIN LATERAL (
    SELECT l.attempt, l.worker_id
    FROM tasks AS l
    WHERE l.namespace = g.namespace AND l.id = g.task_id
    FOR NO KEY UPDATE
) AS held
WHERE held.attempt = g.attempt AND held.worker_id = g.worker_id
ON CONFLICT DO NOTHING
RETURNING pos;

-- name: read_carried(journal_id, day, seen, keep)
-- Signals and cancels that a run takes along: those that it names, and all behind a position.
SELECT CAST(d.journal_id AS text), e.*
FROM unnest(
    CAST(:journal_id AS uuid[]), CAST(:day AS integer[]), CAST(:seen AS integer[]),
    CAST(:keep AS text[])
) AS d (journal_id, day, seen, keep)
CROSS JOIN LATERAL (
    SELECT c.pos, c.at_ms, c.total_bytes, c.attempt, c.no, c.kind, c.key, c.body
    FROM journal AS c
    WHERE c.journal_id = d.journal_id AND c.day = d.day
      AND c.kind IN (4, 5)
      AND (
          c.pos > d.seen
          OR c.pos IN (
              SELECT CAST(k.pos AS integer)
              FROM jsonb_array_elements_text(CAST(d.keep AS jsonb)) AS k (pos)
          )
      )
    ORDER BY c.pos
) AS e;

-- name: read_entries(journal_id, day, after_pos, amount, bytes_max)
-- Pages: so many entries behind a position, of which the first is there however large it is.
SELECT CAST(d.journal_id AS text), e.*
FROM unnest(
    CAST(:journal_id AS uuid[]), CAST(:day AS integer[]), CAST(:after_pos AS integer[])
) AS d (journal_id, day, after_pos)
LEFT JOIN LATERAL (
    SELECT b.total_bytes
    FROM journal AS b
    WHERE b.journal_id = d.journal_id AND b.day = d.day AND b.pos = d.after_pos
) AS seen ON true
CROSS JOIN LATERAL (
    SELECT
        c.pos, c.at_ms, c.total_bytes, c.attempt, c.no, c.kind, c.key, c.body
    FROM journal AS c
    WHERE c.journal_id = d.journal_id
      AND c.day = d.day
      AND c.pos > d.after_pos
      AND c.pos <= d.after_pos + CAST(:amount AS integer)
      AND (
          c.pos = d.after_pos + 1
          OR c.total_bytes <= CAST(:bytes_max AS bigint) + coalesce(seen.total_bytes, 0)
      )
    ORDER BY c.pos
) AS e;

-- name: read_foreign_entry(journal_id, day, after_pos, attempt)
-- The first entry behind a position that another one than this attempt has written.
SELECT min(c.pos)
FROM journal AS c
WHERE c.journal_id = CAST(:journal_id AS uuid)
  AND c.day = CAST(:day AS integer)
  AND c.pos > CAST(:after_pos AS integer)
  AND c.attempt <> CAST(:attempt AS integer);

-- name: read_journal_ends(journal_id, day)
-- Where journals end, and who reported last: what the server wrote behind that is passed over.
SELECT CAST(d.journal_id AS text), e.pos, e.total_bytes, coalesce(o.attempt, 0), coalesce(o.no, 0)
FROM unnest(CAST(:journal_id AS uuid[]), CAST(:day AS integer[])) AS d (journal_id, day)
CROSS JOIN LATERAL (
    SELECT c.pos, c.total_bytes
    FROM journal AS c
    WHERE c.journal_id = d.journal_id AND c.day = d.day
    ORDER BY c.pos DESC
    LIMIT 1
) AS e
LEFT JOIN LATERAL (
    SELECT c.attempt, c.no
    FROM journal AS c
    WHERE c.journal_id = d.journal_id AND c.day = d.day AND c.attempt > 0
    ORDER BY c.pos DESC
    LIMIT 1
) AS o ON true;

-- name: read_key_entries(journal_id, day, key)
-- The last entry of each kind that a call has left; signals, cancels and notes have names of others.
-- There is no index of keys: it would cost more per step than this costs those who ask.
SELECT DISTINCT ON (c.kind)
    CAST(c.journal_id AS text), c.pos, c.at_ms, c.total_bytes, c.attempt, c.no, c.kind, c.key,
    c.body
FROM journal AS c
WHERE c.journal_id = CAST(:journal_id AS uuid)
  AND c.day = CAST(:day AS integer)
  AND c.key = CAST(:key AS text)
  AND c.kind IN (1, 2, 3, 6, 7, 8, 9)
ORDER BY c.kind, c.pos DESC;

-- name: read_own_entries(journal_id, day, attempt, first_no)
-- Where entries stand that an attempt reports again.
SELECT CAST(d.journal_id AS text), e.attempt, e.no, e.pos, e.at_ms
FROM unnest(
    CAST(:journal_id AS uuid[]), CAST(:day AS integer[]), CAST(:attempt AS integer[]),
    CAST(:first_no AS integer[])
) AS d (journal_id, day, attempt, first_no)
CROSS JOIN LATERAL (
    SELECT c.attempt, c.no, c.pos, c.at_ms
    FROM journal AS c
    WHERE c.journal_id = d.journal_id AND c.day = d.day
      AND c.attempt = d.attempt AND c.no >= d.first_no
    OFFSET 0
) AS e;

-- name: renew_journals(namespace, id, journal_id, old_journal_id)
-- Of runs that begin anew, whose rows this transaction has written. The old entries are dropped
-- with their day.
UPDATE tasks AS t
SET journal_id = g.journal_id
FROM unnest(
    CAST(:namespace AS text[]), CAST(:id AS uuid[]), CAST(:journal_id AS uuid[]),
    CAST(:old_journal_id AS uuid[])
) AS g (namespace, id, journal_id, old_journal_id)
WHERE t.namespace = g.namespace AND t.id = g.id AND t.journal_id = g.old_journal_id;

-- name: replace_inputs(namespace, id, spec, input, input_checksum)
-- Of runs that begin anew, whose rows this transaction has locked.
UPDATE tasks AS t
SET spec = g.spec, input = g.input, input_checksum = g.input_checksum
FROM unnest(
    CAST(:namespace AS text[]), CAST(:id AS uuid[]), CAST(:spec AS bytea[]),
    CAST(:input AS bytea[]), CAST(:input_checksum AS bigint[])
) AS g (namespace, id, spec, input, input_checksum)
WHERE t.namespace = g.namespace AND t.id = g.id;
